"""One try to get a lease, on an event loop: carries out what `decide` says until it says something final."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

from idem_middleware.aio.concurrency import Recordings, Signal, in_cipher_thread, of_thread, pause, within
from idem_middleware.aio.lease import AsyncLease, fetch
from idem_middleware.claims import MAX_ROUNDS, Claim, busy, judge, tell_begin, undo_later
from idem_middleware.decisions import Adopt, Attempt, Create, Execute, Probe, Refuse, Replay, Step, Swap, Wait, decide
from idem_middleware.errors import StoreFull, StoreUnavailable, TransactionRefused
from idem_middleware.events import EventKind
from idem_middleware.joining import Joint, abandoned, after_probing, claim_refused, found_done, meanwhile
from idem_middleware.outcomes import (
    Refused,
    Replayed,
    Unprotected,
    certain,
    refusal,
    refused_by_store,
    replayed,
    well_timed,
)
from idem_middleware.probes import Admission, answer_of, failure_of, probe_in_thread
from idem_middleware.probing import UNKNOWN, Abandoned, Done, Probed
from idem_middleware.records import Record, Status
from idem_middleware.runtime import Runtime
from idem_middleware.sealing import prepare_to_seal, seals_at_once
from idem_middleware.stores.base import AsyncStore, Cancelled, Found, Gone, Written
from idem_middleware.transacting import refused
from idem_middleware.transactions import Transaction
from idem_middleware.waiting import Crowded, Ticket, poll_pause

__all__ = ["AsyncAcquisition"]


class AsyncAcquisition:
    """Used once, by one coroutine."""

    def __init__(self, runtime: Runtime, store: AsyncStore, recordings: Recordings, attempt: Attempt) -> None:
        self._runtime = runtime
        self._recordings = recordings
        self._attempt = attempt
        self._store = store
        self._clock = store.clock
        self._deadline = self._clock.monotonic() + store.deadline_seconds
        self._patient_until = self._clock.monotonic() + attempt.patience_seconds
        self._waiter: _Waiter | None = None
        self._joint = None if attempt.options.claim_items is None else Joint(runtime, attempt)
        self._known = False  # that the work runs, or was done

    async def run(self) -> AsyncLease | Replayed | Refused | Unprotected:
        """The lease, or what the client gets instead."""
        try:
            return await self._drive()
        except TransactionRefused as error:
            return claim_refused(self._runtime, self._attempt, error)
        except (StoreUnavailable, StoreFull) as error:
            return refused_by_store(self._runtime, self._attempt, error, known=self._known)
        finally:
            if self._waiter is not None:
                self._waiter.leave()

    async def _drive(self) -> AsyncLease | Replayed | Refused | Unprotected:
        step = self._first_step()
        before: Record | None = None
        for _ in range(MAX_ROUNDS):
            match step:
                case Create():
                    step = await self._write(step)
                case Swap(old, _):
                    before = old if old.owner != self._attempt.owner else before
                    step = await self._write(step)
                case Wait():
                    self._known = True
                    step = await self._wait(step)
                case Probe(record):
                    step = await self._probe(record)
                case Execute(record) | Adopt(record) if record.status is Status.COMPLETED:  # found done by the prober
                    step = decide(replace(self._attempt, owner=""), record, self._clock.now())
                case Execute(record) | Adopt(record):
                    claim = Claim(self._runtime, self._attempt, record)
                    tell_begin(claim, before)
                    return AsyncLease(claim, self._store, self._recordings)
                case Replay(record, _):
                    self._known = True
                    answer = await fetch(self._store, record, self._attempt.options)
                    return replayed(self._runtime, self._attempt, record, answer)
                case Refuse(problem):
                    return refusal(self._runtime, self._attempt.options, problem, self._attempt)
                case _:
                    assert_never(step)
        return refusal(self._runtime, self._attempt.options, busy().problem, self._attempt)

    def _first_step(self) -> Step:
        """Write, or wait with those of this process who wait already: the store said why to one of them."""
        if self._attempt.patience_seconds > 0:
            record = self._runtime.flights.waited_for(self._attempt.pk)
            if record is not None:
                step = self._decide(record)
                if isinstance(step, Wait):
                    return step
        return self._decide(None)

    def _decide(self, found: Record | None) -> Step:
        if self._attempt.patience_seconds > 0:
            left = max(0.0, self._patient_until - self._clock.monotonic())
            self._attempt = replace(self._attempt, patience_seconds=left)
        return decide(self._attempt, found, self._clock.now())

    async def _write(self, step: Create | Swap) -> Step:
        transaction: Transaction | None = None
        if self._joint is not None and self._joint.is_wanted(step):
            step, transaction = await self._joined(self._joint, step)
        offset = self._clock.offset_seconds
        old = None if isinstance(step, Create) else step.old
        try:
            if transaction is not None:
                result: Written | Found | Gone | Cancelled = await self._store.transact(
                    old, step.new, transaction, self._deadline
                )
            elif old is None:
                result = await self._store.create(step.new, self._deadline)
            else:
                result = await self._store.swap(old, step.new, self._deadline)
        except BaseException as error:  # a cancellation, too: what was asked for may be written all the same
            if not certain(error):
                undo_later(self._runtime, self._attempt.after(step.new), old)
            raise
        if isinstance(result, Cancelled):
            raise refused(result)
        judged = judge(self._attempt, step.new, result, self._clock.now())
        return well_timed(self._attempt, judged, self._clock, offset)

    async def _joined(self, joint: Joint, step: Create | Swap) -> tuple[Create | Swap, Transaction | None]:
        if not joint.is_known:
            items = joint.ask()
            joint.answered(await items if inspect.isawaitable(items) else items)
        return joint.joined(step)

    async def _probe(self, found: Record) -> Step:
        probes, prober = self._runtime.probes, self._attempt.options.prober
        admission = probes.begin(found.pk)
        if admission is Admission.BUSY:
            return meanwhile(self._attempt, found)
        answer: Probed = UNKNOWN
        if admission is Admission.ASK and prober is not None:
            try:
                answer = await self._ask(prober, found)
            finally:
                probes.end(found.pk, answer)
        self._attempt = after_probing(self._runtime, self._attempt, found, answer)
        self._deadline = self._clock.monotonic() + self._store.deadline_seconds
        if not isinstance(answer, Done):
            return self._decide(found)
        self._known = True
        if not seals_at_once(self._attempt.options):
            await in_cipher_thread(prepare_to_seal, self._attempt.options)
        finding = found_done(self._runtime.store, self._attempt, found, answer.response)
        if finding.chunks:
            await self._store.put_chunks(finding.swap.new, finding.chunks, self._deadline)
        swap = finding.swap
        result = await self._store.swap(swap.old, swap.new, self._deadline)
        return judge(self._attempt, swap.new, result, self._clock.now())

    async def _ask(self, prober: Callable[[Abandoned], Any], found: Record) -> Probed:
        seconds = self._attempt.options.prober_seconds
        told = abandoned(self._attempt, found)
        try:
            if inspect.iscoroutinefunction(prober):
                try:
                    return answer_of(await within(seconds, prober(told)))
                finally:
                    self._runtime.probes.finished()
            future = probe_in_thread(prober, told, self._runtime.probes.finished)
            return answer_of(await within(seconds, of_thread(future)))
        except TimeoutError as error:
            return failure_of(error, timed_out=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing is known
            return failure_of(error, timed_out=False)

    async def _wait(self, wait: Wait) -> Step:
        if self._waiter is None:
            try:
                self._waiter = _Waiter(self._runtime, self._store, self._attempt)
            except Crowded:
                return self._turned_away(wait.record)
            self._runtime.flights.note(wait.record)
        step: Step = wait
        while isinstance(step, Wait):
            seen = await self._waiter.look(step.seconds)
            if isinstance(seen, Gone):
                step = self._decide(None)
            else:
                step = self._decide(step.record if seen is None else seen.record)
        self._deadline = self._clock.monotonic() + self._store.deadline_seconds
        return step

    def _turned_away(self, found: Record) -> Step:
        """Too many wait already: what this request gets is what it gets where nobody may wait."""
        self._runtime.tell(EventKind.CROWDED, self._attempt)
        self._attempt = replace(self._attempt, patience_seconds=0.0)
        return self._decide(found)


class _Waiter:
    """A coroutine's place in the flight for its key."""

    def __init__(self, runtime: Runtime, store: AsyncStore, attempt: Attempt) -> None:
        self._runtime = runtime
        self._store = store
        self._attempt = attempt
        self._signal = Signal()
        self._ticket: Ticket = runtime.flights.board(attempt.pk, self._signal.set, attempt.options)
        self._began_at = store.clock.monotonic()

    async def look(self, seconds: float) -> Found | Gone | None:
        """What stands under the key when there is something new to see; None if `seconds` passed without."""
        runtime, store, ticket = self._runtime, self._store, self._ticket
        give_up_at = store.clock.monotonic() + seconds
        while (seen := ticket.take()) is None:
            left = give_up_at - store.clock.monotonic()
            if left <= 0:
                return None
            if not runtime.flights.pilots(ticket):
                await pause(self._signal, left)
                continue
            await pause(self._signal, min(left, poll_pause(ticket.polls, runtime.chance())))
            ticket.polls += 1
            seen = await store.load(ticket.pk, store.clock.monotonic() + store.deadline_seconds)
            runtime.flights.share(ticket, seen)
            return seen
        return seen

    def leave(self) -> None:
        """Look no more."""
        self._runtime.flights.leave(self._ticket)
        waited = self._store.clock.monotonic() - self._began_at
        self._runtime.tell(EventKind.WAITED, self._attempt, seconds=waited)
