"""Which keys are free by now: found in O(log n) each, however many there are, and forgotten in O(1)."""

from __future__ import annotations

import heapq
from math import floor

__all__ = ["ExpiryIndex"]

_SLOTS_PER_SECOND = 16
"""A slot is looked through when its time comes: as many keys as end within a sixteenth of a second."""

_SPARE = 64  # how many numbers of slots that are gone may be left in the heap at any rate


class ExpiryIndex:
    """Keys in slots of time, and a heap of the slots' numbers. A key that is discarded leaves nothing behind.

    Nor does its slot, once it is empty: a dictionary keeps the room of all that was ever in it, and with answers kept
    for a day a slot would stay for as long.
    """

    __slots__ = ("_order", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, float]] = {}
        self._order: list[int] = []  # every slot's number at least once, and numbers of slots that are gone

    def add(self, pk: str, ends_at: float) -> None:
        """The key is free from `ends_at` on."""
        number = _slot(ends_at)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            self._note(number)
        slot[pk] = ends_at

    def discard(self, pk: str, ends_at: float) -> None:
        """It is not, after all."""
        number = _slot(ends_at)
        slot = self._slots.get(number)
        if slot is not None:
            slot.pop(pk, None)
            if not slot:
                del self._slots[number]

    def pop_ended(self, now: float) -> str | None:
        """A key that is free by now, or None; each is given once."""
        while self._order and self._order[0] <= _slot(now):
            number = self._order[0]
            for pk, ends_at in self._slots.get(number, {}).items():
                if ends_at <= now:
                    self.discard(pk, ends_at)
                    return pk
            if number in self._slots:
                return None  # the slot of this moment: what is left in it ends later
            heapq.heappop(self._order)
        return None

    def _note(self, number: int) -> None:
        heapq.heappush(self._order, number)
        if len(self._order) > 2 * len(self._slots) + _SPARE:
            self._order = sorted(self._slots)


def _slot(instant: float) -> int:
    return floor(instant * _SLOTS_PER_SECOND)
