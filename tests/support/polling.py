"""Waiting for something to become true, with a bound; no test sleeps for a time that it hopes is enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T | None], *, what: str, within_seconds: float = 20, every_seconds: float = 0.02
) -> T:
    """Call `look` until it gives something true, and give that.

    Raises:
        AssertionError: the time is over.

    """
    deadline = time.monotonic() + within_seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_seconds:g} s: {what}")
        time.sleep(every_seconds)
