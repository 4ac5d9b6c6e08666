"""The lease of a caller that may block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from idem_middleware import transitions
from idem_middleware.claims import MAX_ROUNDS, BaseLease, carry_out, swap
from idem_middleware.decisions import Execute, Replay, Step
from idem_middleware.errors import LeaseLost, StoreUnavailable
from idem_middleware.events import EventKind
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import answer_of, omitted_problem
from idem_middleware.problems import Problem
from idem_middleware.records import OmittedResponse, Record
from idem_middleware.sealing import Rejected, open_chunks, open_response
from idem_middleware.settling import Plan, Recorded, Settled, Superseded, Unrecorded
from idem_middleware.stores.base import Store
from idem_middleware.transacting import Commit, commit_checkpoint, commit_completion, out_of_rounds
from idem_middleware.transactions import DEFAULT_CHECKPOINT, Item, checkpoint_of

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

    def save_checkpoint(self, checkpoint: bytes | str) -> None:
        """Leave 1 to 1024 bytes to the next attempt, should this one crash or fail: one write.

        Raises:
            LeaseLost: the key is another attempt's now.
            StoreUnavailable: it may have been saved.
        """
        claim, store = self._claim, self._claim.runtime.store
        data = checkpoint_of(checkpoint)
        with claim.lock.held():
            claim.require_open()
            deadline = store.clock.monotonic() + store.deadline_seconds
            step = swap(claim, store, lambda old, _: transitions.checkpointed(old, data), deadline)
            claim.checkpointed(step)

    def transact(self, items: Iterable[Item], *, checkpoint: bytes | str = DEFAULT_CHECKPOINT) -> None:
        """Carry out these actions in one transaction, if the key is still this attempt's; else none of them.

        `items` are boto3's `TransactItems`, or `Put`, `Update`, `Delete`, `Check` of `idem_middleware.transactions`.
        The checkpoint (1 to 1024 bytes) is written with them: an attempt that finds one in `lease.checkpoint` knows
        that they are done.

        Raises:
            LeaseLost: the key is another attempt's now; nothing was written.
            TransactionRefused: one of the actions' conditions did not hold; nothing was written.
            TransactionInvalid: it is over a limit, or not well-formed; nothing was written.
            StoreUnavailable: conflicts, throttling or no answer until the deadline. It may have been written; calling
                this again with the same arguments finds out, and writes nothing twice.
            ConfigurationError: the store has no transactions.
        """
        claim = self._claim
        commit = commit_checkpoint(claim, items, checkpoint)
        with claim.lock.held():
            claim.require_open()
            self._commit(commit)
        claim.tell(EventKind.TRANSACTED)

    def complete_with(self, items: Iterable[Item], response: Any) -> Recorded:
        """Carry out these actions and keep this answer, whatever its status, in one transaction.

        `response` is an `idem_middleware.Response` or the framework's own, which the handler then returns.

        Raises:
            As `transact`; then the lease is not settled by this call.
        """
        claim, store = self._claim, self._claim.runtime.store
        answer = self._response(response)
        plan = self._plan_completion(answer)
        commit = commit_completion(claim, items, plan, answer)
        if not claim.decide():
            raise LeaseLost("this lease is settled already")
        try:
            with claim.lock.held():
                if plan.chunks:
                    store.put_chunks(plan.make(claim.record, store.clock.now()), plan.chunks, claim.deadline(plan))
                self._commit(commit)
                claim.written(plan)
        except BaseException:
            claim.undecide()
            raise
        return Recorded()

    def _commit(self, commit: Commit) -> None:
        """Call it under the lock."""
        store = self._claim.runtime.store
        deadline = store.clock.monotonic() + store.deadline_seconds
        for _ in range(MAX_ROUNDS):
            proposal = commit.propose()
            if proposal is None or commit.answered(proposal, store.transact(*proposal, deadline)):
                return
        raise out_of_rounds()

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
            answer = fetch(store, step.record, self._options)
        except StoreUnavailable:
            return Superseded()
        return self._superseded_by(answer)


def fetch(store: Store, record: Record, options: Options) -> Response | Problem | Rejected:
    """The stored answer, wherever its body lies.

    Raises:
        StoreUnavailable: its chunks can't be read now, or the cipher can't tell.
    """
    kept = open_response(record, options)
    if isinstance(kept, Rejected):
        return kept
    if isinstance(kept, OmittedResponse):
        return omitted_problem(kept)
    if kept.chunks is None:
        return answer_of(kept, (), options)
    deadline = store.clock.monotonic() + store.deadline_seconds
    chunks = store.get_chunks(record, kept.chunks.count, deadline)
    return answer_of(kept, open_chunks(chunks, record, options), options)
