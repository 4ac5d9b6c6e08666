"""What must not be shared with a child process: connections, threads, locks that a vanished thread holds."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Forkable", "reset_in_children"]


class Forkable(Protocol):
    """An object with parts that a child process has to make anew."""

    def after_fork(self) -> None:
        """Forget those parts. Called in the child while only one thread runs; must take no lock."""


_forkables: WeakSet[Forkable] = WeakSet()


def reset_in_children(target: Forkable) -> None:
    """Have `target.after_fork()` called in every child that this process forks, for as long as `target` lives."""
    _forkables.add(target)


def _after_fork() -> None:
    for target in list(_forkables):
        target.after_fork()


# Once for the module: what is registered there can't be taken back.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
