"""A lock that threads and event loops can hold in turn, and that blocks no loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

__all__ = ["OperationLock"]


class OperationLock:
    """Serialises what is written under one lease: its owner may be a coroutine while the renewer is a thread.

    Passed on in order of arrival, from holder to waiter, so that nobody can slip in between.
    """

    __slots__ = ("_held", "_mutex", "_waiters")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiters: deque[Callable[[], bool]] = deque()

    def held(self) -> _Held:
        """Hold it on a thread that may block."""
        return _Held(self)

    def held_async(self) -> _HeldAsync:
        """Hold it in a coroutine; waiting for it leaves the loop free."""
        return _HeldAsync(self)

    @contextmanager
    def held_if_free(self) -> Iterator[bool]:
        """Hold it if nobody does; gives whether."""
        with self._mutex:
            free, self._held = not self._held, True
        try:
            yield free
        finally:
            if free:
                self._pass_on()

    def _take(self) -> bool:
        with self._mutex:
            free, self._held = not self._held, True
        return free

    def _wait(self) -> None:
        woken = threading.Event()

        def wake() -> bool:
            woken.set()
            return True

        if not self._take_or_queue(wake):
            try:
                woken.wait()
            except BaseException:  # a signal, or a time-out of green threads
                self._give_up(wake)
                raise

    async def _wait_async(self) -> None:
        import asyncio  # noqa: PLC0415 - only where there are event loops

        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()

        def take_turn() -> None:
            if not turn.done():
                turn.set_result(None)

        def wake() -> bool:
            try:
                loop.call_soon_threadsafe(take_turn)
            except RuntimeError:  # that loop is closed
                return False
            return True

        if not self._take_or_queue(wake):
            try:
                await turn
            except BaseException:
                self._give_up(wake)
                raise

    def _take_or_queue(self, wake: Callable[[], bool]) -> bool:
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            self._waiters.append(wake)
            return False

    def _give_up(self, wake: Callable[[], bool]) -> None:
        """Wait no longer; if the lock was passed on to this waiter already, it goes to the next."""
        with self._mutex:
            if wake in self._waiters:
                self._waiters.remove(wake)
                return
        self._pass_on()

    def _pass_on(self) -> None:
        with self._mutex:
            while self._waiters:
                # Within the mutex: who is no longer queued holds the lock, whether or not it has noticed yet.
                if self._waiters.popleft()():
                    return
            self._held = False


class _Held:
    """One holding of a lock, by a thread. Nearly every lock is free, and a generator would cost more than taking it."""

    __slots__ = ("_lock",)

    def __init__(self, lock: OperationLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock._take():  # noqa: SLF001 - two halves of one thing
            self._lock._wait()  # noqa: SLF001

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock._pass_on()  # noqa: SLF001


class _HeldAsync:
    """The same, by a coroutine."""

    __slots__ = ("_lock",)

    def __init__(self, lock: OperationLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        if not self._lock._take():  # noqa: SLF001
            await self._lock._wait_async()  # noqa: SLF001

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock._pass_on()  # noqa: SLF001
