"""Events of every kind, as they happen."""

from __future__ import annotations

from idem_middleware import Event, EventKind

EVERY_KIND = tuple(
    Event(kind=kind, key_digest="0123456789ab", attempt=2, reason="in-progress", status=409, seconds=0.2)
    for kind in EventKind
)
