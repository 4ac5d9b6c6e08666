"""The helpers that users get for their own tests."""

from __future__ import annotations

import pytest

from idem_middleware import MemoryStore, StoreMisconfigured, StoreUnavailable
from idem_middleware.decisions import Create, decide
from idem_middleware.records import Record
from idem_middleware.stores.base import GONE, WRITTEN, Found
from idem_middleware.testing import Fault, FaultyStore, ManualClock
from tests.core.support.records import attempt_of
from tests.core.support.stores import ChunkStore


def claim(pk: str = "pk") -> Record:
    """A record to write."""
    step = decide(attempt_of(pk=pk), None, ManualClock().now())
    assert isinstance(step, Create)
    return step.new


@pytest.fixture
def store() -> FaultyStore:
    """A store without faults yet."""
    return FaultyStore(MemoryStore(clock=ManualClock()))


class TestManualClock:
    """Time by hand."""

    def test_it_stands_still(self) -> None:
        """Until it is told to go on; then both go on."""
        clock = ManualClock(1000.0)
        assert (clock.now(), clock.monotonic()) == (1000.0, 0.0)
        clock.advance(1.5)
        assert (clock.now(), clock.monotonic()) == (1001.5, 1.5)

    def test_an_offset_moves_the_wall_alone(self) -> None:
        """As a correction does."""
        clock = ManualClock(1000.0, margin_seconds=2.0, offset_seconds=5.0)
        assert (clock.now(), clock.monotonic(), clock.margin_seconds) == (1005.0, 0.0, 2.0)


class TestFaults:
    """What can happen to a call."""

    def test_without_any_it_is_the_other_store(self, store: FaultyStore) -> None:
        """And logs what it is asked."""
        record = claim()
        assert store.create(record, 0) is WRITTEN
        assert store.load("pk", 0) == Found(record)
        assert [(call.operation, call.pk, call.new, call.fault) for call in store.calls] == [
            ("create", "pk", record, None),
            ("load", "pk", None, None),
        ]
        assert (store.deadline_seconds, store.inline_bytes) == (3.0, None)
        assert store.twin() is store

    def test_a_lost_request(self, store: FaultyStore) -> None:
        """Never arrived."""
        store.fail(Fault.LOST_REQUEST)
        with pytest.raises(StoreUnavailable):
            store.create(claim(), 0)
        assert store.load("pk", 0) is GONE

    def test_a_lost_reply(self, store: FaultyStore) -> None:
        """Was applied."""
        store.fail(Fault.LOST_REPLY)
        with pytest.raises(StoreUnavailable):
            store.create(claim(), 0)
        assert store.load("pk", 0) == Found(claim())

    def test_one_that_is_sent_twice(self, store: FaultyStore) -> None:
        """Meets itself."""
        store.fail(Fault.SENT_TWICE)
        assert store.create(claim(), 0) == Found(claim())

    def test_a_refusal(self, store: FaultyStore) -> None:
        """Surely not applied."""
        store.fail(Fault.REFUSED)
        with pytest.raises(StoreMisconfigured):
            store.create(claim(), 0)
        assert store.calls[-1].fault is Fault.REFUSED

    def test_the_nth_of_an_operation(self, store: FaultyStore) -> None:
        """Others are not counted."""
        store.fail(Fault.LOST_REQUEST, on="create", skip=1, times=2)
        outcomes: list[object] = []
        for number in range(4):
            store.load("pk", 0)
            try:
                outcomes.append(store.create(claim(str(number)), 0))
            except StoreUnavailable:
                outcomes.append(None)
        assert outcomes == [WRITTEN, None, None, WRITTEN]

    def test_until_it_recovers(self, store: FaultyStore) -> None:
        """However often it is asked."""
        store.fail(Fault.LOST_REQUEST, times=None)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                store.load("pk", 0)
        store.recover()
        assert store.load("pk", 0) is GONE

    def test_something_just_before_a_call(self, store: FaultyStore) -> None:
        """As another worker could do it."""

        def another() -> None:
            store.store.create(claim(), 0)

        store.before(another, on="create")
        assert store.create(claim(), 0) == Found(claim())
        assert len(store.calls) == 1

    def test_bodies_meet_faults_as_well(self) -> None:
        """Where a store keeps them apart."""
        store = FaultyStore(ChunkStore(clock=ManualClock()))
        store.put_chunks(claim(), [b"a"], 0)
        store.fail(Fault.LOST_REQUEST, on="get_chunks")
        with pytest.raises(StoreUnavailable):
            store.get_chunks(claim(), 1, 0)
        assert store.get_chunks(claim(), 1, 0) == [b"a"]
