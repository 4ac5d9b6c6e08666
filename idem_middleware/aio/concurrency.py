"""All that is particular to asyncio, in one place, so that another library for events could stand here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from idem_middleware.stores.forks import reset_in_children

__all__ = ["Recordings", "Signal", "in_cipher_thread", "in_thread", "of_thread", "pause", "within"]

P = ParamSpec("P")
T = TypeVar("T")


class Signal:
    """Wakes one coroutine; set from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        with suppress(RuntimeError):  # that loop is closed, and nobody waits there any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Until it is set or the time is over; the next wait is for another set."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


async def pause(signal: Signal, seconds: float) -> None:
    """The default way to wait."""
    await signal.wait(seconds)


class Recordings:
    """Writes that must go on although whoever asked for them is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def shielded(self, work: Coroutine[Any, Any, T], *, cancelled: Callable[[], None]) -> T:
        """The result; a cancellation comes out, and the work goes on.

        `cancelled` is called if the work itself won't go on, or has never begun, because the loop goes down.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        task.add_done_callback(lambda done: cancelled() if done.cancelled() else None)
        try:
            return await asyncio.shield(task)
        except GeneratorExit:  # the loop stopped without a word, perhaps before the work began
            cancelled()
            raise

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: whoever was cancelled won't ask

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait for what runs on this loop; False if some has not ended in time."""
        loop = asyncio.get_running_loop()
        mine = {task for task in self._tasks if task.get_loop() is loop}
        if not mine:
            return True
        _, pending = await asyncio.wait(mine, timeout=timeout_seconds)
        return not pending


async def in_thread(function: Callable[[float], bool], timeout_seconds: float) -> bool:
    """A blocking wait, off the loop, on a thread of its own since all others may be busy."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="idempotency-drain")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, function, timeout_seconds)
    finally:
        thread.shutdown(wait=False)


_CIPHER_THREADS = 4


class _CipherThreads:
    """Where ciphers wait for their service; made on first use, and anew in a forked child."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        reset_in_children(self)

    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_CIPHER_THREADS, thread_name_prefix="idempotency-cipher")
        return self._pool

    def after_fork(self) -> None:  # pragma: no cover - runs in children, where nothing is measured
        self._pool = None


_cipher_threads = _CipherThreads()


async def in_cipher_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Off the loop, for what asks a key service now and then."""
    return await asyncio.get_running_loop().run_in_executor(_cipher_threads.pool(), partial(function, *args, **kwargs))


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The result, if it comes in time; else the work is cancelled.

    Raises:
        TimeoutError: it did not, or raised this itself.
    """
    async with asyncio.timeout(seconds):
        return await work


async def of_thread(future: Future[T]) -> T:
    """The result of what runs in a thread. A cancellation does not reach it."""
    return await asyncio.wrap_future(future)
