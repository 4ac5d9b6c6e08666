"""Asking a prober what became of an abandoned claim; by the driver of threads and by that of event loops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from idem_middleware import EventKind, Response
from idem_middleware.probes import Admission, Probes, probe_in_thread
from idem_middleware.probing import NOT_DONE, UNKNOWN, Abandoned, Done
from idem_middleware.records import Status
from idem_middleware.stores.base import Found
from idem_middleware.testing import Fault, ManualClock
from tests.core.support.stores import ChunkStore
from tests.core.support.worlds import CREATED, AsyncWorld, SyncWorld, World, request

Prober = Callable[[Abandoned], Any]


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["threads", "loop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A process, driven in one of two ways."""
    made: World = request.param()
    yield made
    made.close()


@pytest.fixture(params=[False, True], ids=["function", "coroutine"])
def as_prober(request: pytest.FixtureRequest, world: World) -> Callable[[Prober], Prober]:
    """Makes a prober of a function: as it is, or as a coroutine function where there is a loop."""
    if not request.param:
        return lambda function: function
    if isinstance(world, SyncWorld):
        pytest.skip("a loop is needed")

    def make(function: Prober) -> Prober:
        async def prober(told: Abandoned) -> Any:
            return function(told)

        return prober

    return make


def crash(world: World, **options: Any) -> None:
    """A first attempt that nobody hears of again."""
    world.lease(request(b"x"), **options)
    world.freeze(100)


def test_work_that_was_done_is_answered_and_not_run(world: World, as_prober: Callable[[Prober], Prober]) -> None:
    """With the answer that the prober gives; for all that come later, too."""
    crash(world)
    prober = as_prober(lambda _: Done(CREATED))
    assert world.replay(request(b"x"), prober=prober) == CREATED
    assert world.replay(request(b"x")) == CREATED
    assert world.record().status is Status.COMPLETED
    assert world.last(EventKind.PROBED).reason == "done"


@pytest.mark.parametrize("on_abandoned", ["retry", "refuse"])
def test_work_that_was_not_done_runs(world: World, as_prober: Callable[[Prober], Prober], on_abandoned: str) -> None:
    """Whatever `on_abandoned` says: nothing is unknown any more."""
    crash(world)
    lease = world.lease(request(b"x"), prober=as_prober(lambda _: NOT_DONE), on_abandoned=on_abandoned)
    assert lease.attempt == 2
    assert world.kinds()[-2:] == ["probed", "taken_over"]


@pytest.mark.parametrize("answer", [UNKNOWN, None, "done", LookupError("no connection")], ids=str)
def test_where_nothing_is_known_the_option_decides(
    world: World, as_prober: Callable[[Prober], Prober], answer: object
) -> None:
    """An error is no answer, and neither is anything else that is none."""

    def probe(_: Abandoned) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    crash(world)
    prober = as_prober(probe)
    assert world.problem(request(b"x"), prober=prober, on_abandoned="refuse") == "outcome-unknown"
    assert world.lease(request(b"x"), prober=prober).attempt == 2
    assert world.last(EventKind.PROBED).reason == "unknown"


def test_the_prober_is_told_what_is_known(world: World) -> None:
    """And derives the keys that the attempt derived."""
    told: list[Abandoned] = []
    first = world.lease(request(b"x"))
    world.do(first, "save_checkpoint", b"charging")
    world.freeze(100)
    world.lease(request(b"x"), prober=told.append)
    [abandoned] = told
    assert abandoned.derive_key("charge") == first.derive_key("charge")
    assert (abandoned.attempt, abandoned.checkpoint, abandoned.key_digest) == (1, b"charging", first.key_digest)
    assert abandoned.lease_ended_at - abandoned.claimed_at == 60
    assert abandoned.request is not None
    assert abandoned.request.body.in_memory() == b"x"
    assert first._claim.record.pk not in repr(abandoned)


def test_nobody_is_asked_about_what_was_not_abandoned(world: World) -> None:
    """Not about a first request, one that runs, one that failed, or another request's key."""

    def never(_: Abandoned) -> None:
        raise AssertionError

    lease = world.lease(request(b"x"), prober=never)
    assert world.problem(request(b"x"), prober=never) == "in-progress"
    world.do(lease, "fail")
    world.do(world.lease(request(b"x"), prober=never), "fail")
    world.lease(request(b"x"))
    world.freeze(100)
    assert world.problem(request(b"y"), prober=never) == "key-reused"


def test_a_client_that_loops_does_not_make_the_prober_loop(world: World) -> None:
    """What is unknown stays so for five seconds."""
    asked: list[Abandoned] = []
    crash(world)
    options: dict[str, Any] = {"prober": asked.append, "on_abandoned": "refuse"}
    for _ in range(10):
        assert world.problem(request(b"x"), **options) == "outcome-unknown"
    assert len(asked) == 1
    world.freeze(6)
    world.problem(request(b"x"), **options)
    assert len(asked) == 2


def test_a_prober_that_hangs_is_not_waited_for(world: World) -> None:
    """It is asked no more meanwhile, and nobody's thread hangs with it."""
    crash(world)
    release = threading.Event()
    options: dict[str, Any] = {"prober": lambda _: release.wait(30), "prober_seconds": 0.01, "on_abandoned": "refuse"}
    assert world.problem(request(b"x"), **options) == "outcome-unknown"
    release.set()


def test_who_comes_while_the_prober_is_asked_is_told_to_come_again(world: World) -> None:
    """One asks for one key."""
    crash(world)
    other: list[str] = []
    second = world.another()
    second.runtime.probes = world.runtime.probes

    def probe(_: Abandoned) -> object:
        other.append(second.problem(request(b"x"), prober=probe))
        return Done(CREATED)

    assert world.replay(request(b"x"), prober=probe) == CREATED
    assert other == ["in-progress"]


def test_a_waiter_waits_for_what_is_found_out(world: World) -> None:
    """With patience it gets the answer."""
    crash(world)
    prober: Prober = lambda _: Done(CREATED)  # noqa: E731
    pk = world.record().pk
    assert world.runtime.probes.begin(pk) is Admission.ASK
    other = world.another()

    def found_out() -> None:
        world.runtime.probes.end(pk, UNKNOWN)
        world.runtime.probes.finished()
        assert other.replay(request(b"x"), prober=prober) == CREATED

    world.while_waiting(found_out)
    assert world.replay(request(b"x"), prober=prober, wait_seconds=5) == CREATED


def test_of_two_probers_the_first_to_write_wins(world: World) -> None:
    """The other gives the first one's answer, whatever its own says."""
    crash(world)
    other = world.another()

    def slow(_: Abandoned) -> Done:
        assert other.replay(request(b"x"), prober=lambda _: Done(Response(200, (), b"first"))).body == b"first"
        return Done(Response(200, (), b"second"))

    assert world.replay(request(b"x"), prober=slow).body == b"first"


def test_a_take_over_while_the_prober_is_asked_wins(world: World) -> None:
    """Its attempt runs, and is not written over."""
    crash(world)
    other = world.another()

    def slow(_: Abandoned) -> Done:
        other.lease(request(b"x"))
        return Done(CREATED)

    assert world.problem(request(b"x"), prober=slow) == "in-progress"
    assert world.record().status is Status.PENDING


def test_an_answer_that_can_not_be_written_is_not_given(world: World) -> None:
    """Nor is the work run, even where a store's failure is bypassed: it is known to be done."""
    crash(world)
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    options: dict[str, Any] = {"prober": lambda _: Done(CREATED), "on_store_error": "bypass"}
    assert world.problem(request(b"x"), **options) == "store-unavailable"
    assert world.replay(request(b"x"), **options) == CREATED


@pytest.mark.parametrize("kind", [SyncWorld, AsyncWorld], ids=["threads", "loop"])
def test_a_large_answer_of_a_prober_lies_beside_its_record(kind: type[World]) -> None:
    """As any other."""
    world = kind(ChunkStore(clock=ManualClock(margin_seconds=2.0)))
    answer = Response(200, (), bytes(range(256)) * 64)
    crash(world)
    assert world.replay(request(b"x"), prober=lambda _: Done(answer)) == answer
    assert world.replay(request(b"x")) == answer
    world.close()


def test_a_blocking_engine_can_not_ask_a_coroutine() -> None:
    """It says so, and nothing is known."""
    world = SyncWorld()

    async def probe(_: Abandoned) -> Done:
        return Done(CREATED)

    crash(world)
    assert world.problem(request(b"x"), prober=probe, on_abandoned="refuse") == "outcome-unknown"


# --- the bounds -------------------------------------------------------------------------------------------------------


def test_eight_are_asked_at_once_and_what_hangs_counts_until_it_ends() -> None:
    """Threads that nobody waits for any longer are still there."""
    probes = Probes(ManualClock().monotonic)
    assert [probes.begin(str(key)) for key in range(9)] == [Admission.ASK] * 8 + [Admission.UNKNOWN]
    probes.end("0", UNKNOWN)
    assert probes.begin("9") is Admission.UNKNOWN
    probes.finished()
    assert probes.begin("9") is Admission.ASK


def test_what_is_remembered_is_bounded() -> None:
    """The oldest key is forgotten first."""
    probes = Probes(ManualClock().monotonic)
    for key in range(1025):
        probes.begin(str(key))
        probes.end(str(key), UNKNOWN)
        probes.finished()
    assert probes.begin("0") is Admission.ASK
    assert probes.begin("1024") is Admission.UNKNOWN


def test_without_a_thread_nothing_is_known(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """A process at its limits goes on."""

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended: list[None] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        future = probe_in_thread(lambda _: None, abandoned_of(world), lambda: ended.append(None))
    assert isinstance(future.exception(0), RuntimeError)
    assert ended == [None]


def abandoned_of(world: World) -> Abandoned:
    """Something to ask about."""
    crash(world)
    found = world.memory.load(world.record().pk, 0)
    assert isinstance(found, Found)
    return Abandoned(request=None, attempt=1, claimed_at=0, lease_ended_at=1, checkpoint=None, _pk=found.record.pk)
