"""Records and attempts to test decisions with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from idem_middleware import Options
from idem_middleware.decisions import Attempt
from idem_middleware.records import KeptResponse, Record, Status

NOW = 1_700_000_000.0
KEPT = KeptResponse(status=201, headers=(("content-type", "text/plain"),), body=b"done")

MINE = "owner-mine"
THEIRS = "owner-theirs"


def attempt_of(options: Options | None = None, **changes: Any) -> Attempt:
    """A try by us to do "print" for "caller"."""
    attempt = Attempt(
        pk="pk",
        owner=MINE,
        fingerprint=b"print",
        caller_digest=b"caller",
        options=options or Options(),
        margin_seconds=2.0,
    )
    return replace(attempt, **changes)


def record_of(status: Status = Status.PENDING, **changes: Any) -> Record:
    """Somebody else's record for the same work; one lease of 60 s, one retention of a day."""
    record = Record(
        pk="pk",
        status=status,
        version=3,
        owner=THEIRS,
        attempt=1,
        fingerprint=b"print",
        caller_digest=b"caller",
        created_at=NOW,
        expires_at=NOW + 60,
        bound_until=NOW + 86_400,
        response=KEPT if status is Status.COMPLETED else None,
    )
    if status is Status.COMPLETED:
        record = replace(record, expires_at=NOW + 86_400, bound_until=NOW + 2 * 86_400)
    if status is Status.FAILED:
        record = replace(record, expires_at=NOW + 10)
    return replace(record, **changes)
