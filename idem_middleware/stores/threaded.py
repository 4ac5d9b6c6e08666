"""A store that may block, for callers on an event loop: its calls run in threads of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

from idem_middleware.records import Record
from idem_middleware.stores.base import Cancelled, Found, Gone, Store, Written
from idem_middleware.stores.faces import Face
from idem_middleware.stores.threads import Threads
from idem_middleware.transactions import Transaction

__all__ = ["ThreadedStore"]

P = ParamSpec("P")
T = TypeVar("T")


class ThreadedStore(Face[Store]):
    """Calls the store in threads of its own, as `Threads` says. One object serves many event loops.

    A call holds its thread as long as it tries, with all pauses: a store that can be driven step by step needs none.
    """

    def __init__(self, store: Store, *, max_workers: int = 64) -> None:
        super().__init__(store)
        self._threads = Threads(max_workers)

    def __repr__(self) -> str:
        return f"ThreadedStore({self._store!r})"

    async def create(self, new: Record, deadline: float) -> Written | Found:
        """As `Store.create`."""
        return await self._in_thread(self._store.create, new, deadline)

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `Store.swap`."""
        return await self._in_thread(self._store.swap, old, new, deadline)

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `Store.load`."""
        return await self._in_thread(self._store.load, pk, deadline)

    async def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """As `Store.transact`."""
        return await self._in_thread(self._store.transact, old, new, transaction, deadline)

    async def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `Store.put_chunks`."""
        await self._in_thread(self._store.put_chunks, owner, chunks, deadline)

    async def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `Store.get_chunks`."""
        return await self._in_thread(self._store.get_chunks, owner, count, deadline)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._threads.run(partial(function, *args, **kwargs))
