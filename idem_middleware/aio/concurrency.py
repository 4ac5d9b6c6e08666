"""All that is particular to asyncio, in one place, so that another library for events could stand here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["Recordings", "Signal", "pause"]

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
