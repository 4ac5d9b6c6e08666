"""A store in this process: for tests, demos and single-process services. Lost with the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from idem_middleware.bodies import record_bytes
from idem_middleware.clock import Clock, SystemClock
from idem_middleware.errors import ConfigurationError, StoreFull
from idem_middleware.records import Record, Status
from idem_middleware.stores.base import GONE, WRITTEN, AsyncStore, Cancelled, Found, Gone, Written, no_transactions
from idem_middleware.stores.expiry import ExpiryIndex
from idem_middleware.transactions import Transaction

__all__ = ["MemoryStore"]

_COLLECTED_PER_CLAIM = 2


class MemoryStore:
    """Records in a dictionary, bounded in number and in bytes. Safe under threads and tasks.

    Where it is full, records whose key is free go first, then completed ones, the oldest first; a live claim, or a
    failed attempt's count, never does. If nothing can go, a new claim is refused.
    """

    deadline_seconds = 3.0
    inline_bytes = None
    is_transactional = False  # whatever else is to be written is not in this dictionary

    def __init__(
        self, *, max_entries: int = 100_000, max_bytes: int = 256 * 1024 * 1024, clock: Clock | None = None
    ) -> None:
        wrong = [
            f"{name} must be 1 or more, not {value!r}"
            for name, value in (("max_entries", max_entries), ("max_bytes", max_bytes))
            if value < 1
        ]
        if wrong:
            raise ConfigurationError(wrong)
        self.clock: Clock = SystemClock() if clock is None else clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._records: dict[str, Record] = {}
        self._bytes = 0
        self._ends = ExpiryIndex()
        # Keys of completed records, oldest first. A plain dict finds its first key by walking over all that are gone.
        self._completed: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """What its records are reckoned to take."""
        return self._bytes

    def create(self, new: Record, deadline: float) -> Written | Found:
        with self._lock:
            found = self._records.get(new.pk)
            if found is not None:
                return Found(found)
            self._make_room(record_bytes(new), self.clock.now())
            self._put(new)
            return WRITTEN

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        with self._lock:
            found = self._records.get(old.pk)
            if found is None:
                return GONE
            if (found.version, found.owner, found.status) != (old.version, old.owner, old.status):
                return Found(found)
            self._remove(found)
            self._put(new)  # never refused: an answer that is done must be recorded, so the bounds are soft here
            self._evict()
            return WRITTEN

    def load(self, pk: str, deadline: float) -> Found | Gone:
        with self._lock:
            found = self._records.get(pk)
        return GONE if found is None else Found(found)

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        raise no_transactions(self)

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        raise AssertionError("a memory store keeps bodies of any size in the record")

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        raise AssertionError("a memory store keeps bodies of any size in the record")

    def twin(self) -> MemoryStore:
        return self

    def to_async(self) -> AsyncStore:
        from idem_middleware.stores.direct import DirectStore  # noqa: PLC0415 - only where there are event loops

        return DirectStore(self)

    # --- under the lock ---

    def _put(self, record: Record) -> None:
        self._records[record.pk] = record
        self._bytes += record_bytes(record)
        self._ends.add(record.pk, record.bound_until)
        if record.status is Status.COMPLETED:
            self._completed[record.pk] = None

    def _remove(self, record: Record) -> None:
        del self._records[record.pk]
        self._bytes -= record_bytes(record)
        self._ends.discard(record.pk, record.bound_until)
        self._completed.pop(record.pk, None)

    def _make_room(self, needed: int, now: float) -> None:
        """Forget two keys that are free for each new one, so that a backlog shrinks; more, if there is no room."""
        collected = 0
        while collected < _COLLECTED_PER_CLAIM or self._is_over(1, needed):
            pk = self._ends.pop_ended(now)
            if pk is None:
                break
            self._remove(self._records[pk])
            collected += 1
        if not self._is_over(1, needed):
            return
        self._evict(entries=1, needed=needed)
        if self._is_over(1, needed):
            raise StoreFull(
                f"the memory store is full ({len(self._records)} records, {self._bytes} bytes), "
                "and none of them may be given up"
            )

    def _is_over(self, entries: int, needed: int) -> bool:
        return len(self._records) + entries > self._max_entries or self._bytes + needed > self._max_bytes

    def _evict(self, *, entries: int = 0, needed: int = 0) -> None:
        """Give up completed records, the oldest first, until the bounds hold."""
        while self._completed and self._is_over(entries, needed):
            self._remove(self._records[next(iter(self._completed))])
