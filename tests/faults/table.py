"""What comes of every fault, as it was decided that it should; the tests compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.faults.scenes import FAULTS, Outcome, Scene

__all__ = ["TABLE", "expected"]

ONCE, LASTING = False, True
EVERY = tuple(FAULTS)


class _Row(NamedTuple):
    """The faults at one call that come to the same."""

    kind: str
    call: str
    lasting: bool
    faults: Sequence[str]
    outcome: Outcome


_APPLIED = ("reply lost", "delayed beyond the time-out", "500, applied", "malformed answer", "half an answer")
_NOT_APPLIED = ("request lost", "500", "503", "throttled", "connection reset", "unreachable")

_RAN = Outcome("201", 1, "COMPLETED, attempt 1", "201 replayed", 1)
_RAN_AGAIN = Outcome("201", 1, "COMPLETED, attempt 2", "201 replayed", 1)
_WRITTEN = Outcome("201", 1, "COMPLETED, attempt 1, written", "201 replayed", 1)
_REPLAYED = Outcome("201 replayed", 0, "COMPLETED, attempt 1", "201 replayed", 0)
_NOT_NOW = "503 store-unavailable"

_ROWS = (
    _Row("new", "claim", ONCE, EVERY, _RAN),
    _Row("new", "claim", LASTING, _APPLIED, Outcome(_NOT_NOW, 0, "FAILED, attempt 1", "201", 1)),
    _Row("new", "claim", LASTING, _NOT_APPLIED, Outcome(_NOT_NOW, 0, "none", "201", 1)),
    _Row("new", "completion", ONCE, EVERY, _RAN),
    _Row("new", "completion", LASTING, EVERY, _RAN),
    _Row("replay", "claim", ONCE, EVERY, _REPLAYED),
    _Row("replay", "claim", LASTING, EVERY, Outcome(_NOT_NOW, 0, "COMPLETED, attempt 1", "201 replayed", 0)),
    _Row("takeover", "claim", ONCE, EVERY, _RAN_AGAIN),
    _Row("takeover", "claim", LASTING, EVERY, Outcome(_NOT_NOW, 0, "PENDING, attempt 1", "201", 1)),
    _Row("takeover", "takeover", ONCE, EVERY, _RAN_AGAIN),
    _Row("takeover", "takeover", LASTING, _APPLIED, Outcome(_NOT_NOW, 0, "FAILED, attempt 1", "201", 1)),
    _Row("takeover", "takeover", LASTING, _NOT_APPLIED, Outcome(_NOT_NOW, 0, "PENDING, attempt 1", "201", 1)),
    _Row("takeover", "completion", ONCE, EVERY, _RAN_AGAIN),
    _Row("takeover", "completion", LASTING, EVERY, _RAN_AGAIN),
    _Row("transaction", "claim", ONCE, EVERY, _WRITTEN),
    _Row("transaction", "claim", LASTING, _APPLIED, Outcome(_NOT_NOW, 0, "FAILED, attempt 1, not written", "201", 1)),
    _Row("transaction", "claim", LASTING, _NOT_APPLIED, Outcome(_NOT_NOW, 0, "none, not written", "201", 1)),
    _Row("transaction", "transaction", ONCE, EVERY, _WRITTEN),
    _Row("transaction", "transaction", LASTING, _APPLIED, Outcome("500", 1, "FAILED, attempt 1, written", "201", 2)),
    _Row(
        "transaction",
        "transaction",
        LASTING,
        _NOT_APPLIED,
        Outcome("500", 1, "FAILED, attempt 1, not written", "201", 2),
    ),
    _Row("transaction", "completion", ONCE, EVERY, _WRITTEN),
    _Row("transaction", "completion", LASTING, EVERY, _WRITTEN),
    _Row("large body", "claim", ONCE, EVERY, _RAN),
    _Row("large body", "claim", LASTING, _APPLIED, Outcome(_NOT_NOW, 0, "FAILED, attempt 1", "201", 1)),
    _Row("large body", "claim", LASTING, _NOT_APPLIED, Outcome(_NOT_NOW, 0, "none", "201", 1)),
    _Row("large body", "piece of the body", ONCE, EVERY, _RAN),
    _Row("large body", "piece of the body", LASTING, EVERY, _RAN),
    _Row("large body", "completion", ONCE, EVERY, _RAN),
    _Row("large body", "completion", LASTING, EVERY, _RAN),
    _Row("replay of a large body", "claim", ONCE, EVERY, _REPLAYED),
    _Row(
        "replay of a large body",
        "claim",
        LASTING,
        EVERY,
        Outcome(_NOT_NOW, 0, "COMPLETED, attempt 1", "201 replayed", 0),
    ),
    _Row("replay of a large body", "reading the body", ONCE, EVERY, _REPLAYED),
    _Row(
        "replay of a large body",
        "reading the body",
        LASTING,
        EVERY,
        Outcome(_NOT_NOW, 0, "COMPLETED, attempt 1", "201 replayed", 0),
    ),
)

TABLE: dict[Scene, Outcome] = {
    Scene(row.kind, row.call, fault, row.lasting): row.outcome
    for row in _ROWS
    for fault in row.faults
    if row.lasting or fault != "unreachable"
}
"""Every scene, and its outcome over the lean transport."""

# botocore does not look at what came with the news that a write was done.
_UNREAD_BY_BOTO3 = {
    ("new", "claim"): _RAN,
    ("large body", "claim"): _RAN,
    ("takeover", "takeover"): _RAN_AGAIN,
    ("transaction", "claim"): _WRITTEN,
    ("transaction", "transaction"): _WRITTEN,
}


def expected(scene: Scene, driver: str) -> Outcome:
    """The outcome over this driver."""
    unread = _UNREAD_BY_BOTO3.get((scene.kind, scene.call))
    if driver.endswith("boto3") and unread is not None and scene.fault in ("malformed answer", "half an answer"):
        return unread
    return TABLE[scene]
