"""Erasing what is kept under a key, before its retention is over: for a person's right to that.

Nothing is deleted but the answer. That the work was done stays known until the retention is over, so that a retry does
not run it again; what remains is digests, states and times.
"""

from __future__ import annotations

from enum import StrEnum

from idem_middleware import transitions
from idem_middleware.records import SCHEMA_VERSION, OmittedResponse, Record, Status
from idem_middleware.stores.base import Found, Store, Written

__all__ = ["Erasure", "erase"]

_MOST_ROUNDS = 16
_FIRST_LOOK = 8  # pieces: most bodies have one, and 8 MiB have 24
_MOST_PIECES = 10_000


class Erasure(StrEnum):
    """What came of it."""

    ERASED = "erased"
    NOTHING_KEPT = "nothing-kept"
    """Nothing stands under this key, or no answer does."""
    IN_PROGRESS = "in-progress"
    """It is running: erase it again when it has ended."""
    UNREADABLE = "unreadable"
    """What stands there was written by a newer version, or is damaged: an operator has to delete the item."""


def erase(store: Store, pk: str) -> Erasure:
    """Erase the answer in the record `pk`, its pieces included. `Engine.erase` finds the record of a key.

    An answer is gone for readers first, then for the table. Called again, it finishes what was interrupted.

    Raises:
        StoreUnavailable: perhaps not erased; call it again.
    """
    for _ in range(_MOST_ROUNDS):
        deadline = store.clock.monotonic() + store.deadline_seconds
        found = store.load(pk, deadline)
        if not isinstance(found, Found):
            return Erasure.NOTHING_KEPT
        record = found.record
        if record.schema != SCHEMA_VERSION:
            return Erasure.UNREADABLE
        if record.status is Status.PENDING and store.clock.now() < record.expires_at + store.clock.margin_seconds:
            return Erasure.IN_PROGRESS
        if record.status is not Status.COMPLETED:
            return Erasure.NOTHING_KEPT
        had_answer = not isinstance(record.response, OmittedResponse) or record.response.location is not None
        if had_answer and not isinstance(store.swap(record, transitions.erased(record), deadline), Written):
            continue
        pieces = _pieces(store, record)
        if pieces:
            give_up_at = store.clock.monotonic() + store.deadline_seconds * (1 + pieces / 10)
            store.put_chunks(record, [b""] * pieces, give_up_at)
        return Erasure.ERASED if had_answer or pieces else Erasure.NOTHING_KEPT
    return Erasure.IN_PROGRESS


def _pieces(store: Store, record: Record) -> int:
    """How many pieces of a body lie beside the record with anything in them: looked up, since a cipher hides it."""
    if store.inline_bytes is None:
        return 0  # bodies of any size are inside the record
    count = _FIRST_LOOK
    while True:
        deadline = store.clock.monotonic() + store.deadline_seconds
        pieces = store.get_chunks(record, count, deadline)
        there = next((number for number, piece in enumerate(pieces) if piece is None), count)
        if there < count or count >= _MOST_PIECES:
            return there if any(pieces[:there]) else 0
        count = min(2 * count, _MOST_PIECES)
