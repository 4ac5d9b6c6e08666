"""Waiting for somebody else's answer: one flight per key and process.

Of all who wait for one key, one polls the store and shares what it sees; the others sleep until then. When the owner
is in the same process, everybody is told at once.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from idem_middleware.options import Options
from idem_middleware.records import Record
from idem_middleware.reentry import DeferringLock
from idem_middleware.stores.base import Found, Gone

__all__ = ["Crowded", "Flights", "Ticket", "poll_pause"]

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


class Crowded(Exception):
    """So many wait already, for this key or at all, that one more may not."""


def poll_pause(polls: int, chance: float) -> float:
    """Seconds before the next look: doubling, with jitter over the upper half. `chance` is from 0 to 1."""
    pause = min(_FIRST_PAUSE_SECONDS * (1 << min(polls, 10)), _LONGEST_PAUSE_SECONDS)
    return pause * (0.5 + chance / 2)


@dataclass(eq=False, slots=True)
class Ticket:
    """One waiter of a flight. `wake` is called from any thread when there is something to look at.

    It gives False where nobody can wake up any more: the waiter's event loop is closed.
    """

    pk: str
    wake: Callable[[], object]
    on_thread: bool = False
    seen: Found | Gone | None = None
    polls: int = 0

    def take(self) -> Found | Gone | None:
        """What another waiter saw, once."""
        seen, self.seen = self.seen, None
        return seen


@dataclass(slots=True)
class _Flight:
    tickets: OrderedDict[Ticket, None] = field(default_factory=OrderedDict)
    record: Record | None = None
    pilot: Ticket | None = None


class Flights:
    """Who waits for what in this process. Safe under threads; a forked child begins without passengers."""

    def __init__(self) -> None:
        self._forget()
        _instances.add(self)

    def _forget(self) -> None:
        self._lock = DeferringLock()
        self._flights: dict[str, _Flight] = {}
        self._waiters = 0
        self._threads = 0

    def board(
        self, pk: str, wake: Callable[[], object], options: Options | None = None, *, on_thread: bool = False
    ) -> Ticket:
        """Join the flight for a key. `on_thread` says that a thread sleeps meanwhile, of which a server has few.

        Raises:
            Crowded: as many wait already as the options allow.
        """
        ticket = Ticket(pk, wake, on_thread)
        with self._lock:
            flight = self._flights.get(pk)
            if options is not None and self._is_crowded(flight, options, on_thread=on_thread):
                raise Crowded
            if flight is None:
                flight = self._flights[pk] = _Flight()
            flight.tickets[ticket] = None
            self._waiters += 1
            self._threads += on_thread
        return ticket

    def _is_crowded(self, flight: _Flight | None, options: Options, *, on_thread: bool) -> bool:
        """Call it under the lock."""
        if on_thread and self._threads >= options.max_waiting_threads:
            return True
        waiting_for_key = 0 if flight is None else len(flight.tickets)
        return self._waiters >= options.max_waiters or waiting_for_key >= options.max_waiters_per_key

    def note(self, record: Record) -> None:
        """Why whoever has just boarded waits; what a pilot has seen meanwhile is newer."""
        with self._lock:
            flight = self._flights.get(record.pk)
            if flight is not None and flight.record is None:
                flight.record = record

    def waited_for(self, pk: str) -> Record | None:
        """What stood under a key when it was looked at last, if anybody waits for it: one more need not look itself."""
        with self._lock:
            flight = self._flights.get(pk)
            return None if flight is None else flight.record

    def pilots(self, ticket: Ticket) -> bool:
        """Whether this waiter is the one that polls; somebody always is."""
        with self._lock:
            flight = self._flights[ticket.pk]
            if flight.pilot is None:
                flight.pilot = ticket
            return flight.pilot is ticket

    def share(self, ticket: Ticket, seen: Found | Gone) -> None:
        """Give all others what the pilot saw."""
        with self._lock:
            flight = self._flights[ticket.pk]
            flight.record = seen.record if isinstance(seen, Found) else None
            others = [other for other in flight.tickets if other is not ticket]
            for other in others:
                other.seen = seen
        for other in others:
            self._wake(other)

    def leave(self, ticket: Ticket) -> None:
        """Wait no longer. The pilot hands over to somebody who still does."""
        self._lock.do(partial(self._leave, ticket))

    def notify(self, pk: str) -> None:
        """The owner in this process has finished: wake the pilot, who looks at once."""
        if pk not in self._flights:  # nobody waits for nearly every request; who boards now looks by itself
            return
        self._lock.do(partial(self._notify, pk))

    def _leave(self, ticket: Ticket) -> None:
        flight = self._flights.get(ticket.pk)
        if flight is None or ticket not in flight.tickets:
            return
        del flight.tickets[ticket]
        self._waiters -= 1
        self._threads -= ticket.on_thread
        if not flight.tickets:
            del self._flights[ticket.pk]
        elif flight.pilot is ticket:
            flight.pilot = next(iter(flight.tickets))
            self._wake(flight.pilot)

    def _notify(self, pk: str) -> None:
        flight = self._flights.get(pk)
        if flight is not None:
            flight.pilot = flight.pilot or next(iter(flight.tickets))
            flight.pilot.polls = 0
            self._wake(flight.pilot)

    def _wake(self, ticket: Ticket) -> None:
        if ticket.wake() is False:  # its loop was closed under it: somebody else has to look
            self.leave(ticket)


_instances: weakref.WeakSet[Flights] = weakref.WeakSet()


def _after_fork() -> None:  # pragma: no cover - runs in children, where nothing is measured
    for flights in list(_instances):
        flights._forget()  # noqa: SLF001


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has none
    os.register_at_fork(after_in_child=_after_fork)
