"""What a store is: a compare-and-swap register, and a place for bodies that don't fit into it.

No store knows what a lease, an answer or a fingerprint is; all meaning is in `decisions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from idem_middleware.clock import Clock
from idem_middleware.errors import ConfigurationError
from idem_middleware.records import Record
from idem_middleware.transactions import CancellationReason, Transaction

__all__ = ["ITEM_TOO_LARGE", "AsyncStore", "Cancelled", "Found", "Gone", "Store", "Written", "no_transactions"]

ITEM_TOO_LARGE = "ItemTooLarge"
"""The code of a `StoreUnavailable` that no retry can mend: the record does not fit into the store."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write was applied."""


@dataclass(frozen=True, slots=True)
class Found:
    """The write was not applied (or none was asked for): this stands there."""

    record: Record


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing stands there."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nothing of a transaction was applied, and not on account of the record: one reason for each action."""

    reasons: tuple[CancellationReason, ...]


WRITTEN = Written()
GONE = Gone()


def no_transactions(store: object) -> ConfigurationError:
    """What to raise where a transaction is asked of a store that has none."""
    what = "lease.transact, lease.complete_with and claim_items need DynamoDBStore"
    return ConfigurationError([f"{type(store).__name__} has no transactions: {what}"])


class Store(Protocol):
    """The calls of every store, for callers that may block. All are safe under threads.

    `deadline` is an instant of `clock.monotonic()`; a store tries again until then, then raises.

    Raises:
        StoreUnavailable: no answer in time. A write may or may not have been applied.
        StoreFull: (create only) a bounded store has no room.
    """

    @property
    def clock(self) -> Clock:
        """The clock that its records are judged by."""
        ...

    @property
    def deadline_seconds(self) -> float:
        """How long one decision may try to reach the store."""
        ...

    @property
    def inline_bytes(self) -> int | None:
        """How large an answer may be inside a record; None: any size."""
        ...

    def create(self, new: Record, deadline: float) -> Written | Found:
        """Put, if nothing stands under `new.pk`."""
        ...

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """Write `new` if version, owner and status are still those of `old`."""
        ...

    def load(self, pk: str, deadline: float) -> Found | Gone:
        """Read, strongly consistent."""
        ...

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """Write the pieces of a body; they belong to the attempt that `owner` is a record of."""
        ...

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """Read them again, in order, strongly consistent; None where one is missing."""
        ...

    @property
    def is_transactional(self) -> bool:
        """Whether other items can be written together with a record."""
        ...

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """Swap (or create, where `old` is None), and carry out the actions, or do neither.

        Where both the record and an action stand against it, the record is told. The same transaction under the same
        token is carried out once, however often it is sent.

        Raises:
            TransactionInvalid: it is over a limit, or not well-formed; it was not sent, or not taken.
            ConfigurationError: this store has no transactions.
        """
        ...

    def twin(self) -> Store:
        """The same records over connections of its own, which the callers of this one can't use up."""
        ...

    def to_async(self) -> AsyncStore:
        """The same records for callers on an event loop."""
        ...


class AsyncStore(Protocol):
    """The calls of a store, for callers that must not block."""

    @property
    def clock(self) -> Clock:
        """The clock that its records are judged by."""
        ...

    @property
    def deadline_seconds(self) -> float:
        """How long one decision may try to reach the store."""
        ...

    @property
    def inline_bytes(self) -> int | None:
        """How large an answer may be inside a record; None: any size."""
        ...

    async def create(self, new: Record, deadline: float) -> Written | Found:
        """As `Store.create`."""
        ...

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `Store.swap`."""
        ...

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `Store.load`."""
        ...

    async def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """As `Store.transact`."""
        ...

    async def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `Store.put_chunks`."""
        ...

    async def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `Store.get_chunks`."""
        ...
