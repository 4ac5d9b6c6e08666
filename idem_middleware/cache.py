"""Answers that this process has seen recorded: a retry that comes back to it needs no call of the store.

Only completed records are kept here. They say the same until their retention is over, whoever reads them, so the one
decision function judges them as if the store had shown them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from idem_middleware.bodies import record_bytes
from idem_middleware.messages import Response
from idem_middleware.records import KeptResponse, Record, Status

__all__ = ["AnswerCache"]

_MOST_DROPPED = 1024


class AnswerCache:
    """Bounded in bytes; what was used longest ago goes first. Safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Plain dictionaries find their first key by walking over all that are gone.
        self._records: OrderedDict[str, Record] = OrderedDict()  # in the order of their last use
        self._dropped: OrderedDict[str, None] = OrderedDict()  # in the order in which they were
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """What its records are reckoned to take."""
        return self._bytes

    def find(self, pk: str) -> Record | None:
        """The record, which counts as used now."""
        with self._lock:
            record = self._records.get(pk)
            if record is not None:
                self._records.move_to_end(pk)
        return record

    def keep(self, record: Record, max_bytes: int, answer: Response | None = None) -> None:
        """Keep a completed record, if it and its answer fit into `max_bytes`; anything else is not kept.

        `answer` is what was read of a body that lies in chunks.
        """
        kept = record.response
        if record.status is not Status.COMPLETED or not isinstance(kept, KeptResponse):
            return
        if kept.chunks is not None:
            if answer is None:
                return
            whole = KeptResponse(status=answer.status, headers=answer.headers, body=answer.body)
            record = replace(record, response=whole)
        size = record_bytes(record)
        if size > max_bytes:
            return
        with self._lock:
            if record.pk in self._dropped:
                return
            self._remove(record.pk)
            self._records[record.pk] = record
            self._bytes += size
            while self._bytes > max_bytes:
                self._remove(next(iter(self._records)))

    def forget(self, record: Record) -> None:
        """Keep this one no longer; a newer one under its key stays."""
        with self._lock:
            if self._records.get(record.pk) is record:
                self._remove(record.pk)

    def drop(self, pk: str) -> None:
        """Keep nothing of this key: not what a request that runs now has read before, either."""
        with self._lock:
            self._remove(pk)
            self._dropped[pk] = None
            if len(self._dropped) > _MOST_DROPPED:
                del self._dropped[next(iter(self._dropped))]

    def _remove(self, pk: str) -> None:
        record = self._records.pop(pk, None)
        if record is not None:
            self._bytes -= record_bytes(record)
