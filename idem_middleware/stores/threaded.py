"""A store that may block, for callers on an event loop: its calls run in threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import ParamSpec, TypeVar

from idem_middleware.clock import Clock
from idem_middleware.errors import ConfigurationError, StoreUnavailable
from idem_middleware.records import Record
from idem_middleware.stores.base import Cancelled, Found, Gone, Store, Written
from idem_middleware.stores.forks import reset_in_children
from idem_middleware.transactions import Transaction

__all__ = ["ThreadedStore"]

P = ParamSpec("P")
T = TypeVar("T")


class ThreadedStore:
    """Calls the store in a thread, with the caller's context variables.

    It belongs to no event loop: one object serves many, at once or one after the other. The threads are its own, so
    that an application which fills the loop's default executor can't keep the store waiting. A cancelled call goes on
    in its thread to its end, even one that has not begun: a write is never half given up.
    """

    def __init__(self, store: Store, *, max_workers: int = 64) -> None:
        if max_workers < 1:
            raise ConfigurationError([f"max_workers must be 1 or more, not {max_workers!r}"])
        self._store = store
        self._max_workers = max_workers
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        reset_in_children(self)

    def __repr__(self) -> str:
        return f"ThreadedStore({self._store!r})"

    @property
    def clock(self) -> Clock:
        """The clock that its records are judged by."""
        return self._store.clock

    @property
    def deadline_seconds(self) -> float:
        """How long one decision may try to reach the store."""
        return self._store.deadline_seconds

    @property
    def inline_bytes(self) -> int | None:
        """How large an answer may be inside a record; None: any size."""
        return self._store.inline_bytes

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

    def after_fork(self) -> None:
        """Forget the threads of the parent, which did not come along."""
        self._lock = Lock()
        self._executor = None

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await _finished(self._begin(partial(function, *args, **kwargs)))

    def _begin(self, call: Callable[[], T]) -> Future[T]:
        """Hand the call to a thread. Its future counts as running from the start, so that no cancellation takes it."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        try:
            self._threads().submit(copy_context().run, _carry_out, call, future)
        except RuntimeError as exc:  # the executor's way to say that the interpreter is going down
            raise StoreUnavailable("the process is shutting down; the store was not called", code="Shutdown") from exc
        return future

    def _threads(self) -> ThreadPoolExecutor:
        executor = self._executor
        if executor is not None:
            return executor
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._max_workers, thread_name_prefix="idem-store")
            return self._executor


async def _finished(future: Future[T]) -> T:
    """Wait on whatever event loop runs. Another loop than asyncio's would get its own line here, and nowhere else."""
    return await asyncio.wrap_future(future)


def _carry_out(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as exc:  # noqa: BLE001  # it belongs to whoever waits for the future
        future.set_exception(exc)
    else:
        future.set_result(result)
