"""The least event loop that the asynchronous driver runs on: it does one thing after the other, when it is told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from typing import Any, cast

from tests.exploration.scheduler import Arrive, Interrupt, Process, Shutdown

__all__ = ["Spawner", "SteppedLoop"]


class SteppedLoop:
    """Runs on one thread of a process of the scheduler."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._woken = threading.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Until this has ended, and all that it began; an interrupt cancels it, a shutdown everything."""
        asyncio._set_running_loop(self._as_loop)
        try:
            task = self.create_task(main)
            while self._tasks:
                try:
                    self._turn()
                except Shutdown:
                    for each in self._tasks:
                        each.cancel()
                except Interrupt:
                    task.cancel()
            task.result()
        finally:
            for left in self._tasks:  # the process dies: in good order, so that Python has nothing to complain of
                with suppress(BaseException):
                    cast("Coroutine[Any, Any, Any]", left.get_coro()).close()
            asyncio._set_running_loop(None)

    def _turn(self) -> None:
        if not self._ready:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            self._process.pause(self._woken, self._timers[0][0] - self.time() if self._timers else None)
            self._woken.clear()
        while self._timers and self._timers[0][0] <= self.time():
            self._ready.append(heapq.heappop(self._timers)[2])
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    @property
    def _as_loop(self) -> asyncio.AbstractEventLoop:
        """What it is to asyncio: what of a loop is missing here, the product does not use."""
        return cast("asyncio.AbstractEventLoop", self)

    def time(self) -> float:
        return self._process.time

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = self.call_soon(callback, *args, context=context)
        self._woken.set()
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._as_loop, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: a cancelled one is dropped when its time has come."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self._as_loop, **options)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody asks what became of the tasks of a process that died."""


class Spawner:
    """Stands where the product has an executor: each job is a thread of the scheduler's."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def submit(self, function: Callable[..., object], *args: Any) -> Future[None]:
        """Begin this in a thread of its own."""
        self._process.spawn(lambda: function(*args), Arrive())
        return cast("Future[None]", None)
