"""A lock for state that the garbage collector may want to change, from within whatever holds the lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

__all__ = ["DeferringLock"]


class DeferringLock:
    """`with lock:` as ever; `lock.do(work)` for work that has no result and may come from anywhere.

    A coroutine whose loop is gone ends where the collector finds it: at any allocation, also at one within `with lock:`
    on the same thread, which can wait for itself no more than it can go on in the middle of another change. So what
    may end a coroutine's stay goes by `do`: it is done at once where the lock is free, else by its holder, at the end.
    """

    __slots__ = ("_deferred", "_mutex")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._deferred: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._mutex.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._mutex.release()
        if self._deferred:
            self._work_off()

    def do(self, work: Callable[[], None]) -> None:
        """Do this under the lock: now, or as soon as its holder lets go. It must not take this lock, nor raise."""
        self._deferred.append(work)
        self._work_off()

    def _work_off(self) -> None:
        # Whoever fails to take it leaves its work to the holder, who looks once more after it has let go.
        while self._deferred and self._mutex.acquire(blocking=False):
            try:
                while self._deferred:
                    self._deferred.popleft()()
            finally:
                self._mutex.release()
