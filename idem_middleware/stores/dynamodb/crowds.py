"""How many of one process may try to claim one key at once, so that a hot key does not take what the others need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from threading import Lock

from idem_middleware.stores.forks import reset_in_children

__all__ = ["MOST_AT_ONCE", "MOST_IN_TROUBLE", "Crowds", "Entry"]

MOST_AT_ONCE = 16
"""With answers after 5 ms these make 3,000 claims a second of one key, which is more than one partition takes."""

MOST_IN_TROUBLE = 2
"""While a key is throttled, or not answered: one that tries again, and one that finds out earlier that it is over."""


class Entry(Enum):
    """What somebody hears who wants to claim a key."""

    IN = "go on; call `leave` at the end"
    WAIT = "many are at it, and are being answered: look again soon"
    TURNED_AWAY = "whoever is at it already is not answered: come again later"


@dataclass(slots=True)
class _Crowd:
    inside: int = 0
    trouble: str | None = None


class Crowds:
    """Who is at which key. Safe under threads; a key that nobody is at takes no memory."""

    def __init__(self) -> None:
        self.after_fork()
        reset_in_children(self)

    def after_fork(self) -> None:
        """Whoever was inside, stayed with the parent."""
        self._lock = Lock()
        self._crowds: dict[str, _Crowd] = {}

    def enter(self, pk: str) -> Entry:
        """Ask to claim a key."""
        with self._lock:
            crowd = self._crowds.setdefault(pk, _Crowd())
            if crowd.trouble is not None and crowd.inside >= MOST_IN_TROUBLE:
                return Entry.TURNED_AWAY
            if crowd.inside >= MOST_AT_ONCE:
                return Entry.WAIT
            crowd.inside += 1
            return Entry.IN

    def leave(self, pk: str) -> None:
        """The claim is decided, or given up."""
        with self._lock:
            crowd = self._crowds[pk]
            crowd.inside -= 1
            if not crowd.inside:
                del self._crowds[pk]

    def trouble(self, pk: str) -> str | None:
        """The error code that the key's last call ended with; None if it was answered."""
        crowd = self._crowds.get(pk)
        return None if crowd is None else crowd.trouble

    def note(self, pk: str | None, trouble: str | None) -> None:
        """How a call for this key ended: with an error code, or with an answer."""
        crowd = None if pk is None else self._crowds.get(pk)
        if crowd is not None:
            crowd.trouble = trouble
