"""What only threads can do: come at once, wait side by side, and fork."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from idem_middleware import Engine, Lease, MemoryStore, Options, Response
from idem_middleware.runtime import Runtime
from idem_middleware.upkeep import Upkeep
from tests.core.support.forks import in_child
from tests.core.support.worlds import CREATED, SyncWorld, request

PATIENCE_SECONDS = 10


def at_once(work: Callable[[], object], number: int) -> None:
    """Do something in several threads that start together."""
    start = threading.Barrier(number)

    def run() -> None:
        start.wait(PATIENCE_SECONDS)
        work()

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in threads)


def test_of_many_first_requests_exactly_one_runs() -> None:
    """The claim is one atomic write before the handler (mastodon/mastodon#37879)."""
    engine = Engine(MemoryStore(), Options())
    runs: list[int] = []
    statuses: list[int] = []
    others_are_done = threading.Semaphore(0)

    def handler(lease: Lease | None) -> Response:
        runs.append(1)
        for _ in range(19):
            assert others_are_done.acquire(timeout=PATIENCE_SECONDS)
        return CREATED

    def work() -> None:
        statuses.append(engine.run(request(), handler).status)
        others_are_done.release()

    at_once(work, 20)
    assert len(runs) == 1
    assert sorted(statuses) == [201] + [409] * 19


def test_waiting_threads_share_one_look_and_are_told_at_once() -> None:
    """The owner in their process wakes one, who looks for all."""
    world = SyncWorld()
    waiting = threading.Semaphore(0)

    def pause(event: threading.Event, seconds: float) -> bool:
        waiting.release()
        return event.wait(PATIENCE_SECONDS)

    world.runtime.pause = pause
    engine = Engine(world.store, Options(wait_seconds=60), runtime=world.runtime)
    lease = world.lease(request())
    world.calls()
    answers: list[bytes] = []

    def finish() -> None:
        for _ in range(5):
            assert waiting.acquire(timeout=PATIENCE_SECONDS)
        assert world.settle(lease) == "Recorded"

    owner = threading.Thread(target=finish)
    owner.start()
    at_once(lambda: answers.append(engine.run(request(), lambda lease: pytest.fail("ran twice")).body), 5)
    owner.join(PATIENCE_SECONDS)
    assert answers == [b"created"] * 5
    calls = world.calls()
    assert 1 <= calls.count("create") <= 5  # whoever comes while another waits already asks nothing
    assert sorted(call for call in calls if call != "create") == ["load", "swap"]


def test_a_real_renewal_and_a_completion_take_turns() -> None:
    """On the threads of an upkeep."""
    store = MemoryStore()
    engine = Engine(store, runtime=Runtime(store, Options(), upkeep=Upkeep()))
    renewing, go_on = threading.Event(), threading.Event()

    def handler(lease: Lease | None) -> Response:
        assert lease is not None

        def hold() -> None:
            with lease._claim.lock.held():
                renewing.set()
                go_on.wait(PATIENCE_SECONDS)

        lease._claim.runtime.upkeep.schedule(0, hold)
        assert renewing.wait(PATIENCE_SECONDS)
        threading.Timer(0, go_on.set).start()
        return CREATED

    assert engine.run(request(), handler) == CREATED
    assert engine.run(request(), handler).header("idempotent-replayed") == "true"


def test_a_forked_child_renews_none_of_its_parents_leases() -> None:
    """It does not know what the parent does with them."""
    world = SyncWorld()
    _lease = world.lease()

    def renews_nothing() -> bool:  # pragma: no cover - runs in the child, where nothing is measured
        world.calls()
        world.pass_by(50)
        return world.calls() == []

    assert in_child(renews_nothing)
    world.calls()
    world.pass_by(50)
    assert world.calls() == ["swap", "swap"]


def test_a_forked_child_can_open_its_own_twin() -> None:
    """Although another thread was opening one at the moment of the fork."""
    world = SyncWorld()
    with world.runtime._twin_lock:
        assert in_child(lambda: world.runtime.upkeep_store is not None)


def test_a_twin_is_opened_once() -> None:
    """However many threads need it first."""
    opened: list[int] = []

    class Store(MemoryStore):
        def twin(self) -> MemoryStore:
            opened.append(1)
            return self

    runtime = Runtime(Store(), Options())
    at_once(lambda: runtime.upkeep_store, 10)
    assert opened == [1]
