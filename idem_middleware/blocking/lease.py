"""The lease of a caller that may block."""

from __future__ import annotations

from idem_middleware.bodies import most_bytes, unpack
from idem_middleware.claims import BaseLease, carry_out
from idem_middleware.decisions import Execute, Replay, Step
from idem_middleware.errors import LeaseLost, StoreUnavailable
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import marked
from idem_middleware.records import KeptResponse, Record
from idem_middleware.settling import Plan, Recorded, Settled, Superseded, Unrecorded
from idem_middleware.stores.base import Store

__all__ = ["Lease", "fetch"]


class Lease(BaseLease):
    """The right to run one piece of work, until it is settled.

    A handler may settle it itself. What is settled stays so: `settle`, `settle_exception` and `omit` do nothing more.
    """

    def settle(self, response: Response, *, from_view: bool = True) -> Settled:
        """The handler answered. By the rules of the options the answer is kept, or the next try runs again.

        `from_view` is False for what the framework answered before the handler ran.
        """
        return Recorded() if self.settled else self._carry_out(self._plan_answer(response, from_view=from_view))

    def settle_exception(self) -> Settled:
        """The handler raised."""
        return Recorded() if self.settled else self._carry_out(self._plan_exception())

    def complete(self, response: Response) -> Settled:
        """Keep this answer, whatever its status."""
        return self._carry_out(self._plan_completion(response))

    def omit(self, location: str | None = None) -> Settled:
        """The work is done, and its answer can't be kept: too large, or torn by a client that left."""
        return Recorded() if self.settled else self._carry_out(self._plan_omission(location))

    def fail(self) -> Settled:
        """Nothing was done: the next try runs."""
        return self._carry_out(self._plan_failure())

    def _carry_out(self, plan: Plan) -> Settled:
        claim, store = self._claim, self._claim.runtime.store
        if not claim.decide():
            raise LeaseLost("this lease is settled already")
        try:
            with claim.lock.held():
                try:
                    step = carry_out(claim, store, plan)
                except StoreUnavailable as error:
                    smaller = claim.not_written(plan, error)
                    if smaller is None:
                        return Unrecorded()
                    plan = smaller
                    try:
                        step = carry_out(claim, store, plan)
                    except StoreUnavailable as again:
                        claim.not_written(plan, again)
                        return Unrecorded()
                if isinstance(step, Execute):
                    claim.written(plan)
                    return Recorded()
                claim.lost(plan)
        except BaseException:
            claim.interrupted(plan)  # a signal or a time-out, in the middle of it; the upkeep finishes it
            raise
        return self._superseded(store, step)

    def _superseded(self, store: Store, step: Step) -> Superseded:
        if not isinstance(step, Replay) or self._options.mode != "enforce":
            return Superseded()
        try:
            response = fetch(store, step.record, step.response, self._options)
        except StoreUnavailable:
            return Superseded()
        return Superseded(None if response is None else marked(response, self._options))


def fetch(store: Store, record: Record, kept: KeptResponse, options: Options) -> Response | None:
    """The stored answer, wherever its body lies; None if it is damaged.

    Raises:
        StoreUnavailable: its chunks can't be read now.
    """
    if kept.chunks is None:
        return unpack(kept, max_bytes=most_bytes(options))
    deadline = store.clock.monotonic() + store.deadline_seconds
    chunks = store.get_chunks(record, kept.chunks.count, deadline)
    return unpack(kept, chunks, max_bytes=most_bytes(options))
