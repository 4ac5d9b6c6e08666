"""Which keys are free by now: found in O(log n) each, however many there are, and forgotten in O(1)."""

from __future__ import annotations

import heapq
from math import floor

__all__ = ["ExpiryIndex"]

_SLOTS_PER_SECOND = 16
"""A slot is looked through when its time comes: as many keys as end within a sixteenth of a second."""


class ExpiryIndex:
    """Keys in slots of time, and a heap of the slots. A key that is discarded leaves nothing behind but its slot."""

    __slots__ = ("_order", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, float]] = {}
        self._order: list[int] = []

    def add(self, pk: str, ends_at: float) -> None:
        """The key is free from `ends_at` on."""
        number = _slot(ends_at)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            heapq.heappush(self._order, number)
        slot[pk] = ends_at

    def discard(self, pk: str, ends_at: float) -> None:
        """It is not, after all."""
        slot = self._slots.get(_slot(ends_at))
        if slot is not None:
            slot.pop(pk, None)

    def pop_ended(self, now: float) -> str | None:
        """A key that is free by now, or None; each is given once."""
        while self._order and self._order[0] <= _slot(now):
            slot = self._slots[self._order[0]]
            for pk, ends_at in slot.items():
                if ends_at <= now:
                    del slot[pk]
                    return pk
            if slot:
                return None  # the slot of this moment: what is left in it ends later
            del self._slots[heapq.heappop(self._order)]
        return None


def _slot(instant: float) -> int:
    return floor(instant * _SLOTS_PER_SECOND)
