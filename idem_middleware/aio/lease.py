"""The lease of a caller on an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from idem_middleware import transitions
from idem_middleware.aio.concurrency import Recordings, in_cipher_thread
from idem_middleware.blocking.lease import Lease
from idem_middleware.claims import MAX_ROUNDS, BaseLease, Claim, busy
from idem_middleware.decisions import Adopt, Execute, Replay, Step
from idem_middleware.errors import LeaseLost, StoreUnavailable
from idem_middleware.events import EventKind
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import answer_of, omitted_problem
from idem_middleware.problems import Problem
from idem_middleware.records import OmittedResponse, Record
from idem_middleware.sealing import (
    Rejected,
    open_chunks,
    open_response,
    opens_at_once,
    prepare_to_seal,
    seals_at_once,
)
from idem_middleware.settling import Plan, Recorded, Settled, Superseded, Unrecorded
from idem_middleware.stores.base import AsyncStore
from idem_middleware.transacting import Commit, commit_checkpoint, commit_completion, out_of_rounds
from idem_middleware.transactions import DEFAULT_CHECKPOINT, Item, checkpoint_of

__all__ = ["AsyncLease", "fetch"]


class AsyncLease(BaseLease):
    """The right to run one piece of work, until it is settled.

    A cancellation does not stop what is being recorded: it comes out, and the write goes on.
    """

    def __init__(self, claim: Claim, store: AsyncStore, recordings: Recordings) -> None:
        super().__init__(claim)
        self._store = store
        self._recordings = recordings

    @property
    def blocking(self) -> Lease:
        """The same lease, for code of the request that runs on a thread."""
        return Lease(self._claim)

    async def settle(self, response: Response, *, from_view: bool = True) -> Settled:
        """As `Lease.settle`."""
        if self.settled:
            return Recorded()
        return await self._seal_and_carry_out(lambda: self._plan_answer(response, from_view=from_view))

    async def settle_exception(self) -> Settled:
        """As `Lease.settle_exception`."""
        return Recorded() if self.settled else await self._carry_out(self._plan_exception())

    async def complete(self, response: Response) -> Settled:
        """As `Lease.complete`."""
        return await self._seal_and_carry_out(lambda: self._plan_completion(response))

    async def omit(self, location: str | None = None) -> Settled:
        """As `Lease.omit`."""
        if self.settled:
            return Recorded()
        return await self._seal_and_carry_out(lambda: self._plan_omission(location))

    async def fail(self) -> Settled:
        """As `Lease.fail`."""
        return await self._carry_out(self._plan_failure())

    async def save_checkpoint(self, checkpoint: bytes | str) -> None:
        """As `Lease.save_checkpoint`."""
        await self._recordings.shielded(self._save(checkpoint_of(checkpoint)), cancelled=_nothing)

    async def transact(self, items: Iterable[Item], *, checkpoint: bytes | str = DEFAULT_CHECKPOINT) -> None:
        """As `Lease.transact`."""
        commit = commit_checkpoint(self._claim, items, checkpoint)
        await self._recordings.shielded(self._transact(commit), cancelled=_nothing)

    async def complete_with(self, items: Iterable[Item], response: Any) -> Recorded:
        """As `Lease.complete_with`."""
        claim = self._claim
        answer = self._response(response)
        if not seals_at_once(self._options):
            await in_cipher_thread(prepare_to_seal, self._options)
        plan = self._plan_completion(answer)
        commit = commit_completion(claim, items, plan, answer)
        self._decide()
        return await self._recordings.shielded(self._complete_with(commit, plan), cancelled=claim.undecide)

    async def _save(self, data: bytes) -> None:
        claim, store = self._claim, self._store
        async with claim.lock.held_async():
            claim.require_open()
            deadline = store.clock.monotonic() + store.deadline_seconds
            step = await swap(claim, store, lambda old, _: transitions.checkpointed(old, data), deadline)
            claim.checkpointed(step)

    async def _transact(self, commit: Commit) -> None:
        claim = self._claim
        async with claim.lock.held_async():
            claim.require_open()
            await self._commit(commit)
        claim.tell(EventKind.TRANSACTED)

    async def _complete_with(self, commit: Commit, plan: Plan) -> Recorded:
        claim, store = self._claim, self._store
        try:
            async with claim.lock.held_async():
                if plan.chunks:
                    made = plan.make(claim.record, store.clock.now())
                    await store.put_chunks(made, plan.chunks, claim.deadline(plan))
                await self._commit(commit)
                claim.written(plan)
        except BaseException:
            claim.undecide()
            raise
        return Recorded()

    async def _commit(self, commit: Commit) -> None:
        """Call it under the lock."""
        store = self._store
        deadline = store.clock.monotonic() + store.deadline_seconds
        for _ in range(MAX_ROUNDS):
            proposal = commit.propose()
            if proposal is None or commit.answered(proposal, await store.transact(*proposal, deadline)):
                return
        raise out_of_rounds()

    async def _seal_and_carry_out(self, make: Callable[[], Plan]) -> Settled:
        """What `make` plans may be sealed, for which some ciphers ask a service: not on the event loop."""
        if seals_at_once(self._options):
            return await self._carry_out(make())
        self._decide()
        work = self._record_when_ready(make)
        return await self._recordings.shielded(work, cancelled=lambda: self._claim.interrupted(make()))

    async def _carry_out(self, plan: Plan) -> Settled:
        self._decide()
        if not getattr(self._store, "waits", True):  # no task for what is done within one step of the loop
            return await self._record(plan)
        return await self._recordings.shielded(self._record(plan), cancelled=lambda: self._claim.interrupted(plan))

    def _decide(self) -> None:
        if not self._claim.decide():
            raise LeaseLost("this lease is settled already")

    async def _record_when_ready(self, make: Callable[[], Plan]) -> Settled:
        await in_cipher_thread(prepare_to_seal, self._options)
        return await self._record(make())

    async def _record(self, plan: Plan) -> Settled:
        claim = self._claim
        try:
            async with claim.lock.held_async():
                try:
                    step = await carry_out(claim, self._store, plan)
                except StoreUnavailable as error:
                    smaller = claim.not_written(plan, error)
                    if smaller is None:
                        return Unrecorded()
                    plan = smaller
                    try:
                        step = await carry_out(claim, self._store, plan)
                    except StoreUnavailable as again:
                        claim.not_written(plan, again)
                        return Unrecorded()
                if isinstance(step, Execute):
                    claim.written(plan)
                    return Recorded()
                claim.lost(plan)
        except BaseException:
            claim.interrupted(plan)  # the loop goes down; the upkeep's threads finish it
            raise
        return await self._superseded(step)

    async def _superseded(self, step: Step) -> Superseded:
        if not isinstance(step, Replay) or self._options.mode != "enforce":
            return Superseded()
        try:
            answer = await fetch(self._store, step.record, self._options)
        except StoreUnavailable:
            return Superseded()
        return self._superseded_by(answer)


async def carry_out(claim: Claim, store: AsyncStore, plan: Plan) -> Step:
    """Chunks first, then the record that makes them visible. Call it under the lock."""
    deadline = claim.deadline(plan)
    if plan.chunks:
        await store.put_chunks(plan.make(claim.record, store.clock.now()), plan.chunks, deadline)
    return await swap(claim, store, plan.make, deadline)


async def swap(claim: Claim, store: AsyncStore, make: Callable[[Record, float], Record], deadline: float) -> Step:
    """As the blocking one of `claims`."""
    for _ in range(MAX_ROUNDS):
        new = make(claim.record, store.clock.now())
        step = claim.judge(new, await store.swap(claim.record, new, deadline))
        if not isinstance(step, Adopt):
            return step
    return busy()


def _nothing() -> None:
    """What a cut-off write is about is found out by the next one."""


async def fetch(store: AsyncStore, record: Record, options: Options) -> Response | Problem | Rejected:
    """As the blocking `fetch`."""
    if opens_at_once(record, (), options):
        kept = open_response(record, options)
    else:
        kept = await in_cipher_thread(open_response, record, options)
    if isinstance(kept, Rejected):
        return kept
    if isinstance(kept, OmittedResponse):
        return omitted_problem(kept)
    if kept.chunks is None:
        return answer_of(kept, (), options)
    deadline = store.clock.monotonic() + store.deadline_seconds
    chunks = await store.get_chunks(record, kept.chunks.count, deadline)
    if opens_at_once(record, chunks, options):
        return answer_of(kept, open_chunks(chunks, record, options), options)
    return answer_of(kept, await in_cipher_thread(open_chunks, chunks, record, options), options)
