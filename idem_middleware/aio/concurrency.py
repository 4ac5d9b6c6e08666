"""All that is particular to asyncio, in one place, so that another library for events could stand here."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
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
        self._is_set = False
        self._turn: asyncio.Future[None] | None = None

    def set(self) -> bool:
        """Wake it; False if its loop is closed, so that nobody waits there any more."""
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return False
        return True

    async def wait(self, seconds: float) -> None:
        """Until it is set or the time is over; the next wait is for another set."""
        if not self._is_set:
            self._turn = self._loop.create_future()
            alarms = _alarms_of(self._loop)
            alarms.ring(self._turn, self._loop.time() + seconds)
            try:
                await self._turn
            finally:
                alarms.over()
        self.take()

    def take(self) -> bool:
        """Whether it is set; from now on it is not."""
        was_set, self._is_set = self._is_set, False
        return was_set

    def _wake(self) -> None:
        self._is_set = True
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


_SWEEP_FROM = 64  # how many ends may be kept before those are dropped that nobody waits for any more


class _Alarms:
    """When the waits on one loop are over, under one timer: a thousand who wait for one request are no thousand."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ends: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._rings_at = math.inf  # kept here: what other loops than asyncio's give for a timer need not tell it
        self._waiting = 0
        self._sweep_at = _SWEEP_FROM

    def ring(self, turn: asyncio.Future[None], at: float) -> None:
        """Let this go on at that time of the loop, if nothing else has by then."""
        self._waiting += 1
        if len(self._ends) >= self._sweep_at:
            self._ends = [end for end in self._ends if not end[2].done()]
            heapq.heapify(self._ends)
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._ends))
        heapq.heappush(self._ends, (at, next(self._order), turn))
        self._set_timer()

    def over(self) -> None:
        """One waits no more. Where nobody does, nothing is left behind."""
        self._waiting -= 1
        if self._waiting == 0:
            self._ends.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _set_timer(self) -> None:
        first = self._ends[0][0]
        if self._timer is not None:
            if self._rings_at <= first:
                return
            self._timer.cancel()
        self._rings_at = first
        self._timer = self.loop.call_at(first, self._rung)

    def _rung(self) -> None:
        self._timer = None
        # Loops may ring a little early, by the resolution of their clocks (uvloop: a millisecond's half).
        now = max(self.loop.time(), self._rings_at)
        while self._ends and (self._ends[0][2].done() or self._ends[0][0] <= now):
            turn = heapq.heappop(self._ends)[2]
            if not turn.done():
                turn.set_result(None)
        if self._ends:
            self._set_timer()


_in_this_thread = threading.local()


def _alarms_of(loop: asyncio.AbstractEventLoop) -> _Alarms:
    """Those of the loop that runs on this thread. Where two take turns on it, each gets new ones now and then.

    They are held by who waits and by their timer alone: a thread keeps nothing of a loop that is closed.
    """
    known: weakref.ref[_Alarms] | None = getattr(_in_this_thread, "alarms", None)
    alarms = None if known is None else known()
    if alarms is None or alarms.loop is not loop:
        alarms = _Alarms(loop)
        _in_this_thread.alarms = weakref.ref(alarms)
    return alarms


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
