"""An asynchronous face for a store whose calls never block."""

from __future__ import annotations

from collections.abc import Sequence

from idem_middleware.records import Record
from idem_middleware.stores.base import Cancelled, Found, Gone, Store, Written
from idem_middleware.stores.faces import Face
from idem_middleware.transactions import Transaction

__all__ = ["DirectStore"]


class DirectStore(Face[Store]):
    """Calls the store on the event loop's own thread."""

    waits = False
    """Whether a call may give the loop a turn, so that a cancellation could come in the middle of it."""

    async def create(self, new: Record, deadline: float) -> Written | Found:
        return self._store.create(new, deadline)

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        return self._store.swap(old, new, deadline)

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        return self._store.load(pk, deadline)

    async def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        return self._store.transact(old, new, transaction, deadline)

    async def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        self._store.put_chunks(owner, chunks, deadline)

    async def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        return self._store.get_chunks(owner, count, deadline)
