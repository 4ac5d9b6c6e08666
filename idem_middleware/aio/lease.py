"""The lease of a caller on an event loop."""

from __future__ import annotations

from idem_middleware.aio.concurrency import Recordings
from idem_middleware.blocking.lease import Lease
from idem_middleware.bodies import most_bytes, unpack
from idem_middleware.claims import MAX_ROUNDS, BaseLease, Claim, busy, judge
from idem_middleware.decisions import Adopt, Execute, Replay, Step
from idem_middleware.errors import LeaseLost, StoreUnavailable
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import marked
from idem_middleware.records import KeptResponse, Record
from idem_middleware.settling import Plan, Recorded, Settled, Superseded, Unrecorded
from idem_middleware.stores.base import AsyncStore

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
        return Recorded() if self.settled else await self._carry_out(self._plan_answer(response, from_view=from_view))

    async def settle_exception(self) -> Settled:
        """As `Lease.settle_exception`."""
        return Recorded() if self.settled else await self._carry_out(self._plan_exception())

    async def complete(self, response: Response) -> Settled:
        """As `Lease.complete`."""
        return await self._carry_out(self._plan_completion(response))

    async def omit(self, location: str | None = None) -> Settled:
        """As `Lease.omit`."""
        return Recorded() if self.settled else await self._carry_out(self._plan_omission(location))

    async def fail(self) -> Settled:
        """As `Lease.fail`."""
        return await self._carry_out(self._plan_failure())

    async def _carry_out(self, plan: Plan) -> Settled:
        claim = self._claim
        if not claim.decide():
            raise LeaseLost("this lease is settled already")
        return await self._recordings.shielded(self._record(plan), cancelled=lambda: claim.interrupted(plan))

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
            response = await fetch(self._store, step.record, step.response, self._options)
        except StoreUnavailable:
            return Superseded()
        return Superseded(None if response is None else marked(response, self._options))


async def carry_out(claim: Claim, store: AsyncStore, plan: Plan) -> Step:
    """Chunks first, then the record that makes them visible. Call it under the lock."""
    deadline = claim.deadline(plan)
    if plan.chunks:
        await store.put_chunks(plan.make(claim.record, store.clock.now()), plan.chunks, deadline)
    for _ in range(MAX_ROUNDS):
        new = plan.make(claim.record, store.clock.now())
        step = judge(claim.attempt, new, await store.swap(claim.record, new, deadline), store.clock.now())
        if isinstance(step, Execute | Adopt):
            claim.record = step.record
        if not isinstance(step, Adopt):
            return step
    return busy()


async def fetch(store: AsyncStore, record: Record, kept: KeptResponse, options: Options) -> Response | None:
    """As the blocking `fetch`."""
    if kept.chunks is None:
        return unpack(kept, max_bytes=most_bytes(options))
    deadline = store.clock.monotonic() + store.deadline_seconds
    chunks = await store.get_chunks(record, kept.chunks.count, deadline)
    return unpack(kept, chunks, max_bytes=most_bytes(options))
