"""A store that can fail, a clock that is moved by hand, and an engine on them, for the tests of adapters."""

from __future__ import annotations

from typing import Any

from idem_middleware import Engine, Event, EventKind, MemoryStore, Options
from idem_middleware.records import Record
from idem_middleware.runtime import Runtime
from idem_middleware.stores.base import Found, Store
from idem_middleware.testing import FaultyStore, ManualClock
from idem_middleware.upkeep import Upkeep

__all__ = ["World"]


class World:
    """One process. Nothing happens in the background but by `pass_by`."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.clock = ManualClock(margin_seconds=2.0)
        self.memory: Store = MemoryStore(clock=self.clock) if store is None else store
        self.store = FaultyStore(self.memory)
        self.upkeep = Upkeep(monotonic=self.clock.monotonic, threads=False)
        self.events: list[Event] = []
        self.options = Options(**options)
        self.runtime = Runtime(self.store, self.options, upkeep=self.upkeep, log=self.events.append)
        self.engine = Engine(self.store, self.options, runtime=self.runtime)

    @property
    def kinds(self) -> list[str]:
        """The kinds of all events."""
        return [event.kind.value for event in self.events]

    @property
    def calls(self) -> list[str]:
        """What the store was asked."""
        return [call.operation for call in self.store.calls]

    @property
    def record(self) -> Record:
        """What stands under the key that was used last."""
        found = self.memory.load(self.store.calls[-1].pk, 0)
        assert isinstance(found, Found)
        return found.record

    def told(self, kind: EventKind) -> list[Event]:
        """All events of one kind."""
        return [event for event in self.events if event.kind is kind]

    def pass_by(self, seconds: float) -> None:
        """Let time pass, and the background work be done in it."""
        self.upkeep.run_due()
        while seconds > 0:
            self.clock.advance(min(1.0, seconds))
            seconds -= 1.0
            self.upkeep.run_due()
