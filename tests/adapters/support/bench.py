"""A world whose records are looked at, and a journal of what happens in it, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

from idem_middleware import MemoryStore
from idem_middleware.records import OmittedResponse, Record
from idem_middleware.stores.base import Found, Gone, Store, Written
from tests.adapters.support.worlds import World

__all__ = ["Bench"]

T = TypeVar("T")


class Bench(World):
    """Every write of the store stands in `journal`; so does what others put there, such as a server."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[str] = []
        self.store.store = cast("Store", _Journal(self.memory, self.journal))

    @property
    def records(self) -> list[Record]:
        """All that stands in the store."""
        assert isinstance(self.memory, MemoryStore)
        return list(self.memory._records.values())

    @property
    def states(self) -> list[str]:
        """The state of each record; FREE where its key is good for any request."""
        return [self._state_of(record) for record in self.records]

    @property
    def state(self) -> str:
        """The state of the only record; FREE without one."""
        [state] = self.states or ["FREE"]
        return state

    def take_over(self) -> None:
        """Let another process own the only key, as if the lease had ended."""
        [record] = self.records
        other = replace(record, owner="another", version=record.version + 1, attempt=record.attempt + 1)
        assert self.memory.swap(record, other, 0) == Written()

    def _state_of(self, record: Record) -> str:
        if record.bound_until <= self.clock.now():
            return "FREE"
        return "NOT KEPT" if isinstance(record.response, OmittedResponse) else record.status.name


class _Journal:
    def __init__(self, store: Store, journal: list[str]) -> None:
        self._store = store
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, new: Record, deadline: float) -> Written | Found:
        return self._written(new, self._store.create(new, deadline))

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        return self._written(new, self._store.swap(old, new, deadline))

    def _written(self, new: Record, result: T) -> T:
        if isinstance(result, Written):
            self._journal.append(f"stored {new.status.name}")
        return result
