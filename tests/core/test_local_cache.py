"""Answers that a process keeps for itself: what they save, and that they show nobody more than the store would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from idem_middleware import ConfigurationError, Lease, MemoryStore, Options, Request, Response, StoreUnavailable
from idem_middleware.bodies import record_bytes
from idem_middleware.cache import _MOST_DROPPED, AnswerCache
from idem_middleware.events import EventKind
from idem_middleware.identity import Admitted
from idem_middleware.records import KeptResponse, OmittedResponse, Record, SealedResponse, Status
from idem_middleware.testing import Fault, ManualClock
from tests.core.support.forks import in_child
from tests.core.support.stores import ChunkStore
from tests.core.support.worlds import CREATED, AsyncWorld, SyncWorld, World, request

ROOM = 1_000_000


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["threads", "loop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A process, driven in one of two ways."""
    made: World = request.param()
    yield made
    made.close()


def done(world: World, sent: Request | None = None, response: Response = CREATED, **options: object) -> None:
    """One request, run and recorded; the calls that it took are forgotten."""
    options = {"local_cache_bytes": ROOM, **options}
    world.settle(world.lease(sent, **options), response)
    world.calls()
    world.kinds()


def test_off_by_default(world: World) -> None:
    """Memory is the service's own."""
    assert Options().local_cache_bytes == 0
    done(world, local_cache_bytes=0)
    assert world.replay() == CREATED
    assert world.calls() == ["create"]
    assert len(world.runtime.cache) == 0


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "16M", None])
def test_its_size_is_checked(wrong: object) -> None:
    """A whole number of bytes."""
    with pytest.raises(ConfigurationError, match="local_cache_bytes"):
        Options.from_mapping({"local_cache_bytes": wrong})


def test_what_was_recorded_here_is_replayed_without_a_call(world: World) -> None:
    """And the event says where the answer came from."""
    done(world)
    for _ in range(3):
        assert world.replay(local_cache_bytes=ROOM) == CREATED
    assert world.calls() == []
    event = world.last(EventKind.REPLAYED)
    assert (event.reason, event.status, event.attempt) == ("local-cache", 201, 1)


def test_what_was_read_from_the_store_is_kept_too(world: World) -> None:
    """The first retry costs its call, the others none."""
    world.another().run(lambda lease: CREATED)
    assert world.replay(local_cache_bytes=ROOM) == CREATED
    assert world.calls() == ["create"]
    assert world.last(EventKind.REPLAYED).reason is None
    assert world.replay(local_cache_bytes=ROOM) == CREATED
    assert world.calls() == []


def test_a_body_in_chunks_is_kept_whole_once_it_was_read() -> None:
    """It is checked when it comes, and no more after that."""
    world = SyncWorld(ChunkStore(clock=ManualClock()))
    large = Response(200, (), bytes(range(256)) * 4)
    done(world, response=large)
    assert world.replay(local_cache_bytes=ROOM) == large
    assert world.calls() == ["create", "get_chunks"]
    assert world.replay(local_cache_bytes=ROOM) == large
    assert world.calls() == []


def test_another_request_under_the_key_is_refused_by_the_store(world: World) -> None:
    """The cache answers nothing but replays."""
    done(world, request(b"1"))
    assert world.problem(request(b"2"), local_cache_bytes=ROOM) == "key-reused"
    assert world.calls() == ["create"]
    assert world.replay(request(b"1"), local_cache_bytes=ROOM) == CREATED
    assert world.calls() == []


def test_other_credentials_see_nothing_of_it(world: World) -> None:
    """As without a cache."""

    def sent(token: str) -> Request:
        plain = request()
        return replace(plain, headers=(*plain.headers, ("authorization", token)))

    done(world, sent("Bearer a"))
    assert world.problem(sent("Bearer b"), local_cache_bytes=ROOM) == "credentials-changed"
    assert world.replay(sent("Bearer a"), local_cache_bytes=ROOM) == CREATED


def test_another_callers_key_is_another_key(world: World) -> None:
    """Even if all else is the same."""
    done(world)
    engine = world.engine
    admitted = engine.admit(Options(local_cache_bytes=ROOM), "POST", "/orders", ["k"])
    assert isinstance(admitted, Admitted)
    assert isinstance(engine.acquire(request(), admitted, "bob"), Lease)


def test_it_ends_with_the_retention_and_a_margin_earlier(world: World) -> None:
    """Another worker's clock may be ahead, and it may have bound the key anew."""
    done(world, retention_seconds=100)
    world.pass_by(97.9)
    assert world.replay(local_cache_bytes=ROOM) == CREATED
    assert world.calls() == []
    world.pass_by(0.2)
    assert world.replay(local_cache_bytes=ROOM) == CREATED
    assert world.calls() == ["create"]
    world.pass_by(2)
    lease = world.lease(local_cache_bytes=ROOM)
    assert world.calls() == ["create", "swap"]
    world.settle(lease, Response(200))
    assert world.replay(local_cache_bytes=ROOM) == Response(200)


@pytest.mark.parametrize("status", [500, 403, 307])
def test_what_is_not_final_is_not_kept(world: World, status: int) -> None:
    """The next try must run."""
    done(world, response=Response(status))
    assert len(world.runtime.cache) == 0
    assert world.lease(local_cache_bytes=ROOM).attempt >= 1


def test_a_claim_of_another_worker_is_seen(world: World) -> None:
    """Nothing is remembered about what runs."""
    world.another().lease()
    assert world.problem(local_cache_bytes=ROOM) == "in-progress"
    assert len(world.runtime.cache) == 0


def test_an_erased_answer_is_not_given_again(world: World) -> None:
    """Not from memory either."""
    done(world)
    assert world.engine.erase("k") == "erased"
    assert world.problem(local_cache_bytes=ROOM) == "response-not-stored"


def test_an_answer_that_is_erased_while_it_is_read_is_not_kept(world: World) -> None:
    """The request that read it gives it, and no later one."""
    done(world)
    read = world.record()
    world.engine.erase("k")
    world.runtime.cache.keep(read, ROOM)
    assert world.problem(local_cache_bytes=ROOM) == "response-not-stored"


def test_an_answer_that_was_perhaps_erased_is_not_given_from_memory(world: World) -> None:
    """Whoever asked for it is told to call again; until then the store is asked."""
    done(world)
    world.store.fail(Fault.LOST_REPLY, on="swap")
    with pytest.raises(StoreUnavailable):
        world.engine.erase("k")
    assert world.problem(local_cache_bytes=ROOM) == "response-not-stored"


def test_a_sealed_answer_is_not_kept(world: World) -> None:
    """What must not lie in the table in the clear need not lie in memory."""
    sealed = record("a", response=SealedResponse(data=b"sealed"))
    world.runtime.cache.keep(sealed, ROOM, CREATED)
    assert len(world.runtime.cache) == 0


def test_a_view_may_do_without(world: World) -> None:
    """Options of its own."""
    done(world)
    assert world.replay(local_cache_bytes=0) == CREATED
    assert world.calls() == ["create"]


def test_what_only_observes_runs_all_the_same(world: World) -> None:
    """And reports what it would have replayed."""
    done(world)
    assert world.run(lambda lease: Response(202), mode="observe", local_cache_bytes=ROOM) == Response(202)
    assert world.last(EventKind.REPLAYED).observed
    assert world.calls() == []


def record(pk: str, body: bytes = b"", **changes: object) -> Record:
    """A completed one."""
    fields = {"status": Status.COMPLETED, "response": KeptResponse(status=200, headers=(), body=body), **changes}
    times = {"created_at": 0.0, "expires_at": 1.0, "bound_until": 1.0}
    return Record(pk=pk, version=2, owner="o", attempt=1, fingerprint=b"", caller_digest=None, **times, **fields)  # type: ignore[arg-type]


class TestBounds:
    """The memory that it takes."""

    def test_what_was_used_longest_ago_goes_first(self) -> None:
        """Found counts as used."""
        cache, room = AnswerCache(), 2 * record_bytes(record("a"))
        cache.keep(record("a"), room)
        cache.keep(record("b"), room)
        assert cache.find("a")
        cache.keep(record("c"), room)
        assert [pk for pk in "abc" if cache.find(pk)] == ["a", "c"]
        assert cache.size_bytes == room

    def test_what_is_larger_than_all_room_is_not_kept(self) -> None:
        """It would drive out everything else for nothing."""
        cache, room = AnswerCache(), 2 * record_bytes(record("a"))
        cache.keep(record("a"), room)
        cache.keep(record("b", bytes(room)), room)
        assert (len(cache), cache.find("b")) == (1, None)

    def test_what_was_dropped_is_remembered_for_a_while(self) -> None:
        """For longer than a request takes; not for ever, which would take memory."""
        cache = AnswerCache()
        for number in range(_MOST_DROPPED + 1):
            cache.drop(str(number))
        cache.keep(record("0"), ROOM)
        cache.keep(record("1"), ROOM)
        assert (len(cache), cache.find("1")) == (1, None)
        assert len(cache._dropped) == _MOST_DROPPED

    def test_a_newer_record_takes_the_place_of_the_older(self) -> None:
        """And the bytes are counted once."""
        cache = AnswerCache()
        cache.keep(record("a", b"long"), ROOM)
        cache.keep(newer := record("a", b"new"), ROOM)
        assert cache.find("a") is newer
        assert cache.size_bytes == record_bytes(newer)

    def test_a_record_that_is_over_does_not_take_a_newer_one_with_it(self) -> None:
        """Two threads may look at once."""
        cache = AnswerCache()
        older, newer = record("a", b"older"), record("a", b"newer")
        cache.keep(newer, ROOM)
        cache.forget(older)
        assert cache.find("a") is newer
        cache.forget(newer)
        assert (len(cache), cache.size_bytes) == (0, 0)

    @pytest.mark.parametrize(
        "useless",
        [
            record("a", status=Status.PENDING),
            record("a", status=Status.FAILED),
            record("a", response=None),
            record("a", response=OmittedResponse(reason="response-not-stored")),
        ],
        ids=["running", "failed", "nothing", "not-kept"],
    )
    def test_only_answers_are_kept(self, useless: Record) -> None:
        """Whatever else a record may say."""
        cache = AnswerCache()
        cache.keep(useless, ROOM)
        assert len(cache) == 0


def test_a_forked_child_begins_with_none() -> None:
    """A thread of the parent may be writing into it."""
    world = SyncWorld(MemoryStore(clock=ManualClock()))
    done(world)
    with world.runtime.cache._lock:
        assert in_child(lambda: world.runtime.cache.find(world._pk) is None and len(world.runtime.cache) == 0)
    assert len(world.runtime.cache) == 1
