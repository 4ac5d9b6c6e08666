"""What every face of a store, for another kind of caller, tells just as the store itself."""

from __future__ import annotations

from typing import Generic, TypeVar

from idem_middleware.clock import Clock
from idem_middleware.stores.base import AsyncStore, Store

__all__ = ["Face"]

S = TypeVar("S", bound=Store | AsyncStore)


class Face(Generic[S]):
    """Stands before a store: has its clock and its limits."""

    def __init__(self, store: S) -> None:
        self._store = store

    @property
    def clock(self) -> Clock:
        """The clock that its records are judged by."""
        return self._store.clock

    @property
    def deadline_seconds(self) -> float:
        """How long one decision may try to reach the store."""
        return self._store.deadline_seconds

    @property
    def inline_bytes(self) -> int | None:
        """How large an answer may be inside a record; None: any size."""
        return self._store.inline_bytes
