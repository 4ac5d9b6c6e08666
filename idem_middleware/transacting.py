"""What else a lease writes together with its claim: from what to send to what the answer means, without I/O.

Both leases drive it under their lock. A transaction whose reply was lost may still be on its way to the store; it is
either seen there, by the name that it leaves in the record, or the next write of the claim keeps it out for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from idem_middleware import transitions
from idem_middleware.claims import Claim
from idem_middleware.errors import LeaseLost, StoreUnavailable, TransactionInvalid, TransactionRefused
from idem_middleware.messages import Response
from idem_middleware.records import Record, Status
from idem_middleware.settling import Plan
from idem_middleware.stores.base import Cancelled, Found, Gone, Store, Written, no_transactions
from idem_middleware.transactions import CancellationCode, Item, Transaction, actions_of, checkpoint_of

__all__ = [
    "Commit",
    "Proposal",
    "commit_checkpoint",
    "commit_completion",
    "out_of_rounds",
    "refused",
    "require_transactions",
    "token_of",
]


class Proposal(NamedTuple):
    """One call of `Store.transact`, but for its deadline."""

    old: Record | None
    new: Record
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class _Content:
    """What a transaction is about: the same content is carried out once, however often it is asked for."""

    what: object
    actions: tuple[object, ...]


class Commit:
    """One transaction under a lease. Everything but its making is to be called under the lease's lock."""

    def __init__(
        self, claim: Claim, items: Iterable[Item], make: Callable[[Record, float], Record], what: object
    ) -> None:
        """`make` gives the record to write; `what` tells this from other transactions with the same actions.

        Raises:
            ConfigurationError: the store has no transactions.
            TransactionInvalid: not actions.
        """
        require_transactions(claim.runtime.store)
        self._claim = claim
        self._actions = actions_of(items)
        self._make = make
        self._content = _Content(what, self._actions)

    def propose(self) -> Proposal | None:
        """What to send; None if it turns out that it was carried out already.

        Raises:
            LeaseLost: nothing can be written under this lease any more.
        """
        claim = self._claim
        if claim.settled:
            raise LeaseLost("this lease is settled already")
        if self._landed(claim.record):
            return None
        if claim.record.transaction in claim.sent:  # another one's trace, which this one is about to overwrite
            claim.landed.append(claim.sent.pop(claim.record.transaction))
        claim.transactions += 1
        token = token_of(claim.attempt.owner, claim.transactions)
        claim.sent[token] = self._content
        new = self._make(claim.record, claim.runtime.store.clock.now())
        return Proposal(claim.record, replace(new, transaction=token), Transaction(self._actions, token))

    def answered(self, proposal: Proposal, result: Written | Found | Gone | Cancelled) -> bool:
        """Whether it is carried out; if not, propose again.

        Raises:
            LeaseLost: the claim belongs to another attempt.
            TransactionRefused: one of the conditions did not hold.
            TransactionInvalid: one of the actions never can be carried out.
        """
        claim = self._claim
        match result:
            case Written():
                claim.record = proposal.new
                claim.sent.pop(proposal.transaction.token)
                return True
            case Cancelled():
                raise refused(result)
            case Found(record) if record.owner == claim.attempt.owner:
                if record.status is Status.PENDING:  # a renewal, or a transaction, whose reply was lost
                    claim.record = record
                    return self._landed(record)
                if self._landed(record):
                    claim.record = record
                    return True
                claim.judged(record)
                raise LeaseLost("this lease is settled already")
            case Found() | Gone():
                claim.lose()
                raise LeaseLost("another attempt owns the key now; nothing of the transaction was written")
            case _:
                assert_never(result)

    def _landed(self, record: Record) -> bool:
        """Whether the same transaction, sent before with an unknown outcome, is known to have been carried out."""
        claim, token = self._claim, record.transaction
        if self._content in claim.landed:
            claim.landed.remove(self._content)
            return True
        if token is None or claim.sent.get(token) != self._content:
            return False
        claim.sent.pop(token)
        return True


def commit_checkpoint(claim: Claim, items: Iterable[Item], checkpoint: bytes | str) -> Commit:
    """The actions, and a checkpoint that tells of them."""
    data = checkpoint_of(checkpoint)
    return Commit(claim, items, lambda old, _: transitions.checkpointed(old, data), data)


def commit_completion(claim: Claim, items: Iterable[Item], plan: Plan, response: Response) -> Commit:
    """The actions, and the end of the work."""
    return Commit(claim, items, plan.make, response)


def require_transactions(store: Store) -> None:
    """Check that other items can be written together with a record.

    Raises:
        ConfigurationError: they can't.
    """
    if not getattr(store, "is_transactional", False):
        inner: object = getattr(store, "store", store)
        raise no_transactions(inner)


def refused(cancelled: Cancelled) -> TransactionRefused | TransactionInvalid:
    """The error to raise for what stood against a transaction."""
    reasons = cancelled.reasons
    for index, reason in enumerate(reasons):
        if reason.code in (CancellationCode.CONDITION_FAILED, CancellationCode.COLLECTION_TOO_LARGE):
            return TransactionRefused(reasons, index)
    index = next(
        i for i, reason in enumerate(reasons) if not (reason.code.passes or reason.code is CancellationCode.NONE)
    )
    code = reasons[index].code
    return TransactionInvalid(f"DynamoDB does not take action {index} of the transaction: {code.value}", index)


def out_of_rounds() -> StoreUnavailable:
    """So many lost rounds mean that something is wrong with the store."""
    return StoreUnavailable("a transaction met other writes of its own claim again and again", code="Busy")


def token_of(owner: str, number: int) -> str:
    """The name of an attempt's transaction: DynamoDB takes 36 characters."""
    return hashlib.sha256(f"{owner}:{number}".encode()).hexdigest()[:32]
