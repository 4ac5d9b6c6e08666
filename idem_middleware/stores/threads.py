"""Threads for calls that block, of callers on event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import TypeVar

from idem_middleware.errors import ConfigurationError, StoreUnavailable
from idem_middleware.stores.forks import reset_in_children

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """Runs calls with the caller's context variables. Belongs to no event loop: one object serves many.

    The threads are its own, so that an application which fills the loop's default executor can't keep the store
    waiting. A cancelled call goes on in its thread to its end, even one that has not begun: a write is never half
    given up.
    """

    def __init__(self, max_workers: int) -> None:
        if max_workers < 1:
            raise ConfigurationError([f"max_workers must be 1 or more, not {max_workers!r}"])
        self._max_workers = max_workers
        self._lock = Lock()
        self._executor: ThreadPoolExecutor | None = None
        reset_in_children(self)

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result."""
        return await _finished(self._begin(call))

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        """Forget the threads of the parent, which did not come along."""
        self._lock = Lock()
        self._executor = None

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
