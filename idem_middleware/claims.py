"""A claim while its work runs: the record as last written, kept alive by the upkeep, recorded late if need be."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from idem_middleware import transitions
from idem_middleware.decisions import Adopt, Attempt, Execute, Refuse, Step, decide, is_late
from idem_middleware.errors import LeaseLost, StoreUnavailable
from idem_middleware.events import EventKind
from idem_middleware.keys import derived_key
from idem_middleware.locks import OperationLock
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import claim_kind, marked, rejection
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.records import Record, Status
from idem_middleware.runtime import Runtime
from idem_middleware.sealing import Rejected
from idem_middleware.settling import (
    COMPLETIONS,
    Plan,
    Superseded,
    plan_answer,
    plan_completion,
    plan_exception,
    plan_failure,
    plan_omission,
    unreviewed_location,
)
from idem_middleware.stores.base import ITEM_TOO_LARGE, Found, Gone, Store, Written
from idem_middleware.upkeep import Lane

__all__ = ["MAX_ROUNDS", "BaseLease", "Claim", "judge", "tell_begin", "undo_later"]

MAX_ROUNDS = 16
"""How often one decision may lose a swap before it gives up: each loss means that somebody else got on."""

_RENEWAL_DEADLINE_SECONDS = 1.0  # a renewal holds the lease's lock, so a completion may wait this long for it
_LATE_RECORDING_SECONDS = 60.0  # how long an answer is tried to be recorded after its client has it
_MOST_LONG_UNDOS = 10_000  # keys looked after for longer than a lease: some MB, and seconds once the store is back
_MOST_UNDOS = 10_000  # keys looked after at once while the store is away, at 2 to 3 KB each
_MOST_UNCERTAIN = 1_000  # attempts of one key that are remembered
_LANDING_SECONDS = 6.0  # how long a write that was given up may still be on its way to the store
_BACKOFF_SECONDS = (0.2, 5.0)
_CHUNK_ALLOWANCE_SECONDS = 0.25  # a large answer is allowed longer than one call


class Claim:
    """What the sync and the async lease share. All that is written goes through its lock, one write after another.

    The lease is kept alive from the start, as long as somebody holds this object.
    """

    def __init__(self, runtime: Runtime, attempt: Attempt, record: Record) -> None:
        self.runtime = runtime
        self.attempt = attempt
        self.record = record
        self.lock = OperationLock()
        self.settled = False
        self.decided = False
        self.transactions = 0
        self.sent: dict[str, object] = {}  # transactions that may have been carried out, by name: see `transacting`
        self.landed: list[object] = []  # those of them that were, and whose trace another one has overwritten
        self.translate: Callable[[Any], Response] | None = None
        self._completed_by_transaction = False
        self._mutex = threading.Lock()
        self._lease_lost = False
        self._recording_late = False
        self._began_at = runtime.store.clock.monotonic()
        self._renew_until = self._began_at + attempt.options.max_execution_seconds
        self._renewal = runtime.upkeep.schedule(self._until_renewal(), _weakly(self), Lane.RENEWAL)

    def tell(self, kind: EventKind, **fields: object) -> None:
        """Emit an event about this claim."""
        self.runtime.tell(kind, self.attempt, attempt_number=self.record.attempt, **fields)

    def decide(self) -> bool:
        """Choose how it ends: True for the first who does, who must then carry that out."""
        with self._mutex:
            first, self.decided = not self.decided, True
        return first

    def undecide(self) -> None:
        """It could not be carried out, and what called for it may choose again."""
        with self._mutex:
            self.decided = False

    def end(self) -> None:
        """Nothing more is written: forget the lease, and tell those who wait in this process."""
        self.settled = True
        self._renewal.cancel()
        self.runtime.flights.notify(self.record.pk)

    def require_open(self) -> None:
        """Check that it is not decided how it ends.

        Raises:
            LeaseLost: it is.
        """
        if self.decided or self.settled:
            raise LeaseLost("this lease is settled already")

    def checkpointed(self, step: Step) -> None:
        """A checkpoint was tried to be written.

        Raises:
            LeaseLost: it was refused: another attempt owns the key.
        """
        if not isinstance(step, Execute):
            self.lose()
            raise LeaseLost("another attempt owns the key now; the checkpoint was not written")
        self.tell(EventKind.CHECKPOINTED)

    def written(self, plan: Plan) -> None:
        """The plan is durable."""
        self.end()
        if self.attempt.options.local_cache_bytes:
            self.runtime.cache.keep(self.record, self.attempt.options.local_cache_bytes)
        took_seconds = self.runtime.store.clock.monotonic() - self._began_at
        self.tell(plan.kind, status=plan.status, seconds=took_seconds, reason=plan.reason)

    def lost(self, plan: Plan) -> None:
        """The plan was refused: another attempt owns the key, or a transaction of ours has settled it before."""
        self.end()
        if self._completed_by_transaction:
            self.tell(EventKind.COMPLETED, reason="transaction")
            return
        self.lose()
        if plan.kind in COMPLETIONS:
            self.tell(EventKind.EXECUTED_NOT_RECORDED, reason="lease-lost")

    def not_written(self, plan: Plan, error: StoreUnavailable) -> Plan | None:
        """The store gave up on this plan. A smaller plan to try at once, or None: it goes on in the background."""
        if error.code == ITEM_TOO_LARGE and plan.kind is EventKind.COMPLETED:
            options = self.attempt.options
            return plan_omission(
                ProblemType.RESPONSE_NOT_STORED, plan.location, options, claimed=self.record, reason="too-large"
            )
        self._record_later(plan, error)
        return None

    def interrupted(self, plan: Plan) -> None:
        """Whoever carried the plan out was stopped in the middle of it: finish it in the background."""
        if not self.settled and not self._recording_late:
            self._record_later(plan, StoreUnavailable("interrupted", code="Interrupted"))

    def deadline(self, plan: Plan) -> float:
        """Until when to try to carry out a plan, in seconds of the monotonic clock."""
        store = self.runtime.store
        return store.clock.monotonic() + store.deadline_seconds + _CHUNK_ALLOWANCE_SECONDS * len(plan.chunks)

    # --- on the upkeep's threads ---

    @property
    def _interval(self) -> float:
        return self.attempt.options.lease_seconds / 3

    def _until_renewal(self) -> float:
        """Seconds until a third of the lease has passed, which began when it was sent, not when its reply came."""
        passed = self.runtime.store.clock.now() + self.attempt.options.lease_seconds - self.record.expires_at
        return min(self._interval, max(0.0, self._interval - passed))

    def renew(self) -> float | None:
        """Begin the lease again; gives the seconds until the next time, None when it is over."""
        with self.lock.held_if_free() as free:
            if self.settled or (free and self._is_over()):
                return None
            if not free:  # the end is being written, which may take its time: no thread waits for it here
                return min(1.0, self._interval / 3)
            return self._renewed(self.runtime.upkeep_store)

    def _is_over(self) -> bool:
        """Whether the lease is not to be renewed any more."""
        clock = self.runtime.store.clock
        # Read now, not when this was due: the process may have been frozen meanwhile. A lease that is over is never
        # revived, since others may have seen its end.
        if clock.now() >= self.record.expires_at:
            self.lose("lapsed")
            return True
        if clock.monotonic() >= self._renew_until:
            self.tell(EventKind.ABANDONED, reason="max-execution")
            return True
        return False

    def _renewed(self, store: Store) -> float | None:
        options, margin = self.attempt.options, store.clock.margin_seconds
        deadline = store.clock.monotonic() + _RENEWAL_DEADLINE_SECONDS
        try:
            step = swap(self, store, lambda old, now: transitions.renewed(old, now, options, margin), deadline)
        except StoreUnavailable as error:
            self.tell(EventKind.STORE_FAILED, reason="renewal", dynamo_error_code=error.code)
            return min(1.0, self._interval / 3)
        if isinstance(step, Execute):
            self.tell(EventKind.RENEWED)
            return self._until_renewal()
        if self._completed_by_transaction:
            self.end()
            self.tell(EventKind.COMPLETED, reason="transaction")
        else:
            self.lose()
        return None

    def judge(self, tried: Record, result: Written | Found | Gone) -> Step:
        """What the store's answer to a write of this claim means; the claim's record is what stands there now."""
        step = judge(self.attempt, tried, result, self.runtime.store.clock.now())
        if isinstance(step, Execute | Adopt):
            self.record = step.record
        elif isinstance(result, Found):
            self.judged(result.record)
        return step

    def judged(self, record: Record) -> None:
        """Look whether this record, which stood in the way of a write of ours, is what a transaction of ours wrote."""
        if record.owner == self.attempt.owner and record.transaction in self.sent:
            self._completed_by_transaction = record.status is Status.COMPLETED

    def lose(self, reason: str | None = None) -> None:
        """Another attempt owns the key, or nobody does. Say it once: it may lapse first, and be taken over later."""
        self._renewal.cancel()
        if not self._lease_lost:
            self._lease_lost = True
            self.tell(EventKind.LEASE_LOST, reason=reason)

    def _record_later(self, plan: Plan, error: StoreUnavailable) -> None:
        """The store was not reached in time: go on in the background, while the lease is renewed."""
        self.tell(EventKind.STORE_FAILED, reason="recording", dynamo_error_code=error.code)
        self.leave_to_upkeep(plan, _BACKOFF_SECONDS[0])

    def leave_to_upkeep(self, plan: Plan, delay_seconds: float = 0.0) -> None:
        """Carry it out in the background, for whoever can't."""
        self._recording_late = True
        give_up_at = self.runtime.store.clock.monotonic() + _LATE_RECORDING_SECONDS
        pauses = backoff()

        def run() -> float | None:
            store = self.runtime.upkeep_store
            with self.lock.held():
                if self.settled:
                    return None
                try:
                    step = carry_out(self, store, plan)
                except StoreUnavailable as late:
                    if store.clock.monotonic() < give_up_at:
                        return pauses()
                    # The claim stays as it is, never deleted, never released: `on_abandoned` decides about the next.
                    self.end()
                    kind = EventKind.EXECUTED_NOT_RECORDED if plan.kind in COMPLETIONS else EventKind.ABANDONED
                    self.tell(kind, reason="store-unavailable", dynamo_error_code=late.code)
                    return None
                if isinstance(step, Execute):
                    self.written(plan)
                else:
                    self.lost(plan)
                return None

        self.runtime.upkeep.schedule(delay_seconds, run, Lane.RECORDING)


class BaseLease:
    """What a handler may know and ask of its lease."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    @property
    def claim(self) -> Claim:
        """What the lease is of; a thread and an event loop that share a lease share it."""
        return self._claim

    @property
    def settled(self) -> bool:
        """Whether it is decided how this attempt ends; it may still be recorded in the background."""
        return self._claim.decided

    def abandon(self) -> None:
        """Nobody knows what was done: keep the claim, renew it no more, and let it lapse."""
        if self._claim.decide():
            self._claim.end()
            self._claim.tell(EventKind.ABANDONED)

    def drop(self, location: str | None = None) -> None:
        """The answer was thrown away unseen, without a word: record, in the background, that it is not kept."""
        if self._claim.decide():
            self._claim.leave_to_upkeep(self._plan_omission(location))

    @property
    def attempt(self) -> int:
        """1 for the first execution under this key, 2 for the next."""
        return self._claim.record.attempt

    @property
    def key_digest(self) -> str:
        """The short digest that logs and events show of the key."""
        return self._claim.record.pk[:12]

    @property
    def checkpoint(self) -> bytes | None:
        """What an earlier attempt left, or this one; None if neither did."""
        return self._claim.record.checkpoint

    def translate_with(self, translate: Callable[[Any], Response]) -> None:
        """Say how to read a framework's own answers, so that `complete_with` takes them."""
        self._claim.translate = translate

    def derive_key(self, label: str) -> str:
        """A key for a call to the next service: a UUID, the same in every attempt, another for each label."""
        return derived_key(self._claim.record.pk, label)

    @property
    def _options(self) -> Options:
        return self._claim.attempt.options

    def _plan_answer(self, response: Response, *, from_view: bool) -> Plan:
        inline_bytes = self._claim.runtime.store.inline_bytes
        return plan_answer(
            response, self._options, inline_bytes=inline_bytes, from_view=from_view, claimed=self._claim.record
        )

    def _plan_completion(self, response: Response) -> Plan:
        claim = self._claim
        inline_bytes = claim.runtime.store.inline_bytes
        return plan_completion(response, self._options, inline_bytes=inline_bytes, claimed=claim.record)

    def _response(self, answer: object) -> Response:
        if isinstance(answer, Response):
            return answer
        if self._claim.translate is None:
            raise TypeError(f"the answer must be an idem_middleware.Response, not {type(answer).__name__}")
        return self._claim.translate(answer)

    def _plan_exception(self) -> Plan:
        return plan_exception(self._options)

    def _plan_omission(self, location: str | None) -> Plan:
        kept = unreviewed_location(location, self._options)
        return plan_omission(ProblemType.RESPONSE_NOT_STORED, kept, self._options, claimed=self._claim.record)

    def _plan_failure(self) -> Plan:
        return plan_failure(self._options)

    def _superseded_by(self, answer: Response | Problem | Rejected) -> Superseded:
        """The winner's answer, if there is one that may be given out."""
        if isinstance(answer, Rejected):
            rejection(self._claim.runtime, self._claim.attempt, answer)
        return Superseded(marked(answer, self._options) if isinstance(answer, Response) else None)


def tell_begin(claim: Claim, before: Record | None) -> None:
    """An attempt begins, on top of what stood there."""
    claim.tell(claim_kind(claim.record, before))
    if is_late(claim.attempt, before):
        claim.tell(EventKind.LATE_DUPLICATE, reason="run-again")


def judge(attempt: Attempt, tried: Record, result: Written | Found | Gone, now: float) -> Step:
    """Turn a store's answer to a write into the next step."""
    match result:
        case Written():
            return Execute(tried)
        case Found(record):
            return decide(attempt.after(tried), record, now)
        case Gone():
            return decide(attempt.after(tried), None, now)
        case _:
            assert_never(result)


def swap(claim: Claim, store: Store, make: Callable[[Record, float], Record], deadline: float) -> Step:
    """Write the next version of a claim, adopting own writes whose replies were lost. Call it under the lock."""
    for _ in range(MAX_ROUNDS):
        new = make(claim.record, store.clock.now())
        step = claim.judge(new, store.swap(claim.record, new, deadline))
        if not isinstance(step, Adopt):
            return step
    return busy()


def busy() -> Refuse:
    """So many lost rounds mean that others write all the time."""
    return Refuse(Problem(ProblemType.IN_PROGRESS, retry_after_seconds=1))


def carry_out(claim: Claim, store: Store, plan: Plan) -> Step:
    """Chunks first, then the record that makes them visible. Call it under the lock."""
    deadline = claim.deadline(plan)
    if plan.chunks:
        store.put_chunks(plan.make(claim.record, store.clock.now()), plan.chunks, deadline)
    return swap(claim, store, plan.make, deadline)


def undo_later(runtime: Runtime, attempt: Attempt, old: Record | None) -> None:
    """A claim was perhaps written, and nothing will run under it: free the key, so that a retry need not wait.

    `attempt` tried to write it, `old` is what it was to take the place of. However many attempts end like this while
    the store is away, each key is looked after by one job.
    """
    runtime.undos_lock.do(partial(_add_undo, runtime, attempt, old, runtime.store.clock.monotonic()))


def _add_undo(runtime: Runtime, attempt: Attempt, old: Record | None, now: float) -> None:
    undo = runtime.undos.get(attempt.pk)
    is_first = undo is None
    if undo is None:
        if len(runtime.undos) >= _MOST_UNDOS:
            return  # a flood while the store is away: the key is locked until its lease is over, like after a crash
        undo = runtime.undos[attempt.pk] = Undo(runtime, attempt)
    undo.add(attempt, old, now)
    if is_first:
        runtime.upkeep.schedule(0.0, undo.run, important=True)  # nobody else can, once this process is gone


class Undo:
    """Takes back whatever uncertain claim of this process turns out to stand under one key."""

    def __init__(self, runtime: Runtime, attempt: Attempt) -> None:
        self._runtime = runtime
        self._attempt = attempt
        self._owners: set[str] = set()
        self._before: set[tuple[str, int]] = set()
        self._last_at = 0.0
        self._until = 0.0
        self._pauses = backoff()

    def add(self, attempt: Attempt, old: Record | None, now: float) -> None:
        """One more of them. Call it under the runtime's lock."""
        if len(self._owners) < _MOST_UNCERTAIN:
            self._owners.add(attempt.owner)
        tried, refuses = attempt.tried, attempt.options.on_abandoned == "refuse"
        if tried is not None:  # pragma: no branch - whoever undoes has tried to write
            self._until = max(self._until, tried.bound_until if refuses else tried.expires_at)
        if old is not None:
            self._before.add((old.owner, old.version))
        self._last_at = now

    def run(self) -> float | None:
        """Look once; gives the seconds until the next look."""
        pause, owners = self._pauses(), len(self._owners)
        done = self._is_done()
        with_patience = self._is_worth_it()
        with self._runtime.undos_lock:
            if len(self._owners) != owners:
                return pause  # one more since the look
            if not done and with_patience:
                return pause
            self._runtime.undos.pop(self._attempt.pk, None)
        return None

    def _is_worth_it(self) -> bool:
        """Whether the key would still be locked by it.

        That is for a lease, or longer where an abandoned attempt is final or the claim's clock was wrong: its end is
        held against the corrected clock, which may be another by now.
        """
        clock = self._runtime.store.clock
        if clock.monotonic() - self._last_at < self._attempt.options.lease_seconds:
            return True
        return clock.now() < self._until and len(self._runtime.undos) <= _MOST_LONG_UNDOS

    def _is_done(self) -> bool:
        runtime, pk = self._runtime, self._attempt.pk
        store = runtime.upkeep_store
        deadline = store.clock.monotonic() + store.deadline_seconds
        try:
            match store.load(pk, deadline):
                case Found(record) if record.owner in self._owners and record.status is Status.PENDING:
                    if isinstance(store.swap(record, transitions.undone(record, store.clock.now()), deadline), Written):
                        runtime.tell(EventKind.CLAIM_UNDONE, self._attempt)
                        runtime.flights.notify(pk)
                        return True
                    return False
                case Found(record) if (record.owner, record.version) not in self._before:
                    return True
                case _:  # nothing has changed yet, but a write may still be on its way
                    return store.clock.monotonic() >= self._last_at + _LANDING_SECONDS
        except StoreUnavailable:
            return False


def backoff() -> Callable[[], float]:
    """Pauses that double."""
    pause, longest = _BACKOFF_SECONDS

    def following() -> float:
        nonlocal pause
        current, pause = pause, min(2 * pause, longest)
        return current

    return following


def _weakly(claim: Claim) -> Callable[[], float | None]:
    """A renewal that does not keep its claim alive: a handler that is gone without a word must not hold its key."""
    reference = weakref.ref(claim)

    def run() -> float | None:
        living = reference()
        return None if living is None else living.renew()

    return run
