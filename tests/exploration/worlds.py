"""What is explored: who takes part, what may go wrong how often, and which options are in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["LARGE", "ROAMED", "SMALL", "Client", "World"]

LEASE, MARGIN = 9.0, 1.0
_LONGEST_RETRY_AFTER = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who sends a request: what it asks, in whose name, how long it waits for another's answer, and where to."""

    name: str
    asks: str = "pay"
    caller: str = "me"
    patience: float = 0.0
    asynchronous: bool = False
    place: int | None = None


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that is fixed before the first step.

    Clients with the same `place` share a process; by default each has its own. `offsets` is how far each place's clock
    is off; `dated` says whether the store's answers tell the time. `tries` is how often a client sends its request
    when it was told to come again, or when its process died. `delays` is how often a
    thread is left behind while time goes on (a call on its way, its answer, a renewal that is due), `stalls` how often
    one is stopped between two looks at the clock; `cuts` are interrupts of a thread, by a signal or a cancellation;
    `sweeps` is how many items DynamoDB's sweeper takes when it may. `large` says that no answer fits into a record.
    With `transacts` handlers write to a table of their own, together with a "checkpoint" or with the "completion".
    Handlers take any time, and clients come at any time, within `horizon`; after that all are prompt.
    """

    name: str
    clients: tuple[Client, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    offsets: tuple[float, ...] = ()
    margin: float = MARGIN
    dated: bool = False
    tries: int = 1
    crashes: int = 0
    faults: int = 0
    fault_kinds: tuple[str, ...] = ("lost", "again", "late", "refused", "throttled")
    failures: int = 0
    failure_kinds: tuple[str, ...] = ("fails", "raises")
    cuts: int = 0
    delays: int = 1
    stalls: int = 0
    sweeps: int = 0
    large: bool = False
    transacts: str = ""
    horizon: float = 2 * LEASE + MARGIN

    def place(self, client: int) -> int:
        """The process that a client comes to."""
        place = self.clients[client].place
        return client if place is None else place

    @property
    def places(self) -> int:
        """How many processes there are."""
        return max(self.place(client) for client in range(len(self.clients))) + 1

    def offset(self, place: int) -> float:
        """How far this process's clock is ahead of the true time."""
        return self.offsets[place] if place < len(self.offsets) else 0.0

    def alike(self, one: int, other: int) -> bool:
        """Whether it makes no difference which of these clients is which."""
        places = [self.place(client) for client in range(len(self.clients))]
        if places.count(places[one]) > 1 or places.count(places[other]) > 1:
            return False
        same = replace(self.clients[one], name="", place=None) == replace(self.clients[other], name="", place=None)
        return same and self.offset(places[one]) == self.offset(places[other])

    @property
    def patience_of_all(self) -> float:
        """After how long at the latest whoever asks again has an answer: leases end, and so do pauses and skews."""
        skew = max(map(abs, self.offsets), default=0.0)
        if self.dated and not self.crashes:
            skew = 1.0  # the store has told the time to whoever is left, as exactly as it can
        pause: float = self.settings.get("retry_after_failure_seconds", 0.0)
        return float(self.settings["lease_seconds"]) + self.margin + 2 * skew + pause + _LONGEST_RETRY_AFTER

    @property
    def settings(self) -> dict[str, Any]:
        """The options, with a lease that ends soon."""
        return {"lease_seconds": LEASE, "max_execution_seconds": 2 * LEASE, **self.options}

    def having(self, **changes: Any) -> World:
        """The same world but for this."""
        return replace(self, **changes)


_A, _B, _C = (Client(name=name) for name in "ABC")
_TWO, _THREE = (_A, _B), (_A, _B, _C)
_PATIENT = 6.0
_KINDS = ("fails", "raises", "moved")
_ASYNC = tuple(replace(client, asynchronous=True) for client in _THREE)
_REFUSING = {"on_abandoned": "refuse", "on_error": "refuse"}
_SOON = LEASE + MARGIN + 0.5  # so that a lease can end, and the next begin, by any clock
_LEASE_AND_MORE = LEASE + MARGIN + 3.0
_UNHEARD = ("lost", "again")
_EXPIRING = {"retention_seconds": 3.0, "tombstone_seconds": 3.0, "on_expired": "refuse"}
_SHORT = {"retention_seconds": 6.0}

SMALL: tuple[World, ...] = tuple(
    world.having(horizon=_SOON) if world.horizon == World.horizon else world
    for world in (
        World(name="two", clients=_TWO, delays=0),
        World(name="two, left behind", clients=_TWO, delays=1),
        World(name="two, a long work", clients=_TWO, delays=0, horizon=2 * LEASE),
        World(name="two, two crash", clients=_TWO, crashes=2, delays=0),
        World(name="two, one crashes and comes again", clients=_TWO, crashes=1, tries=2, delays=0),
        World(
            name="two, two crash and a reply is lost",
            clients=_TWO,
            crashes=2,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(
            name="two, two crash and a reply is lost, abandoned ones refused",
            clients=_TWO,
            options={"on_abandoned": "refuse"},
            crashes=2,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(name="two, two crash, all refused", clients=_TWO, options=_REFUSING, crashes=2, delays=0),
        World(name="two, a call fails", clients=_TWO, faults=1, delays=0),
        World(name="two, handlers fail", clients=_TWO, failures=2, failure_kinds=_KINDS, delays=0),
        World(name="two, a handler fails and its client comes again", clients=_TWO, failures=1, tries=2, delays=0),
        World(name="two, handlers fail, all refused", clients=_TWO, options=_REFUSING, failures=2, delays=0),
        World(name="two, a short retention", clients=_TWO, options=_SHORT, delays=0),
        World(
            name="two, a handler fails and a reply is lost",
            clients=_TWO,
            failures=1,
            failure_kinds=("raises",),
            faults=1,
            fault_kinds=("lost",),
            delays=0,
        ),
        World(name="two, expired keys refused", clients=_TWO, options=_EXPIRING, delays=0),
        World(name="two, clocks within the margin", clients=_TWO, offsets=(-0.5, 0.5), delays=1),
        World(name="two, clocks beyond the margin", clients=_TWO, offsets=(-1.5, 1.5), delays=0),
        World(
            name="two, a wrong clock that the store corrects",
            clients=_TWO,
            offsets=(-3600.0, 3600.0),
            margin=2.0,
            dated=True,
            delays=0,
        ),
        World(
            name="two, a wrong clock and a lost reply",
            clients=_TWO,
            offsets=(60.0, -60.0),
            margin=2.0,
            dated=True,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(name="two, stopped between two looks at the clock", clients=_TWO, delays=0, stalls=1),
        World(
            name="two, a work longer than it may be",
            clients=_TWO,
            options={"max_execution_seconds": LEASE},
            delays=0,
            horizon=2 * LEASE + MARGIN + 0.5,
        ),
        World(
            name="two, and the sweeper",
            clients=_TWO,
            options={"max_execution_seconds": LEASE, "retention_seconds": 3.0},
            sweeps=1,
            delays=0,
            horizon=10 * LEASE,
        ),
        World(
            name="two, a pause after a failure",
            clients=_TWO,
            options={"retry_after_failure_seconds": 5.0},
            failures=1,
            failure_kinds=_KINDS,
            tries=2,
            delays=0,
            horizon=7.0,
        ),
        World(name="two, large answers", clients=_TWO, large=True, crashes=1, faults=1, fault_kinds=_UNHEARD, delays=0),
        World(name="two, large answers, left behind", clients=_TWO, large=True, delays=1),
        World(name="two, transactions", clients=_TWO, transacts="checkpoint", crashes=1, tries=2, delays=0),
        World(name="two, transactions, left behind", clients=_TWO, transacts="checkpoint", delays=1),
        World(name="two, transactions, a call fails", clients=_TWO, transacts="checkpoint", faults=1, delays=0),
        World(name="two, completed by transactions", clients=_TWO, transacts="completion", crashes=1, delays=0),
        World(name="two, completed by transactions, left behind", clients=_TWO, transacts="completion", delays=1),
        World(
            name="two, completed by transactions, a call fails",
            clients=_TWO,
            transacts="completion",
            faults=1,
            tries=2,
            delays=0,
        ),
        World(
            name="two asynchronous, transactions",
            clients=_ASYNC[:2],
            transacts="completion",
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(
            name="two of one process, one waits",
            clients=(replace(_A, place=0), replace(_B, place=0, patience=_LEASE_AND_MORE)),
            failures=1,
            failure_kinds=("fails",),
            delays=0,
        ),
        World(name="two, threads are interrupted", clients=_TWO, cuts=1, delays=0),
        World(
            name="two who ask for different things",
            clients=(_A, replace(_B, asks="refund"), replace(_C, caller="you")),
            failures=1,
            failure_kinds=("fails",),
            delays=0,
            horizon=3.0,
        ),
        World(name="a waiter", clients=(_A, replace(_B, patience=_PATIENT)), crashes=1, delays=0),
        World(
            name="a waiter, and one who asks for something else",
            clients=(_A, replace(_B, patience=_PATIENT), replace(_C, asks="refund")),
            failures=1,
            failure_kinds=("moved",),
            delays=0,
            horizon=6.0,
        ),
        World(
            name="two waiters of one process",
            clients=(_A, replace(_B, place=1, patience=2 * _PATIENT), replace(_C, place=1, patience=3.0)),
            delays=0,
            horizon=9.0,
        ),
        World(
            name="two waiters of one process, one is interrupted",
            clients=(_A, replace(_B, place=1, patience=2 * _PATIENT), replace(_C, place=1, patience=LEASE)),
            cuts=1,
            delays=0,
            horizon=3.0,
        ),
        World(name="two asynchronous", clients=_ASYNC[:2], faults=1, fault_kinds=_UNHEARD, delays=0),
        World(name="two asynchronous, left behind", clients=_ASYNC[:2], delays=1),
        World(name="two asynchronous, tasks are cancelled", clients=_ASYNC[:2], cuts=1, delays=0),
        World(name="three, two crash", clients=_THREE, crashes=2, delays=0),
    )
)
"""What the tests go through."""

_EVERYTHING = World(
    name="three, everything goes wrong",
    clients=_THREE,
    crashes=2,
    faults=2,
    failures=1,
    failure_kinds=_KINDS,
    cuts=1,
    delays=2,
    stalls=1,
    tries=2,
    horizon=3 * LEASE,
)

_LATE = 2 * LEASE
_CRASHES = World(name="three, two crash and a reply is lost", clients=_THREE, crashes=2, faults=1, fault_kinds=_UNHEARD)

LARGE: tuple[World, ...] = tuple(
    world.having(horizon=_SOON) if world.horizon == World.horizon else world
    for world in (
        _CRASHES.having(delays=0),
        _CRASHES.having(
            name="three, two crash and a reply is lost, abandoned ones refused",
            options={"on_abandoned": "refuse"},
            delays=0,
        ),
        _CRASHES.having(name="three, two crash and a reply is lost, all refused", options=_REFUSING, delays=0),
        World(name="three, two crash, left behind", clients=_THREE, crashes=2, delays=1),
        _CRASHES.having(name="three, two crash and a reply is lost, left behind", delays=1),
        World(
            name="three, two crash and a reply is lost, transactions",
            clients=_THREE,
            transacts="checkpoint",
            crashes=2,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(
            name="three, completed by transactions, one crashes",
            clients=_THREE,
            transacts="completion",
            crashes=1,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(
            name="two, transactions, two crash and a call fails, left behind",
            clients=_TWO,
            transacts="checkpoint",
            crashes=2,
            faults=1,
            delays=1,
        ),
        World(
            name="two, completed by transactions, two crash and a call fails, left behind",
            clients=_TWO,
            transacts="completion",
            crashes=2,
            faults=1,
            delays=1,
        ),
        World(
            name="two, large answers, two crash and a call fails",
            clients=_TWO,
            large=True,
            crashes=2,
            faults=1,
            delays=0,
        ),
        World(
            name="two, the sweeper, one crashes",
            clients=_TWO,
            options={"max_execution_seconds": LEASE, "retention_seconds": 3.0},
            sweeps=1,
            crashes=1,
            delays=0,
            horizon=9 * LEASE,
        ),
        World(name="three, handlers fail", clients=_THREE, crashes=1, failures=2, failure_kinds=_KINDS, delays=0),
        World(name="two, two crash, a call fails, come again", clients=_TWO, crashes=2, faults=1, tries=2, delays=0),
        World(name="two, two crash and a call fails, left behind", clients=_TWO, crashes=2, faults=1, delays=1),
        World(name="two, two calls fail", clients=_TWO, faults=2, delays=0),
        World(name="two, left behind twice", clients=_TWO, crashes=1, delays=2),
        World(name="two, left behind for long", clients=_TWO, crashes=1, delays=1, horizon=_LATE),
        World(name="two, stopped between looks at the clock, left behind", clients=_TWO, crashes=1, delays=1, stalls=1),
        World(name="two, interrupted while a call fails", clients=_TWO, cuts=1, faults=1, delays=0),
        World(name="two, interrupted and left behind", clients=_TWO, cuts=1, delays=1),
        World(name="two asynchronous, two crash and a call fails", clients=_ASYNC[:2], crashes=2, faults=1, delays=0),
        World(name="two asynchronous, cancelled while a call fails", clients=_ASYNC[:2], cuts=1, faults=1, delays=0),
        World(name="two asynchronous, cancelled and left behind", clients=_ASYNC[:2], cuts=1, delays=1),
        World(
            name="two, clocks within the margin, one crashes",
            clients=_TWO,
            offsets=(0.5, -0.5),
            crashes=1,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=1,
        ),
        World(
            name="two, clocks beyond the margin, left behind", clients=_TWO, offsets=(-1.5, 1.5), crashes=1, delays=1
        ),
        World(
            name="two, wrong clocks that the store corrects",
            clients=_TWO,
            offsets=(60.0, -60.0),
            margin=2.0,
            dated=True,
            crashes=1,
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
        ),
        World(name="two, a short retention, left behind", clients=_TWO, options=_SHORT, crashes=1, horizon=_LATE),
        World(
            name="two, a retention shorter than the lease, all refused",
            clients=_TWO,
            options={"retention_seconds": 2.0, **_REFUSING},
            crashes=1,
            delays=0,
            horizon=_LATE,
        ),
        World(
            name="two, expired keys refused, one crashes",
            clients=_TWO,
            options=_EXPIRING,
            crashes=1,
            delays=1,
        ),
        World(
            name="two, a pause after a failure",
            clients=_TWO,
            options={"retry_after_failure_seconds": 5.0},
            failures=1,
            failure_kinds=_KINDS,
            tries=2,
            delays=0,
            horizon=_LATE,
        ),
        World(
            name="two, errors are kept and a call fails",
            clients=_TWO,
            options={"on_error": "store"},
            failures=1,
            failure_kinds=_KINDS,
            faults=1,
            delays=0,
        ),
        World(
            name="three of one process",
            clients=tuple(replace(client, place=0, patience=_LATE) for client in _THREE),
            faults=1,
            fault_kinds=_UNHEARD,
            delays=0,
            horizon=6.0,
        ),
        World(
            name="two asynchronous ones of one process, cancelled",
            clients=tuple(replace(client, place=0, patience=_LATE) for client in _ASYNC[:2]),
            cuts=1,
            delays=0,
            horizon=6.0,
        ),
        World(
            name="two of one process wait, and the owner crashes",
            clients=(_A, replace(_B, place=1, patience=_LATE), replace(_C, place=1, patience=_LATE)),
            crashes=1,
            delays=0,
        ),
    )
)
"""What takes minutes."""

ROAMED: tuple[World, ...] = (
    _EVERYTHING,
    _EVERYTHING.having(name="three asynchronous, everything goes wrong", clients=_ASYNC),
    _EVERYTHING.having(name="three, everything goes wrong, all refused", options=_REFUSING),
    _EVERYTHING.having(name="three, everything goes wrong, transactions", transacts="checkpoint"),
    _EVERYTHING.having(
        name="three, everything goes wrong, completed by transactions, large answers",
        clients=(_A, _B, _ASYNC[2]),
        transacts="completion",
        large=True,
    ),
    _EVERYTHING.having(
        name="three, everything goes wrong, and the sweeper",
        options={"max_execution_seconds": LEASE, "retention_seconds": 3.0},
        sweeps=2,
        horizon=9 * LEASE,
    ),
    _EVERYTHING.having(
        name="five of three processes, everything goes wrong",
        clients=(
            _A,
            replace(_B, place=1, patience=2 * LEASE),
            replace(_C, place=1, patience=2 * LEASE),
            Client(name="D", place=2, asynchronous=True, patience=2 * LEASE),
            Client(name="E", place=2, asynchronous=True, asks="refund"),
        ),
        options={"retention_seconds": LEASE, "retry_after_failure_seconds": 3.0},
        offsets=(-0.5, 0.5),
    ),
)
"""What is larger than anybody can wait for."""
