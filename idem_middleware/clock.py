"""What time it is: the only module that reads a clock.

DynamoDB has no clock in its conditions, so leases are judged by ours, corrected by the `Date` header of
every answer: https://www.rfc-editor.org/rfc/rfc9110#name-date. Its resolution is one second, so one answer tells
the offset up to one second plus the round trip; the intersection over many answers tells it better.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate
from threading import Lock
from typing import Protocol

__all__ = ["Clock", "CorrectedClock", "SystemClock"]

SKEW_MARGIN_SECONDS = 2.0
"""How long after its end another worker's lease is still respected: covers 1 s of `Date` plus a slow round trip."""

_IMF_FIXDATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")


class Clock(Protocol):
    """Unix seconds, and seconds that never jump."""

    @property
    def margin_seconds(self) -> float:
        """By how much the clocks of two workers may differ, so that a lease is never ended early."""
        ...

    @property
    def offset_seconds(self) -> float:
        """What is added to the machine's own clock at the moment."""
        ...

    def now(self) -> float:
        """The instant, in unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, for deadlines."""
        ...


class SystemClock:
    """The machine's own clock, for a store that lives in this process alone."""

    margin_seconds = 0.0
    offset_seconds = 0.0

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class CorrectedClock:
    """The machine's clock, brought to the store's by the `Date` of its answers. Safe under threads."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        margin_seconds: float = SKEW_MARGIN_SECONDS,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = Lock()
        self._low = float("-inf")
        self._high = float("inf")
        self._seen: tuple[str, float | None] = ("", None)
        self.margin_seconds = margin_seconds
        self.offset_seconds = 0.0

    def now(self) -> float:
        return self._wall() + self.offset_seconds

    def monotonic(self) -> float:
        return self._monotonic()

    def local_now(self) -> float:
        """The machine's own clock, uncorrected: what `observe` wants to know of the sending."""
        return self._wall()

    def observe(self, date: str | None, sent_at: float) -> None:
        """Learn from one answer that has arrived, to a request that was sent at `sent_at` by `local_now`.

        A stall on the way only widens what is possible: the answer was made between `sent_at` and now.
        """
        received_at = self._wall()
        server_at = None if date is None else self._parsed(date)
        if server_at is None:
            return
        low = server_at - received_at
        high = server_at + 1.0 - sent_at
        with self._lock:
            if low > self._high or high < self._low:  # the machine's clock was set meanwhile
                self._low, self._high = low, high
            else:
                self._low, self._high = max(low, self._low), min(high, self._high)
            # A clock that no answer contradicts is left alone; any other is moved to the middle of what is possible.
            self.offset_seconds = 0.0 if self._low <= 0.0 <= self._high else (self._low + self._high) / 2

    def _parsed(self, date: str) -> float | None:
        """Unix seconds of an IMF-fixdate (RFC 9110 §5.6.7), None for anything else; most answers repeat the last."""
        seen, at = self._seen
        if date != seen:
            at = _instant(date)
            self._seen = (date, at)
        return at


def _instant(date: str) -> float | None:
    if not _IMF_FIXDATE.fullmatch(date):
        return None
    parts = parsedate(date)  # not strptime, which reads the names in the process's own language
    try:
        return None if parts is None else datetime(*parts[:6], tzinfo=UTC).timestamp()
    except ValueError:
        return None
