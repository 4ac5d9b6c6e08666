"""Who waits for what: one waiter of a key looks, the others are told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware.stores.base import GONE, Found
from idem_middleware.waiting import Flights, poll_pause
from tests.core.support.forks import in_child
from tests.core.support.records import record_of

SEEN = Found(record_of())


class Passenger:
    """A waiter that counts how often it is woken."""

    def __init__(self, flights: Flights, pk: str = "pk") -> None:
        self.woken = 0
        self.ticket = flights.board(pk, self.wake)

    def wake(self) -> None:
        """Called when there is something to look at."""
        self.woken += 1


def test_exactly_one_waiter_of_a_key_looks() -> None:
    """Whoever asks first, and that one from then on."""
    flights = Flights()
    passengers = [Passenger(flights) for _ in range(3)]
    assert [flights.pilots(p.ticket) for p in passengers] == [True, False, False]
    assert [flights.pilots(p.ticket) for p in reversed(passengers)] == [False, False, True]


def test_each_key_has_a_flight_of_its_own() -> None:
    """One slow key holds up no other (yoyowallet/django-idempotency-key#60)."""
    flights = Flights()
    one, two = Passenger(flights, "one"), Passenger(flights, "two")
    assert flights.pilots(one.ticket)
    assert flights.pilots(two.ticket)
    flights.share(one.ticket, SEEN)
    assert two.ticket.take() is None


def test_what_the_pilot_saw_is_shared_once() -> None:
    """The others are woken for it; the pilot knows."""
    flights = Flights()
    pilot, other = Passenger(flights), Passenger(flights)
    assert flights.pilots(pilot.ticket)
    flights.share(pilot.ticket, SEEN)
    assert (pilot.woken, other.woken) == (0, 1)
    assert [other.ticket.take(), other.ticket.take(), pilot.ticket.take()] == [SEEN, None, None]


def test_the_newest_sight_counts() -> None:
    """A slow waiter need not look at old ones."""
    flights = Flights()
    pilot, other = Passenger(flights), Passenger(flights)
    flights.share(pilot.ticket, SEEN)
    flights.share(pilot.ticket, GONE)
    assert other.ticket.take() is GONE


def test_a_pilot_that_leaves_hands_over() -> None:
    """Somebody always looks."""
    flights = Flights()
    pilot, heir, other = (Passenger(flights) for _ in range(3))
    assert flights.pilots(pilot.ticket)
    flights.leave(pilot.ticket)
    assert (heir.woken, other.woken) == (1, 0)
    assert flights.pilots(heir.ticket)
    assert not flights.pilots(other.ticket)


def test_a_passenger_that_leaves_changes_nothing() -> None:
    """For those who stay."""
    flights = Flights()
    pilot, other = Passenger(flights), Passenger(flights)
    assert flights.pilots(pilot.ticket)
    flights.leave(other.ticket)
    assert pilot.woken == 0
    assert flights.pilots(pilot.ticket)


def test_who_is_collected_in_the_middle_of_a_change_leaves_after_it() -> None:
    """A coroutine whose loop is gone ends wherever an allocation starts the collector, on this very thread too."""
    flights = Flights()
    pilot, other = Passenger(flights), Passenger(flights)
    assert flights.pilots(pilot.ticket)
    with flights._lock:
        flights.leave(pilot.ticket)
        flights.notify("pk")
        assert len(flights._flights["pk"].tickets) == 2
    assert list(flights._flights["pk"].tickets) == [other.ticket]
    assert other.woken == 2
    assert flights.pilots(other.ticket)


@pytest.mark.parametrize("how", ["the owner has finished", "the pilot leaves", "the pilot saw something"])
def test_who_can_wake_up_no_more_is_passed_over(how: str) -> None:
    """Its event loop was closed under it; somebody else looks, and it counts as a waiter no longer."""
    flights = Flights()
    pilot, dead, other = Passenger(flights), Passenger(flights), Passenger(flights)
    dead.ticket.wake = lambda: False
    if how == "the owner has finished":
        pilot.ticket.wake = lambda: False
    assert flights.pilots(pilot.ticket)
    if how == "the owner has finished":
        flights.notify("pk")
    elif how == "the pilot leaves":
        flights.leave(pilot.ticket)
    else:
        flights.share(pilot.ticket, SEEN)
        flights.leave(pilot.ticket)
    assert list(flights._flights["pk"].tickets) == [other.ticket]
    assert other.woken >= 1
    assert flights._waiters == 1
    flights.leave(dead.ticket)
    assert flights._waiters == 1


def test_when_all_have_left_nothing_is_kept() -> None:
    """Keys come and go."""
    flights = Flights()
    passengers = [Passenger(flights) for _ in range(3)]
    for passenger in passengers:
        flights.leave(passenger.ticket)
    assert flights._flights == {}


def test_the_local_owner_wakes_the_pilot_alone() -> None:
    """One look is enough for all; and it starts with short pauses again."""
    flights = Flights()
    pilot, other = Passenger(flights), Passenger(flights)
    assert flights.pilots(pilot.ticket)
    pilot.ticket.polls = 7
    flights.notify("pk")
    assert (pilot.woken, other.woken, pilot.ticket.polls) == (1, 0, 0)


def test_the_local_owner_makes_a_pilot_where_none_is_yet() -> None:
    """The first that boarded."""
    flights = Flights()
    first, second = Passenger(flights), Passenger(flights)
    flights.notify("pk")
    assert (first.woken, second.woken) == (1, 0)
    assert flights.pilots(first.ticket)


def test_whoever_has_left_when_it_is_told_is_not_told() -> None:
    """Both came while somebody else was at work on the flights."""
    flights = Flights()
    passenger = Passenger(flights)
    with flights._lock:
        flights.leave(passenger.ticket)
        flights.notify("pk")
    assert passenger.woken == 0
    assert flights._flights == {}


def test_nobody_need_wait() -> None:
    """The usual case."""
    Flights().notify("pk")


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1))
def test_pauses_grow_to_a_second_with_jitter_over_their_upper_half(polls: int, chance: float) -> None:
    """Neither a hot loop nor a herd (apache/polaris#4269)."""
    whole = poll_pause(polls, 1.0)
    assert whole / 2 <= poll_pause(polls, chance) <= whole <= 1.0
    assert whole <= poll_pause(polls + 1, 1.0)


def test_the_first_pause_is_short() -> None:
    """Most work takes little longer than its retry."""
    assert [poll_pause(polls, 1.0) for polls in range(6)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]


def test_a_forked_child_begins_without_passengers() -> None:
    """The parent's waiters are not there, and nobody holds its lock."""
    flights = Flights()
    passenger = Passenger(flights)
    assert flights.pilots(passenger.ticket)
    with flights._lock:  # another thread, at the moment of the fork
        assert in_child(lambda: flights.pilots(flights.board("pk", passenger.wake)) and passenger.woken == 0)
    assert flights.pilots(passenger.ticket)


def test_who_leaves_twice_or_comes_from_before_a_fork_disturbs_nobody() -> None:
    """The flight counts those who are in it."""
    flights = Flights()
    pilot, gone = Passenger(flights), Passenger(flights)
    flights.leave(gone.ticket)
    flights.leave(gone.ticket)
    assert flights.pilots(pilot.ticket)
    flights.leave(pilot.ticket)
    assert flights._flights == {}
    assert flights._waiters == 0
