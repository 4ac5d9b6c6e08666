"""What must not be shared with a child process: connections, threads, locks that a vanished thread holds."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "LateLock", "reset_in_children"]


class Forkable(Protocol):
    """An object with parts that a child process has to make anew."""

    def after_fork(self) -> None:
        """Forget those parts. Called in the child while only one thread runs; must take no lock."""


_forkables: WeakSet[Forkable] = WeakSet()


def reset_in_children(target: Forkable) -> None:
    """Have `target.after_fork()` called in every child that this process forks, for as long as `target` lives."""
    _forkables.add(target)


def _after_fork() -> None:  # pragma: no cover - runs in children, where nothing is measured
    for target in list(_forkables):
        target.after_fork()


# Once for the module: what is registered there can't be taken back.
if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has none
    os.register_at_fork(after_in_child=_after_fork)


class LateLock:
    """A lock that is made when it is first held.

    For locks that are held during I/O. A preloading gunicorn forks before gevent patches the child: a lock made at the
    fork would be a native one, with which a green thread that waits stops them all, its holder too.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[None, threading.Lock] = {}

    def __enter__(self) -> None:
        # setdefault is atomic, so that two threads which come first get the same one.
        lock = self._made.get(None) or self._made.setdefault(None, threading.Lock())
        lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made[None].release()
