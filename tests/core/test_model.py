"""Engines and their stores, against a dictionary: whatever is done in whatever order, both say the same."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from idem_middleware import DynamoDBStore, Engine, Lease, MemoryStore, Options, Response
from idem_middleware.clock import CorrectedClock
from idem_middleware.identity import Admitted
from idem_middleware.keys import record_pk
from idem_middleware.outcomes import Refused, Replayed
from idem_middleware.runtime import Runtime
from idem_middleware.settling import Superseded
from idem_middleware.stores.base import Found, Store
from idem_middleware.testing import Fault, FaultyStore, ManualClock
from idem_middleware.upkeep import Upkeep
from tests.core.support.worlds import request
from tests.exploration.model import EMPTY, Table

LEASE, LONGEST, RETENTION, MARGIN = 60.0, 300.0, 600.0, 2.0
RENEWED_EVERY = LEASE / 3
LONGEST_BACKOFF = 5.0
KEYS, BODIES, PROCESSES = ("a", "b"), (b"pay", b"refund"), (0, 1)

# Answers by what becomes of the key: kept, tried again, as good as new.
KEPT, FAILED, RELEASED = "kept", "failed", "released"
ANSWERS = {KEPT: 201, FAILED: 500, RELEASED: 307}


class TableClient:
    """Stands where boto3's client does, before the model of a table."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._table = Table()
        self._content = EMPTY

    def put_item(self, **request: Any) -> Mapping[str, Any]:
        """As boto3's."""
        return self._call("put_item", request)

    def update_item(self, **request: Any) -> Mapping[str, Any]:
        """As boto3's."""
        return self._call("update_item", request)

    def get_item(self, **request: Any) -> Mapping[str, Any]:
        """As boto3's."""
        return self._call("get_item", request)

    def _call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self._content, reply = self._table.apply(self._content, self._table.call(operation, request))
        return self._table.response(reply, None)


def memory(clock: ManualClock) -> Store:
    """All in this process."""
    return MemoryStore(clock=clock)


def table(clock: ManualClock) -> Store:
    """DynamoDB's store, down to its requests."""
    corrected = CorrectedClock(wall=clock.now, monotonic=clock.monotonic, margin_seconds=MARGIN)
    return DynamoDBStore(client=TableClient(clock), clock=corrected)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the dictionary knows of a key: "runs", "lost" (nobody renews its lease any more), "done", "failed".

    `since` is when it became so, `begun_at` when the attempt was.
    """

    state: str
    body: bytes
    attempt: int
    begun_at: float
    since: float
    owner: int
    answer: bytes | None = None


@dataclass(slots=True)
class Held:
    """A lease that somebody holds, or believes to."""

    key: str
    number: int
    process: int
    lease: Lease


class Machine(RuleBasedStateMachine):
    """Two processes, two keys, two bodies; what they do, and what the dictionary says to it."""

    on_abandoned: str

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(margin_seconds=MARGIN)
        self.entries: dict[str, Entry] = {}
        self.held: list[Held] = []
        self.versions: dict[str, tuple[int, float]] = {}
        self.engines: list[Engine] = []
        self.numbers = itertools.count(1)

    @initialize(make=st.sampled_from([memory, table]), on_abandoned=st.sampled_from(["retry", "refuse"]))
    def begin(self, make: Any, on_abandoned: str) -> None:
        """On one of the stores, with one of the policies."""
        self.store = FaultyStore(make(self.clock))
        self.on_abandoned = on_abandoned
        self.options = Options(
            lease_seconds=LEASE,
            max_execution_seconds=LONGEST,
            retention_seconds=RETENTION,
            on_abandoned=on_abandoned,  # type: ignore[arg-type]
            caller="shared",
        )
        self.owners = itertools.count(1)
        self.upkeeps: list[Upkeep] = []
        self.engines = [self._process() for _ in PROCESSES]

    def _process(self) -> Engine:
        upkeep = Upkeep(monotonic=self.clock.monotonic, threads=False)
        self.upkeeps.append(upkeep)
        runtime = Runtime(
            self.store,
            self.options,
            upkeep=upkeep,
            new_owner=lambda: f"owner {next(self.owners)}",
            log=lambda event: None,
        )
        return Engine(self.store, self.options, runtime=runtime)

    # --- what can happen ---

    @rule(key=st.sampled_from(KEYS), body=st.sampled_from(BODIES), process=st.sampled_from(PROCESSES))
    def send(self, key: str, body: bytes, process: int) -> None:
        """A request comes."""
        said, lease = self._acquire(key, body, process)
        expected = self._expected(key, body)
        assert said in expected, f"{said} instead of {expected}"
        if lease is not None:
            self._claimed(key, body, process, lease)

    @rule(
        key=st.sampled_from(KEYS),
        body=st.sampled_from(BODIES),
        process=st.sampled_from(PROCESSES),
        fault=st.sampled_from([Fault.LOST_REPLY, Fault.LOST_REQUEST]),
    )
    def send_in_vain(self, key: str, body: bytes, process: int, fault: Fault) -> None:
        """A request comes, and its first call is lost: what was perhaps claimed is given back soon."""
        self.store.fail(fault, on="create")
        said, _ = self._acquire(key, body, process)
        assert said == "store-unavailable"
        self._pass(LONGEST_BACKOFF + 1)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from([KEPT, FAILED, RELEASED]))
    def answer(self, data: st.DataObject, how: str) -> None:
        """A handler ends with an answer."""
        held = self._let_go(data)
        body = f"{held.key} {held.number}".encode()
        settled = held.lease.settle(Response(ANSWERS[how], (), body))
        entry = self._of(held)
        if entry is None:
            assert isinstance(settled, Superseded)
            return
        assert type(settled).__name__ == "Recorded"
        self._ended(held, entry, how, body)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), fault=st.sampled_from([Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.SENT_TWICE]))
    def answer_with_a_fault(self, data: st.DataObject, fault: Fault) -> None:
        """A handler ends, and the call that records it is lost once: it is recorded all the same."""
        held = self._let_go(data)
        entry = self._of(held)
        body = f"{held.key} {held.number}".encode()
        self.store.fail(fault, on="swap")
        held.lease.settle(Response(ANSWERS[KEPT], (), body))
        self._pass(1.0)
        if entry is not None:
            self._ended(held, entry, KEPT, body)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def raise_(self, data: st.DataObject) -> None:
        """A handler raises."""
        held = self._let_go(data)
        entry = self._of(held)
        held.lease.settle_exception()
        if entry is not None:
            self._ended(held, entry, FAILED, b"")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        """Nobody knows how a handler ended."""
        held = self._let_go(data)
        held.lease.abandon()
        entry = self._of(held)
        if entry is not None:
            self.entries[held.key] = replace(entry, state="lost", since=self.clock.now())

    @rule(process=st.sampled_from(PROCESSES))
    def crash(self, process: int) -> None:
        """A process dies, and another one comes in its place."""
        for held in self.held:
            entry = self._of(held)
            if held.process == process and entry is not None:
                self.entries[held.key] = replace(entry, state="lost", since=self.clock.now())
        self.held = [held for held in self.held if held.process != process]
        self.upkeeps.remove(self.engines[process].runtime.upkeep)
        self.engines[process] = self._process()

    @rule(seconds=st.sampled_from([1.0, 15.0, LEASE + MARGIN + 1, LONGEST + LEASE, RETENTION]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self._pass(seconds)

    @invariant()
    def versions_grow(self) -> None:
        """Nothing is deleted while its key is bound, and no version comes back."""
        for key in KEYS if self.engines else ():
            found = self.store.store.load(record_pk("", None, key), self.clock.monotonic() + 1)
            version, bound_until = self.versions.get(key, (0, 0.0))
            if isinstance(found, Found):
                assert found.record.version >= version or self.clock.now() >= bound_until
                self.versions[key] = found.record.version, found.record.bound_until
            else:
                assert self.clock.now() >= bound_until
                self.versions.pop(key, None)

    # --- what the dictionary says ---

    def _expected(self, key: str, body: bytes) -> set[str]:
        """What a request may be told now; more than one thing where only the renewals know when the lease ends."""
        entry, now = self.entries.get(key), self.clock.now()
        if entry is None:
            return {"attempt 1"}
        bound_from = entry.since if entry.state == "done" else entry.begun_at
        said = {"attempt 1"} if now >= bound_from + RETENTION else set()
        if said and entry.state in ("done", "failed"):
            return said
        if entry.body != body:
            return said or {"key-reused"}
        if entry.state == "done":
            return {f"replay {entry.answer!r}"}
        again = f"attempt {entry.attempt + 1}"
        if entry.state == "failed":
            return {again}
        earliest, latest = self._lease_ends(entry)
        if now < latest:
            said |= {"in-progress"}
        if now >= earliest and not said & {"attempt 1"}:
            said |= {again if self.on_abandoned == "retry" else "outcome-unknown"}
        return said

    @staticmethod
    def _lease_ends(entry: Entry) -> tuple[float, float]:
        """When another may take over, at the earliest and at the latest."""
        last = entry.begun_at + LONGEST if entry.state == "runs" else min(entry.since, entry.begun_at + LONGEST)
        return last + LEASE - RENEWED_EVERY + MARGIN, last + LEASE + MARGIN + 1

    # --- how it is carried out ---

    def _acquire(self, key: str, body: bytes, process: int) -> tuple[str, Lease | None]:
        engine = self.engines[process]
        admitted = engine.admit(self.options, "POST", "/orders", [key])
        assert isinstance(admitted, Admitted)
        outcome = engine.acquire(request(body, key=key), admitted)
        match outcome:
            case Lease():
                return f"attempt {outcome.attempt}", outcome
            case Replayed(response):
                return f"replay {response.body!r}", None
            case Refused(problem, _):
                return problem.type.slug, None
        raise AssertionError(outcome)

    def _claimed(self, key: str, body: bytes, process: int, lease: Lease) -> None:
        number, now = next(self.numbers), self.clock.now()
        self.entries[key] = Entry("runs", body, lease.attempt, now, now, number)
        self.held.append(Held(key, number, process, lease))

    def _let_go(self, data: st.DataObject) -> Held:
        return self.held.pop(data.draw(st.integers(0, len(self.held) - 1), label="which lease"))

    def _of(self, held: Held) -> Entry | None:
        """What the dictionary has for a lease; None if the key is another's by now."""
        entry = self.entries.get(held.key)
        return entry if entry is not None and entry.owner == held.number else None

    def _ended(self, held: Held, entry: Entry, how: str, body: bytes) -> None:
        if how == RELEASED:
            del self.entries[held.key]
            return
        state = "done" if how == KEPT else "failed"
        self.entries[held.key] = replace(entry, state=state, since=self.clock.now(), answer=body)

    def _pass(self, seconds: float) -> None:
        while seconds > 0:
            step = min(seconds, 1.0)
            self.clock.advance(step)
            seconds -= step
            for upkeep in self.upkeeps:
                upkeep.run_due()


TestEngines = Machine.TestCase
TestEngines.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
