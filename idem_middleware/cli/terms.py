"""Durations and sizes, as people say them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["ago", "duration", "instant", "size"]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNIT_BYTES = 1024


def instant(at: float) -> str:
    """A time of day in UTC, to the second."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError):  # "for ever"
        return "never"


def duration(seconds: float) -> str:
    """In its two largest units."""
    if abs(seconds) < 1:
        return f"{abs(seconds):.2g} s"
    whole = round(abs(seconds))
    for unit, name, smaller, small_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name} {rest} {small_name}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def ago(at: float, now: float) -> str:
    """An instant seen from now."""
    return f"{duration(now - at)} ago" if at <= now else f"in {duration(at - now)}"


def size(size_bytes: float) -> str:
    """In the largest unit that leaves a number above one."""
    for unit in ("B", "KB", "MB"):
        if size_bytes < _UNIT_BYTES:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= _UNIT_BYTES
    return f"{size_bytes:.1f} GB"
