"""The store's time, learned from the `Date` of its answers."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware.clock import CorrectedClock, SystemClock
from tests.stores.doubles import ManualTime


def answered(time: ManualTime, clock: CorrectedClock, *, ahead: float, round_trip: float = 0.0) -> None:
    """Let one answer of a server arrive whose clock is ahead of ours; it is stamped half-way."""
    sent_at = time.now
    time.pass_by(round_trip / 2)
    date = formatdate(math.floor(time.now + ahead), usegmt=True)
    time.pass_by(round_trip / 2)
    clock.observe(date, sent_at)


def test_before_any_answer_the_machines_clock_counts(time: ManualTime) -> None:
    """There is nothing better to go by."""
    clock = time.clock()
    assert clock.now() == time.now
    assert clock.offset_seconds == 0.0


def test_a_clock_that_no_answer_contradicts_is_left_alone(time: ManualTime) -> None:
    """`Date` has whole seconds: a right clock is not moved by their rounding."""
    clock = time.clock()
    for _ in range(50):
        answered(time, clock, ahead=0.0, round_trip=0.01)
        time.pass_by(0.37)
    assert clock.offset_seconds == 0.0


@pytest.mark.parametrize("ahead", [-86400.0, -301.5, -3.2, 3.2, 301.5, 86400.0])
def test_one_answer_tells_the_offset_to_a_second(time: ManualTime, ahead: float) -> None:
    """A machine that starts with a wrong clock is right with its first answer."""
    clock = time.clock()
    answered(time, clock, ahead=ahead, round_trip=0.02)
    assert abs(clock.offset_seconds - ahead) <= 0.51
    assert clock.now() == time.now + clock.offset_seconds


def test_many_answers_tell_it_better(time: ManualTime) -> None:
    """Each answer narrows what is possible."""
    clock = time.clock()
    for _ in range(200):
        answered(time, clock, ahead=7.3, round_trip=0.01)
        time.pass_by(0.618)
    assert abs(clock.offset_seconds - 7.3) < 0.05


def test_a_slow_round_trip_widens_what_is_possible(time: ManualTime) -> None:
    """An answer that took seconds does not push a right clock away."""
    clock = time.clock()
    answered(time, clock, ahead=0.0, round_trip=5.0)
    assert clock.offset_seconds == 0.0


@pytest.mark.parametrize("stall", [0.3, 2.5, 60.0])
def test_a_stall_after_the_answer_is_no_skew(time: ManualTime, stall: float) -> None:
    """A thread that waits for its turn before it looks at the answer does not push a right clock away."""
    clock = time.clock()
    sent_at = time.now
    date = formatdate(math.floor(time.now), usegmt=True)
    time.pass_by(stall)
    clock.observe(date, sent_at)
    assert clock.offset_seconds == 0.0


def test_a_clock_that_is_set_is_learned_anew(time: ManualTime) -> None:
    """An administrator corrects the machine: old answers count no more."""
    clock = time.clock()
    answered(time, clock, ahead=100.0)
    time.now += 100.0
    answered(time, clock, ahead=0.0)
    assert clock.offset_seconds == 0.0


@pytest.mark.parametrize(
    "date",
    [
        None,
        "yesterday",
        "Thu, 99 Foo 2025 99:99:99 GMT",
        "0",
        "",
        "Thu, 01 Jan 99999 00:00:00 GMT",
        "Thu, 01 Jan 2025 00:00:00 +9999999999999",
    ],
)
def test_what_is_no_date_teaches_nothing(time: ManualTime, date: str | None) -> None:
    """A proxy's header can't move the clock, and can't break a call."""
    clock = time.clock()
    clock.observe(date, time.now - 0.1)
    assert clock.offset_seconds == 0.0


def test_deadlines_do_not_move_with_the_offset(time: ManualTime) -> None:
    """`monotonic` is another clock."""
    clock = time.clock()
    before = clock.monotonic()
    answered(time, clock, ahead=1000.0)
    assert clock.monotonic() == before


@given(st.floats(-1e6, 1e6), st.lists(st.floats(0.0, 2.0), min_size=1, max_size=20))
def test_the_error_is_within_a_second_and_the_round_trip(ahead: float, round_trips: list[float]) -> None:
    """Whatever the offset and however slow the answers, the bound that the takeover margin rests on holds."""
    time = ManualTime()
    clock = time.clock()
    for round_trip in round_trips:
        answered(time, clock, ahead=ahead, round_trip=round_trip)
        time.pass_by(0.29)
        assert abs(clock.offset_seconds - ahead) <= 1.0 + min(round_trips[0], round_trip) + 1e-3


def test_the_systems_clock_needs_no_margin() -> None:
    """For a store in this process there is only one clock."""
    clock = SystemClock()
    assert clock.margin_seconds == 0.0
    assert clock.offset_seconds == 0.0
    assert clock.now() > 0
    assert clock.monotonic() <= clock.monotonic()


@pytest.mark.parametrize("date", ["Mon, 31 Feb 2025 10:00:00 GMT", "Sun, 29 Nov 2026 25:00:00 GMT"])
def test_a_date_that_does_not_exist_says_nothing(time: ManualTime, date: str) -> None:
    """Whoever wrote it is no clock to go by."""
    clock = time.clock()
    clock.observe(date, time.now)
    assert clock.offset_seconds == 0.0
