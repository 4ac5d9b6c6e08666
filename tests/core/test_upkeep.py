"""What happens beside the requests, at its time."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from idem_middleware import upkeep as upkeep_module
from idem_middleware.testing import ManualClock
from idem_middleware.upkeep import Lane, Upkeep, process_upkeep
from tests.core.support.forks import in_child
from tests.support.overtaken import Overtaken
from tests.support.polling import eventually

PATIENCE_SECONDS = 10


class Beside:
    """An upkeep on a clock that is moved by hand, and what its jobs did."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.upkeep = Upkeep(monotonic=self.clock.monotonic, threads=False)
        self.done: list[str] = []

    def job(self, name: str, *again: float) -> Callable[[], float | None]:
        """A job that notes its name, and wants to run again after each of these."""
        pauses = iter(again)

        def run() -> float | None:
            self.done.append(name)
            return next(pauses, None)

        return run

    def after(self, seconds: float) -> list[str]:
        """What is done by then."""
        self.clock.advance(seconds)
        self.upkeep.run_due()
        done, self.done = self.done, []
        return done


@pytest.fixture
def beside() -> Beside:
    """A fresh one."""
    return Beside()


def test_jobs_run_at_their_time_and_in_its_order(beside: Beside) -> None:
    """Not in the order in which they were given."""
    beside.upkeep.schedule(2, beside.job("later"))
    beside.upkeep.schedule(1, beside.job("sooner"))
    assert beside.after(0.9) == []
    assert beside.after(1.1) == ["sooner", "later"]
    assert beside.after(100) == []


def test_jobs_of_one_instant_run_in_the_order_given(beside: Beside) -> None:
    """First come, first served."""
    for name in "abc":
        beside.upkeep.schedule(1, beside.job(name))
    assert beside.after(1) == ["a", "b", "c"]


def test_a_job_runs_again_when_it_says_so(beside: Beside) -> None:
    """A pause each, from the end of its run."""
    beside.upkeep.schedule(1, beside.job("x", 5, 2))
    assert [beside.after(seconds) for seconds in (1, 4.9, 0.1, 1.9, 0.1, 99)] == [["x"], [], ["x"], [], ["x"], []]
    assert len(beside.upkeep) == 0


def test_a_cancelled_job_does_not_run(beside: Beside) -> None:
    """Nor is it counted."""
    job = beside.upkeep.schedule(1, beside.job("x"))
    beside.upkeep.schedule(2, beside.job("y"))
    job.cancel()
    assert len(beside.upkeep) == 1
    assert job.run() is None
    assert beside.after(2) == ["y"]


def test_a_job_that_is_cancelled_while_it_runs_does_not_run_again(beside: Beside) -> None:
    """What is running ends by itself."""

    def run() -> float:
        job.cancel()
        return 1.0

    job = beside.upkeep.schedule(1, run)
    assert beside.after(1) == []
    assert len(beside.upkeep) == 0


def test_a_job_that_raises_is_logged_and_harms_no_other(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    """It is over."""

    def broken() -> None:
        raise LookupError("broken")

    beside.upkeep.schedule(1, broken, Lane.RECORDING)
    beside.upkeep.schedule(1, beside.job("x"))
    with caplog.at_level(logging.ERROR, "idem_middleware"):
        assert beside.after(1) == ["x"]
    assert "upkeep failed" in caplog.text
    assert beside.upkeep.drain(0)


class TestDraining:
    """At the end of a process."""

    def test_with_nothing_important_there_is_nothing_to_wait_for(self, beside: Beside) -> None:
        """Leases lapse by themselves."""
        beside.upkeep.schedule(1, beside.job("renewal", 1, 1))
        assert beside.upkeep.drain(0)

    def test_important_jobs_become_due(self, beside: Beside) -> None:
        """A recording does not wait for its next try."""
        beside.upkeep.schedule(100, beside.job("recording"), Lane.RECORDING)
        beside.upkeep.schedule(1, beside.job("renewal"))
        assert not beside.upkeep.drain(0)
        assert beside.after(0) == ["recording"]
        assert beside.upkeep.drain(0)

    def test_a_cancelled_job_is_not_waited_for(self, beside: Beside) -> None:
        """Once its time has come."""
        beside.upkeep.schedule(1, beside.job("x"), Lane.RECORDING).cancel()
        assert beside.after(1) == []
        assert beside.upkeep.drain(0)

    def test_it_waits_for_the_threads(self) -> None:
        """And tells that all is done."""
        upkeep = Upkeep()
        done = threading.Event()

        def run() -> float | None:
            first = not done.is_set()
            done.set()
            return 0.0 if first else None

        upkeep.schedule(3600, run, Lane.RECORDING)
        assert upkeep.drain(PATIENCE_SECONDS)
        assert done.is_set()

    def test_it_gives_up_in_time(self) -> None:
        """A store that is away must not keep a process alive."""
        clock = ManualClock()

        def a_minute_later() -> float:
            clock.advance(60)
            return clock.monotonic()

        upkeep = Upkeep(monotonic=a_minute_later)
        release = threading.Event()
        upkeep.schedule(0, lambda: release.wait(PATIENCE_SECONDS), Lane.RECORDING)
        try:
            assert not upkeep.drain(5)
        finally:
            release.set()


def test_what_is_scheduled_in_the_middle_of_a_sweep_is_kept(beside: Beside) -> None:
    """A dropped answer schedules its recording from wherever the collector finds it."""
    beside.upkeep.schedule(1, beside.job("old"))

    def collecting(entry: Any) -> Any:
        beside.upkeep.schedule(0.5, beside.job("collected"))
        return entry

    with beside.upkeep._lock:
        beside.upkeep._rebuild(collecting)
    assert beside.after(1) == ["collected", "old"]


def test_cancelled_jobs_do_not_pile_up() -> None:
    """Most renewals are cancelled long before they are due; a busy service must not keep them until then."""
    upkeep = Upkeep(threads=False)
    for _ in range(20_000):
        upkeep.schedule(1200.0, lambda: None).cancel()
    assert len(upkeep._due) <= 2048


class TestThreads:
    """As in a process that serves."""

    def test_jobs_run_beside_whoever_gave_them(self) -> None:
        """A slow one delays no other."""
        upkeep = Upkeep()
        both = threading.Barrier(3, timeout=PATIENCE_SECONDS)

        def meet() -> None:
            both.wait()

        for _ in range(2):
            upkeep.schedule(0, meet)
        both.wait()

    def test_nothing_can_keep_the_urgent_ones_waiting(self) -> None:
        """A store that is away holds every other thread; the leases are renewed all the same."""
        upkeep = Upkeep()
        away, renewed = threading.Event(), threading.Event()
        for _ in range(8):
            upkeep.schedule(0, lambda: away.wait(PATIENCE_SECONDS) and None)
        upkeep.schedule(0, renewed.set, Lane.RENEWAL)
        try:
            assert renewed.wait(PATIENCE_SECONDS)
        finally:
            away.set()

    def test_short_work_does_not_wake_the_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its renewal is cancelled long before it is due, and a thread that wakes takes its time from a request."""
        upkeep, calls = Upkeep(), list[None]()
        upkeep.schedule(20, lambda: None).cancel()
        eventually(lambda: math.isfinite(upkeep._wake_at), what="the thread knows how long to sleep")

        def counted(condition: threading.Condition) -> None:
            calls.append(None)

        monkeypatch.setattr(threading.Condition, "notify_all", counted)
        for _ in range(3):
            upkeep.schedule(20, lambda: None).cancel()
        assert calls == []
        upkeep.schedule(19, lambda: None).cancel()
        assert calls == [None]

    def test_a_job_that_comes_sooner_overtakes(self) -> None:
        """The thread that sleeps until the later one is woken."""
        upkeep = Upkeep()
        done = threading.Event()
        upkeep.schedule(3600, lambda: None)
        upkeep.schedule(0, done.set)
        assert done.wait(PATIENCE_SECONDS)

    def test_they_start_when_they_are_needed(self) -> None:
        """A process that protects nothing has none of them."""
        upkeep = Upkeep()
        assert upkeep._thread is None
        upkeep.schedule(3600, lambda: None)
        assert upkeep._thread is not None
        assert upkeep._thread.daemon

    @pytest.mark.parametrize("refused", ["idempotency-renewal", "idempotency-upkeep"])
    def test_a_system_without_threads_for_a_moment_delays_jobs_only(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: str
    ) -> None:
        """Whatever thread can't be started, nobody who asks is told, and what is due is made up for."""
        start, full, done = threading.Thread.start, threading.Event(), list[str]()
        monkeypatch.setattr(upkeep_module, "_LONGEST_SLEEP_SECONDS", 0.05)

        def starting(self: threading.Thread) -> None:
            if full.is_set() and self.name.startswith(refused):
                raise RuntimeError("can't start new thread")
            start(self)

        monkeypatch.setattr(threading.Thread, "start", starting)
        upkeep = Upkeep()
        if refused == "idempotency-renewal":
            upkeep.schedule(0, lambda: None)
        full.set()
        upkeep.schedule(0, lambda: done.append("one"), Lane.RENEWAL)
        eventually(lambda: "can't start new thread" in caplog.text, what="a refusal")
        full.clear()
        if refused == "idempotency-upkeep":
            upkeep.schedule(0, lambda: done.append("two"), Lane.RENEWAL)
        eventually(lambda: "one" in done, what="the job that was due")

    def test_a_job_that_wakes_nobody_is_seen_all_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The collector may schedule it on the scheduling thread itself, between its last look and its sleep."""
        done, upkeep = threading.Event(), Upkeep()
        upkeep.schedule(0, lambda: None)
        eventually(lambda: upkeep._wake_at == math.inf, what="a sleeping thread")
        monkeypatch.setattr(upkeep, "_wake_at", -math.inf)
        upkeep.schedule(0, lambda: done.set())  # noqa: PLW0108 - it gives None
        assert done.wait(PATIENCE_SECONDS)

    def test_they_end_with_the_interpreter(self) -> None:
        """Whose pools take nothing more."""
        upkeep = Upkeep()
        upkeep.schedule(3600, lambda: None)
        assert upkeep._thread is not None
        for pool in upkeep._pools.values():
            pool.shutdown()
        upkeep.schedule(0, lambda: None)
        upkeep._thread.join(PATIENCE_SECONDS)
        assert not upkeep._thread.is_alive()


class TestForks:
    """A child starts with nothing of its parent's."""

    def test_jobs_and_threads_are_forgotten(self) -> None:
        """The parent renews its own leases."""
        upkeep = Upkeep()
        upkeep.schedule(3600, lambda: None, Lane.RECORDING)
        with upkeep._changed:  # another thread, at the moment of the fork
            assert in_child(lambda: upkeep._thread is None and len(upkeep) == 0 and upkeep.drain(0))
        assert len(upkeep) == 1

    def test_the_child_has_upkeep_of_its_own(self) -> None:
        """Its threads start with its first job."""
        upkeep = Upkeep()
        upkeep.schedule(3600, lambda: None)

        def works() -> bool:  # pragma: no cover - runs in the child, where nothing is measured
            done = threading.Event()
            upkeep.schedule(0, done.set)
            return done.wait(PATIENCE_SECONDS)

        assert in_child(works)

    def test_the_lock_of_the_process_is_free_in_the_child(self) -> None:
        """Whoever held it is not there."""
        with upkeep_module._default_lock:
            assert in_child(lambda: process_upkeep() is process_upkeep())


def test_a_process_has_one_upkeep() -> None:
    """However many engines it has."""
    assert process_upkeep() is process_upkeep()


def test_at_exit_recordings_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the process's own upkeep, if it has one."""
    upkeep = Upkeep()
    done = threading.Event()
    upkeep.schedule(3600, done.set, Lane.RECORDING)
    monkeypatch.setattr(upkeep_module, "_default", upkeep)
    upkeep_module._at_exit()
    assert done.is_set()
    monkeypatch.setattr(upkeep_module, "_default", None)
    upkeep_module._at_exit()


def test_of_two_that_come_first_both_get_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one in a process."""
    monkeypatch.setattr(upkeep_module, "_default", None)
    lock = Overtaken(process_upkeep)
    monkeypatch.setattr(upkeep_module, "_default_lock", lock)
    assert process_upkeep() is lock.seen is process_upkeep()
