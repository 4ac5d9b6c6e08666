"""Erasing an answer: nothing of it is left, and its work does not run again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from idem_middleware import Engine, MemoryStore, Options, RequestRefused, Response, StoreUnavailable
from idem_middleware.ciphers import AesGcm
from idem_middleware.erasure import Erasure, erase
from idem_middleware.keys import KeyInvalid
from idem_middleware.records import OmittedResponse
from idem_middleware.testing import Fault, ManualClock
from tests.core.support.stores import ChunkStore
from tests.core.support.worlds import CREATED, SyncWorld, request

LARGE = Response(201, (("location", "/orders/1"),), b"".join(n.to_bytes(4, "big") for n in range(900_000)))
CIPHER = AesGcm({"now": b"k" * 32})


@pytest.fixture
def world() -> Iterator[SyncWorld]:
    """A process whose store keeps large bodies beside the records."""
    made = SyncWorld(ChunkStore(clock=ManualClock(margin_seconds=2.0)))
    yield made
    made.close()


def pieces(world: SyncWorld) -> list[bytes]:
    """What lies beside the records."""
    assert isinstance(world.memory, ChunkStore)
    return [piece for piece in world.memory.chunks.values() if piece]


@pytest.mark.parametrize("cipher", [None, CIPHER], ids=["plain", "sealed"])
@pytest.mark.parametrize("answer", [CREATED, LARGE], ids=["small", "large"])
def test_nothing_of_an_answer_is_left_and_nothing_runs_again(world: SyncWorld, answer: Response, cipher: Any) -> None:
    """Whether its length shows or not."""
    world.settle(world.lease(cipher=cipher), answer)
    assert pieces(world) or answer is CREATED
    assert world.engine.erase("k") is Erasure.ERASED
    assert pieces(world) == []
    assert world.record().response == OmittedResponse(reason="response-not-stored")
    assert world.problem(cipher=cipher) == "response-not-stored"
    assert world.engine.erase("k") is Erasure.NOTHING_KEPT


def test_the_location_of_an_answer_that_was_not_kept_is_erased_too(world: SyncWorld) -> None:
    """It may name somebody."""
    world.do(world.lease(), "omit", "/customers/ann")
    assert world.engine.erase("k") is Erasure.ERASED
    assert world.record().response == OmittedResponse(reason="response-not-stored")


def test_what_was_interrupted_is_finished(world: SyncWorld) -> None:
    """The answer was gone for readers; now its pieces are."""
    world.settle(world.lease(), LARGE)
    world.store.fail(Fault.LOST_REQUEST, on="put_chunks")
    with pytest.raises(StoreUnavailable):
        world.engine.erase("k")
    assert world.problem() == "response-not-stored"
    assert pieces(world)
    assert world.engine.erase("k") is Erasure.ERASED
    assert pieces(world) == []


def test_what_runs_is_not_erased(world: SyncWorld) -> None:
    """Its answer comes later."""
    lease = world.lease()
    assert world.engine.erase("k") is Erasure.IN_PROGRESS
    world.settle(lease)
    assert world.engine.erase("k") is Erasure.ERASED


def test_where_no_answer_is_there_is_nothing_to_erase(world: SyncWorld) -> None:
    """No record, a failed attempt, an abandoned one."""
    assert world.engine.erase("never used") is Erasure.NOTHING_KEPT
    world.settle(world.lease(), Response(500))
    assert world.engine.erase("k") is Erasure.NOTHING_KEPT
    world.lease()
    world.freeze(100)
    assert world.engine.erase("k") is Erasure.NOTHING_KEPT


def test_a_record_of_a_newer_version_is_left_alone(world: SyncWorld) -> None:
    """Nobody here knows what is in it."""
    world.settle(world.lease(), CREATED)
    record = replace(world.record(), schema=99)
    world.memory._records[record.pk] = record
    assert world.engine.erase("k") is Erasure.UNREADABLE


def test_a_record_that_changes_meanwhile_is_looked_at_again(world: SyncWorld) -> None:
    """And one that always does is in progress."""
    world.settle(world.lease(), CREATED)

    def touch() -> None:
        record = world.record()
        world.memory._records[record.pk] = replace(record, version=record.version + 1)

    world.store.before(touch, on="swap")
    assert world.engine.erase("k") is Erasure.ERASED
    world.settle(world.lease(request(key="2")), CREATED)
    for turn in range(16):
        world.store.before(touch, on="swap", skip=turn)
    assert world.engine.erase("2") is Erasure.IN_PROGRESS


def test_a_key_is_found_by_its_caller_and_its_kind() -> None:
    """As requests and functions find it."""
    engine = Engine(MemoryStore(), Options(namespace="n", caller=lambda native: 7))
    engine.run(request(key="k", native=object()), lambda lease: CREATED)
    engine.run_once("k", None, lambda lease: "done")
    assert engine.erase("k") is Erasure.NOTHING_KEPT
    assert engine.erase("k", caller=8) is Erasure.NOTHING_KEPT
    assert engine.erase('"k"', caller=7) is Erasure.ERASED
    assert engine.erase("k", function=True) is Erasure.ERASED
    with pytest.raises(RequestRefused):
        engine.run_once("k", None, lambda lease: "again")
    with pytest.raises(KeyInvalid):
        engine.erase("")


def test_pieces_of_any_number_are_found() -> None:
    """Without knowing how many there are."""
    store = ChunkStore(clock=ManualClock())
    world = SyncWorld(store)
    world.settle(world.lease(), LARGE)
    record = world.record()
    store.chunks.update({(record.owner, number): b"x" for number in range(100)})
    assert erase(store, record.pk) is Erasure.ERASED
    assert pieces(world) == []
    world.close()
