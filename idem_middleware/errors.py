"""Everything that this package raises.

IdempotencyError
├── ConfigurationError        wrong options or store URL; carries all problems found
├── StoreUnavailable          the store did not answer in time; the write may have happened
│   ├── StoreCrowded          too many of this process ask for one key; nothing was sent
│   └── StoreMisconfigured    no such table, wrong key schema, no permission: an operator must act
├── StoreFull                 a bounded store has no room left for another claim
├── LeaseLost                 another attempt owns the key now
├── TransactionRefused        a condition of the user's own did not hold; nothing was written
├── TransactionInvalid        it never could be carried out; nothing was written
└── RequestRefused            `run_once` was refused; carries the problem
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idem_middleware.problems import Problem
    from idem_middleware.transactions import CancellationReason

__all__ = [
    "ConfigurationError",
    "IdempotencyError",
    "LeaseLost",
    "RequestRefused",
    "StoreCrowded",
    "StoreFull",
    "StoreMisconfigured",
    "StoreUnavailable",
    "TransactionInvalid",
    "TransactionRefused",
]


class IdempotencyError(Exception):
    """Root of all errors of this package."""


class ConfigurationError(IdempotencyError):
    """The configuration is wrong; `problems` holds one sentence for each thing that is."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class StoreUnavailable(IdempotencyError):
    """The store gave no answer within its deadline: the write may or may not have happened.

    `code` is DynamoDB's error code, or the name of the transport error.
    """

    def __init__(self, message: str, *, code: str | None = None) -> None:
        self.code = code
        super().__init__(message)


class StoreCrowded(StoreUnavailable):
    """Too many requests of this process ask for one key, which is not answered. Nothing was sent for this one."""


class StoreMisconfigured(StoreUnavailable):
    """The store answered that it can't work like this; the message says what an operator has to do.

    `tried_before`: an earlier try of the same write ended otherwise, and may have been applied.
    """

    tried_before = False


class StoreFull(IdempotencyError):
    """A store with bounded memory holds only live claims; it refuses a new one."""


class LeaseLost(IdempotencyError):
    """The claim belongs to another attempt, or is over; nothing can be written under it any more."""


class TransactionRefused(IdempotencyError):
    """A condition of the transaction's own did not hold, or a collection of items is full. Nothing was written.

    `index` is the first action that stood against it, `reason` why, `old_item` what stands there (in the low-level
    format, where DynamoDB told it), and `reasons` what is known of every action. The lease is as it was.
    """

    def __init__(self, reasons: Sequence[CancellationReason], index: int) -> None:
        self.reasons = tuple(reasons)
        self.index = index
        self.reason = self.reasons[index].code
        self.old_item: Mapping[str, Any] | None = self.reasons[index].item
        super().__init__(f"the transaction was refused for its action {index}: {self.reason.value}")


class TransactionInvalid(IdempotencyError):
    """The transaction can't be carried out like this. Nothing was written; the lease is as it was.

    `index` is the action that is wrong; None where it is all of them together, or not known which.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        self.index = index
        super().__init__(message)


class RequestRefused(IdempotencyError):
    """The work was not run; `problem` says why and whether to try again."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)
