"""Bugs of the kind that the explorer is for, each planted into the product by a patch; every one must be found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from idem_middleware import claims, decisions, outcomes, transitions, waiting
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.acquisition import Acquisition
from idem_middleware.blocking.lease import Lease
from idem_middleware.claims import Claim
from idem_middleware.decisions import Adopt, Attempt, Execute, Refuse, Step, Swap, Wait
from idem_middleware.errors import StoreUnavailable
from idem_middleware.locks import OperationLock
from idem_middleware.options import Options
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.records import Record, Status
from idem_middleware.settling import Plan, Recorded, Settled, Superseded, plan_failure
from idem_middleware.stores.base import GONE, Found, Store
from idem_middleware.stores.dynamodb import items, requests

__all__ = ["PLANTED", "Bug"]


@dataclass(frozen=True, slots=True)
class Bug:
    """One bug: what it is, how it is planted, in which world it shows, and which promise it breaks there."""

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    world: str
    promise: str


PLANTED: list[Bug] = []


def _bug(name: str, world: str, promise: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    def add(plant: Callable[[], Iterator[None]]) -> None:
        PLANTED.append(Bug(name, contextmanager(plant), world, promise))

    return add


@contextmanager
def _everywhere(original: Callable[..., Any], planted: Callable[..., Any]) -> Iterator[None]:
    """Replace a function in every module of the product that has imported it."""
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("idem_middleware"):
                for attribute, value in list(vars(module).items()):
                    if value is original:
                        stack.enter_context(patch.object(module, attribute, planted))
        yield


# --- decisions ---


@contextmanager
def _deciding(instead: Callable[[Attempt, Record, float], Step | None]) -> Iterator[None]:
    """Something is decided otherwise about what was found; None leaves it as it is."""
    decide = decisions.decide

    def planted(attempt: Attempt, found: Record | None, now: float) -> Step:
        step = None if found is None else instead(attempt, found, now)
        return decide(attempt, found, now) if step is None else step

    with _everywhere(decide, planted):
        yield


@_bug("a resent create takes the record that it meets for its own", "two, a call fails", "one answer")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        same = attempt.tried is not None and (found.version, found.status) == (attempt.tried.version, "PENDING")
        return Execute(found) if same else None

    with _deciding(instead):
        yield


@_bug("an own claim at another version is not adopted", "two, a call fails", "no dead end")
def _() -> Iterator[None]:
    decide = decisions.decide

    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        adopts = isinstance(decide(attempt, found, now), Adopt)
        return Refuse(Problem(ProblemType.IN_PROGRESS, retry_after_seconds=1)) if adopts else None

    with _deciding(instead):
        yield


@_bug("the end of a lease is compared in milliseconds", "two", "one owner")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        if found.status is Status.PENDING and found.owner != attempt.owner:
            return decisions._pending(attempt, found, now * 1000)
        return None

    with _deciding(instead):
        yield


@_bug("a lease is taken over at its end, without the margin", "two, clocks within the margin", "one owner")
def _() -> Iterator[None]:
    with _deciding(
        lambda attempt, found, now: (
            decisions._pending(replace(attempt, margin_seconds=0.0), found, now)
            if found.status is Status.PENDING and found.owner != attempt.owner
            else None
        )
    ):
        yield


@_bug("whoever finds a lease over runs without taking it over", "two, two crash", "one answer")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        over = found.status is Status.PENDING and now >= found.expires_at + attempt.margin_seconds
        alive = replace(found, expires_at=now + attempt.options.lease_seconds)
        return Execute(alive) if over and found.owner != attempt.owner else None

    with _deciding(instead):
        yield


@_bug("an abandoned attempt is run again although that is refused", "two, two crash, all refused", "bounded runs")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        options = replace(attempt.options, on_abandoned="retry")
        if found.status is Status.PENDING and found.owner != attempt.owner:
            return decisions._pending(replace(attempt, options=options), found, now)
        return None

    with _deciding(instead):
        yield


@_bug("an abandoned attempt is given up while it may still run", "two, two crash, all refused", "true refusals")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        if found.status is Status.PENDING and found.owner != attempt.owner and now > found.created_at:
            return Refuse(Problem(ProblemType.OUTCOME_UNKNOWN))
        return None

    with _deciding(instead):
        yield


@_bug("another caller's answer is replayed", "two who ask for different things", "one answer")
def _() -> Iterator[None]:
    with _deciding(
        lambda attempt, found, now: decisions._completed(attempt, found, now) if found.status == "COMPLETED" else None
    ):
        yield


@_bug("what another asks is not compared while it runs", "two who ask for different things", "true refusals")
def _() -> Iterator[None]:
    with _deciding(
        lambda attempt, found, now: (
            decisions._pending(attempt, found, now)
            if found.status is Status.PENDING and found.owner != attempt.owner
            else None
        )
    ):
        yield


@_bug("the fingerprint is not compared after a wait", "a waiter, and one who asks for something else", "one answer")
def _() -> Iterator[None]:
    decide = Acquisition._decide

    def planted(self: Acquisition, found: Record | None) -> Step:
        if found is not None:
            self._attempt = replace(self._attempt, fingerprint=found.fingerprint, caller_digest=found.caller_digest)
        return decide(self, found)

    with patch.object(Acquisition, "_decide", planted):
        yield


@_bug("an answer is replayed after its retention", "two, a short retention", "one answer")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        return decisions._completed(attempt, found, found.created_at) if found.status is Status.COMPLETED else None

    with _deciding(instead):
        yield


@_bug("a completed key is free again after lease time", "two", "one owner")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        if found.status is Status.COMPLETED and now >= found.created_at + attempt.options.lease_seconds:
            return Swap(found, attempt.claim(found, now))
        return None

    with _deciding(instead):
        yield


# --- what is written ---


@_bug("the retention is counted from the claim", "two, a short retention", "honest leases")
def _() -> Iterator[None]:
    completed = transitions.completed

    def planted(old: Record, response: Any, now: float, options: Options) -> Record:
        return completed(old, response, old.created_at, options)

    with patch.object(transitions, "completed", planted):
        yield


@_bug("a renewal keeps the version", "two, left behind", "versions only grow")
def _() -> Iterator[None]:
    renewed = transitions.renewed

    def planted(old: Record, now: float, options: Options, margin_seconds: float) -> Record:
        return replace(renewed(old, now, options, margin_seconds), version=old.version)

    with patch.object(transitions, "renewed", planted):
        yield


@_bug("a lease is written in milliseconds", "two", "honest leases")
def _() -> Iterator[None]:
    claim = Attempt.claim

    def planted(self: Attempt, old: Record | None, now: float, *, attempt: int = 1, anew: bool = True) -> Record:
        record = claim(self, old, now, attempt=attempt, anew=anew)
        end = now + 1000 * self.options.lease_seconds
        return replace(record, expires_at=end, bound_until=max(end, record.bound_until))

    with patch.object(Attempt, "claim", planted):
        yield


@_bug("a failed attempt binds its key for a day", "two, handlers fail", "honest leases")
def _() -> Iterator[None]:
    failed = transitions.failed

    def planted(old: Record, now: float, options: Options, **more: Any) -> Record:
        return replace(failed(old, now, options, **more), expires_at=now + 86400.0)

    with patch.object(transitions, "failed", planted):
        yield


@_bug("a failed attempt leaves its key to anybody", "two, handlers fail", "versions only grow")
def _() -> Iterator[None]:
    failed = transitions.failed

    def planted(old: Record, now: float, options: Options, **more: Any) -> Record:
        return replace(failed(old, now, options, **more), bound_until=now)

    with patch.object(transitions, "failed", planted):
        yield


@_bug("an exception counts as a failure although it is refused", "two, handlers fail, all refused", "bounded runs")
def _() -> Iterator[None]:
    with patch.object(Lease, "_plan_exception", lambda self: plan_failure(self._options)):
        yield


# --- conditions of the store's writes ---


@contextmanager
def _swapping(change: Callable[[Record, dict[str, Any]], None]) -> Iterator[None]:
    swap_request = requests.swap_request

    def planted(table: str, old: Record, new: Record) -> dict[str, Any]:
        request = swap_request(table, old, new)
        change(new, request)
        return request

    with _everywhere(swap_request, planted):
        yield


@_bug("completing has no condition", "two, left behind", "one owner")
def _() -> Iterator[None]:
    def change(new: Record, request: dict[str, Any]) -> None:
        if new.status is Status.COMPLETED:
            del request["ConditionExpression"]

    with _swapping(change):
        yield


@_bug("taking over does not ask for the version", "two, left behind", "one owner")
def _() -> Iterator[None]:
    def change(new: Record, request: dict[str, Any]) -> None:
        request["ConditionExpression"] = request["ConditionExpression"].replace("#version = :old_version AND ", "")

    with _swapping(change):
        yield


@_bug("a claim is put over whatever stands there", "two", "one owner")
def _() -> Iterator[None]:
    create_request = requests.create_request

    def planted(table: str, new: Record) -> dict[str, Any]:
        return {name: value for name, value in create_request(table, new).items() if name != "ConditionExpression"}

    with _everywhere(create_request, planted):
        yield


@_bug("a failed create is taken for one that found nothing", "two", "true refusals")
def _() -> Iterator[None]:
    with _everywhere(items.record_of, lambda item, pk: replace(_FREE, pk=pk)):
        yield


_FREE = Record(
    pk="",
    status=Status.FAILED,
    version=1,
    owner="A1",
    attempt=1,
    fingerprint=b"",
    caller_digest=None,
    created_at=0.0,
    expires_at=0.0,
    bound_until=0.0,
)


# --- leases ---


@_bug("who lost its lease writes over what it finds", "two, left behind", "one owner")
def _() -> Iterator[None]:
    swap = claims.swap

    def planted(claim: Claim, store: Store, make: Callable[[Record, float], Record], deadline: float) -> Step:
        step = swap(claim, store, make, deadline)
        if isinstance(step, Execute):
            return step
        found = store.load(claim.record.pk, deadline)
        if isinstance(found, Found):
            store.swap(
                found.record, replace(make(found.record, store.clock.now()), owner=claim.attempt.owner), deadline
            )
        return step

    with _everywhere(swap, planted):
        yield


@_bug("a loser releases the key", "two, left behind", "versions only grow")
def _() -> Iterator[None]:
    lost = Claim.lost

    def planted(self: Claim, plan: Plan) -> None:
        store = self.runtime.store
        deadline = store.clock.monotonic() + store.deadline_seconds
        found = store.load(self.record.pk, deadline)
        if isinstance(found, Found):
            store.swap(found.record, transitions.released(found.record, store.clock.now()), deadline)
        lost(self, plan)

    with patch.object(Claim, "lost", planted):
        yield


@_bug("who lost its lease shows its own answer", "two, left behind", "one answer")
def _() -> Iterator[None]:
    with patch.object(Lease, "_superseded", lambda *_: Superseded()):
        yield


@_bug("an answer is shown before it is recorded", "two", "recorded before visible")
def _() -> Iterator[None]:
    def planted(self: Lease, plan: Plan) -> Settled:
        self._claim.decide()
        self._claim.runtime.upkeep.schedule(1.0, lambda: _late(self._claim, plan))
        return Recorded()

    with patch.object(Lease, "_carry_out", planted):
        yield


def _late(claim: Claim, plan: Plan) -> None:
    if isinstance(claims.carry_out(claim, claim.runtime.upkeep_store, plan), Execute):
        claim.written(plan)
    else:
        claim.lost(plan)


@_bug("what can't be recorded is given back", "two, a call fails", "versions only grow")
def _() -> Iterator[None]:
    def planted(self: Claim, plan: Plan, error: StoreUnavailable) -> None:
        claims.undo_later(self.runtime, self.attempt, self.record)

    with patch.object(Claim, "_record_later", planted):
        yield


@_bug("what can't be recorded is forgotten", "two, a call fails", "no dead end")
def _() -> Iterator[None]:
    with patch.object(Claim, "_record_later", lambda self, plan, error: self.end()):
        yield


@_bug("a claim whose fate is unknown is run", "two, a call fails", "one answer")
def _() -> Iterator[None]:
    write = Acquisition._write

    def planted(self: Acquisition, step: Any) -> Step:
        try:
            return write(self, step)
        except StoreUnavailable:
            return Execute(step.new)

    with patch.object(Acquisition, "_write", planted):
        yield


@_bug("undoing frees whatever stands there", "two, a call fails", "versions only grow")
def _() -> Iterator[None]:
    undo_later = claims.undo_later

    def planted(runtime: Any, attempt: Attempt, old: Record | None) -> None:
        store = runtime.upkeep_store

        def run() -> float | None:
            deadline = store.clock.monotonic() + store.deadline_seconds
            found = store.load(attempt.pk, deadline)
            if isinstance(found, Found) and found.record.status is Status.PENDING:
                store.swap(found.record, transitions.undone(found.record, store.clock.now()), deadline)
            return None

        runtime.upkeep.schedule(0.0, run)

    with _everywhere(undo_later, planted):
        yield


@_bug("a claim by a wrong clock is not rewritten", "two, a wrong clock that the store corrects", "one answer")
def _() -> Iterator[None]:
    with _everywhere(outcomes.well_timed, lambda attempt, step, clock, offset_before: step):
        yield


@_bug("a claim that was so slow that its lease is over is run", "two, left behind", "one answer")
def _() -> Iterator[None]:
    with _everywhere(outcomes.well_timed, lambda attempt, step, clock, offset_before: step):
        yield


@_bug("the lock of a lease is never passed on", "two, left behind", "no dead end")
def _() -> Iterator[None]:
    with patch.object(OperationLock, "_pass_on", lambda self: None):
        yield


@_bug("a failure is not recorded", "two, handlers fail", "no dead end")
def _() -> Iterator[None]:
    with patch.object(Lease, "settle_exception", lambda self: Recorded()):
        yield


@_bug("leases are not renewed", "two, a long work", "kept leases")
def _() -> Iterator[None]:
    with patch.object(Claim, "renew", lambda self: None):
        yield


@_bug("a waiter does not wait", "a waiter", "true refusals")
def _() -> Iterator[None]:
    with patch.object(waiting.Ticket, "take", lambda self: self.seen or GONE):
        yield


@_bug("what a waiter was told is told again and again", "two waiters of one process", "no dead end")
def _() -> Iterator[None]:
    with patch.object(waiting.Ticket, "take", lambda self: self.seen):
        yield


@_bug("who looks for all leaves, and wakes nobody", "two waiters of one process, one is interrupted", "true refusals")
def _() -> Iterator[None]:
    leave = waiting.Flights.leave

    def planted(self: waiting.Flights, ticket: waiting.Ticket) -> None:
        others = [other for other in self._flights[ticket.pk].tickets if other is not ticket]
        with ExitStack() as stack:
            for other in others:
                stack.enter_context(patch.object(other, "wake", lambda: None))
            leave(self, ticket)

    with patch.object(waiting.Flights, "leave", planted):
        yield


@_bug("a waiter gives up at the first look", "a waiter", "true refusals")
def _() -> Iterator[None]:
    wait = Acquisition._wait

    def planted(self: Acquisition, step: Wait) -> Step:
        self._patient_until = self._clock.monotonic()
        return wait(self, step)

    with patch.object(Acquisition, "_wait", planted):
        yield


@_bug("the asynchronous driver completes without a condition", "two asynchronous, left behind", "one owner")
def _() -> Iterator[None]:
    def change(new: Record, request: dict[str, Any]) -> None:
        if new.status is Status.COMPLETED:
            del request["ConditionExpression"]

    with _swapping(change):
        yield


@_bug("an asynchronous loser shows its own answer", "two asynchronous, left behind", "one answer")
def _() -> Iterator[None]:
    async def planted(self: AsyncLease, step: Step) -> Superseded:
        return Superseded()

    with patch.object(AsyncLease, "_superseded", planted):
        yield


# --- what lasts too long, or not long enough ---


@_bug("a lease that is over is renewed", "two, left behind", "honest leases")
def _() -> Iterator[None]:
    is_over = Claim._is_over

    def planted(self: Claim) -> bool:
        return False if self.runtime.store.clock.now() >= self.record.expires_at else is_over(self)

    with patch.object(Claim, "_is_over", planted):
        yield


@_bug("a lease is renewed for ever", "two, a work longer than it may be", "honest leases")
def _() -> Iterator[None]:
    def planted(self: Claim) -> bool:
        return self.runtime.store.clock.now() >= self.record.expires_at

    with patch.object(Claim, "_is_over", planted):
        yield


@_bug("a record may be swept while its key is bound", "two", "honest leases")
def _() -> Iterator[None]:
    with patch.object(Record, "ttl", property(lambda self: int(self.expires_at))):
        yield


@_bug("a record is swept in milliseconds", "two", "honest leases")
def _() -> Iterator[None]:
    with patch.object(Record, "ttl", property(lambda self: int(1000 * self.bound_until))):
        yield


@_bug("writes do not ask for the owner", "two, and the sweeper", "one owner")
def _() -> Iterator[None]:
    def change(new: Record, request: dict[str, Any]) -> None:
        request["ConditionExpression"] = request["ConditionExpression"].replace("#owner = :old_owner AND ", "")

    with _swapping(change):
        yield


@_bug("tombstones are forgotten", "two, expired keys refused", "honest leases")
def _() -> Iterator[None]:
    completed = transitions.completed

    def planted(old: Record, response: Any, now: float, options: Options) -> Record:
        record = completed(old, response, now, options)
        return replace(record, bound_until=record.expires_at)

    with patch.object(transitions, "completed", planted):
        yield


@_bug("an expired key is run although that is refused", "two, expired keys refused", "one owner")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        over = found.status is Status.COMPLETED and now >= found.expires_at
        return Swap(found, attempt.claim(found, now)) if over else None

    with _deciding(instead):
        yield


@_bug("a key stays another's when it is free", "two who ask for different things", "true refusals")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        foreign = found.fingerprint != attempt.fingerprint and found.owner != attempt.owner
        return Refuse(Problem(ProblemType.KEY_REUSED)) if foreign else None

    with _deciding(instead):
        yield


@_bug("a pause after a failure is not kept", "two, a pause after a failure", "one owner")
def _() -> Iterator[None]:
    def instead(attempt: Attempt, found: Record, now: float) -> Step | None:
        return decisions._next_attempt(attempt, found, now) if found.status is Status.FAILED else None

    with _deciding(instead):
        yield


@_bug("no pause is written after a failure", "two, a pause after a failure", "honest leases")
def _() -> Iterator[None]:
    failed = transitions.failed

    def planted(old: Record, now: float, options: Options, **more: Any) -> Record:
        return replace(failed(old, now, options, **more), expires_at=old.created_at)

    with patch.object(transitions, "failed", planted):
        yield


@_bug("what a wrong clock claimed is free by that clock", "two, a wrong clock and a lost reply", "no dead end")
def _() -> Iterator[None]:
    with patch.object(transitions, "_begun", lambda old, now: old.created_at):
        yield


# --- what is left behind ---


@_bug("an uncertain claim is left as it is", "two, two crash and a reply is lost", "no dead end")
def _() -> Iterator[None]:
    with _everywhere(claims.undo_later, lambda runtime, attempt, old: None):
        yield


@_bug("an uncertain claim is taken back even if it has completed", "two, a call fails", "one owner")
def _() -> Iterator[None]:
    undo_later = claims.undo_later

    def planted(runtime: Any, attempt: Attempt, old: Record | None) -> None:
        store = runtime.upkeep_store

        def run() -> float | None:
            deadline = store.clock.monotonic() + store.deadline_seconds
            found = store.load(attempt.pk, deadline)
            if isinstance(found, Found) and found.record.status is not Status.FAILED:
                store.swap(found.record, transitions.undone(found.record, store.clock.now()), deadline)
            return None

        runtime.upkeep.schedule(6.0, run)

    with _everywhere(undo_later, planted):
        yield


@_bug("an interrupted recording is not finished", "two, threads are interrupted", "no dead end")
def _() -> Iterator[None]:
    with patch.object(Claim, "interrupted", lambda self, plan: self.end()):
        yield


@_bug("the pieces of a body are written after their record", "two, large answers", "recorded before visible")
def _() -> Iterator[None]:
    def planted(claim: Claim, store: Store, plan: Plan) -> Step:
        step = claims.swap(claim, store, plan.make, claim.deadline(plan))
        if plan.chunks:
            store.put_chunks(claim.record, plan.chunks, claim.deadline(plan))
        return step

    with _everywhere(claims.carry_out, planted):
        yield


@_bug("who waits beside the owner is not woken", "two of one process, one waits", "true refusals")
def _() -> Iterator[None]:
    with patch.object(waiting.Flights, "notify", lambda self, pk: None):
        yield


@_bug("a replay is always 200", "two", "one answer")
def _() -> Iterator[None]:
    marked = outcomes.marked

    with _everywhere(marked, lambda response, options: replace(marked(response, options), status=200)):
        yield


@_bug("a replay is not marked", "two", "one answer")
def _() -> Iterator[None]:
    with _everywhere(outcomes.marked, lambda response, options: response):
        yield


# --- transactions ---


@contextmanager
def _transacting(change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    transact_request = requests.transact_request

    def planted(table: str, old: Record | None, new: Record, transaction: Any) -> dict[str, Any]:
        request = transact_request(table, old, new, transaction)
        change(request)
        return request

    with _everywhere(transact_request, planted):
        yield


@_bug("a transaction does not ask for the claim", "two, transactions, left behind", "one owner")
def _() -> Iterator[None]:
    with _transacting(lambda request: request["TransactItems"][0]["Update"].pop("ConditionExpression")):
        yield


@_bug("a transaction goes without its claim", "two, transactions", "versions only grow")
def _() -> Iterator[None]:
    def planted(old: Record, checkpoint: bytes, **more: Any) -> Record:
        return replace(old, transaction=more.get("transaction"))

    with patch.object(transitions, "checkpointed", planted):
        yield


@_bug("a transaction leaves no checkpoint", "two, transactions", "transacted once")
def _() -> Iterator[None]:
    def planted(old: Record, checkpoint: bytes, **more: Any) -> Record:
        return replace(old, version=old.version + 1)

    with patch.object(transitions, "checkpointed", planted):
        yield


@_bug("a checkpoint is forgotten with the attempt that left it", "two, transactions", "transacted once")
def _() -> Iterator[None]:
    claim = Attempt.claim

    def planted(self: Attempt, old: Record | None, now: float, *, attempt: int = 1, anew: bool = True) -> Record:
        return replace(claim(self, old, now, attempt=attempt, anew=anew), checkpoint=None)

    with patch.object(Attempt, "claim", planted):
        yield


@_bug("an answer is completed apart from its transaction", "two, completed by transactions", "transacted once")
def _() -> Iterator[None]:
    def planted(self: Lease, items: Any, response: Any) -> Settled:
        return self.complete(response)

    with patch.object(Lease, "complete_with", planted):
        yield
