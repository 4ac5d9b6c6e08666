"""The store in this process: its bounds, and what it gives up to keep them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from idem_middleware.errors import ConfigurationError, StoreFull
from idem_middleware.records import KeptResponse, Record, Status
from idem_middleware.stores import MemoryStore
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.expiry import ExpiryIndex
from idem_middleware.transactions import Transaction
from tests.stores.doubles import ManualTime
from tests.stores.records import after, pending

Make = Callable[..., MemoryStore]


@pytest.fixture
def store_of(time: ManualTime) -> Make:
    """Make a store whose time stands still."""
    return lambda **bounds: MemoryStore(clock=time.clock(), **bounds)


def claim(store: MemoryStore, pk: str, time: ManualTime, retention: float = 100.0) -> Record:
    """Claim a key."""
    record = replace(pending(pk, now=time.now), bound_until=time.now + retention)
    assert store.create(record, 0.0) == Written()
    return record


def complete(store: MemoryStore, record: Record, body: bytes = b"") -> Record:
    """Record the answer."""
    done = after(record, status=Status.COMPLETED, response=KeptResponse(status=200, headers=(), body=body))
    assert store.swap(record, done, 0.0) == Written()
    return done


def stands(store: MemoryStore, pk: str) -> bool:
    """Whether there is a record."""
    return isinstance(store.load(pk, 0.0), Found)


def test_the_oldest_completed_record_goes_first(store_of: Make, time: ManualTime) -> None:
    """The answers that were given longest ago are the least likely to be asked for."""
    store = store_of(max_entries=3)
    first, second, third = (claim(store, pk, time) for pk in ("1", "2", "3"))
    complete(store, second)
    complete(store, first)
    claim(store, "4", time)
    assert [stands(store, pk) for pk in "1234"] == [True, False, True, True]
    assert third.status is Status.PENDING


def test_a_live_claim_is_never_given_up(store_of: Make, time: ManualTime) -> None:
    """Its request would run twice; a new one is refused instead."""
    store = store_of(max_entries=2)
    claim(store, "1", time)
    claim(store, "2", time)
    with pytest.raises(StoreFull, match="2 records"):
        store.create(pending("3", now=time.now), 0.0)
    assert [stands(store, pk) for pk in "123"] == [True, True, False]


def test_a_failed_attempt_is_never_given_up(store_of: Make, time: ManualTime) -> None:
    """Its checkpoint and its count of attempts would be lost."""
    store = store_of(max_entries=1)
    record = claim(store, "1", time)
    assert store.swap(record, after(record, status=Status.FAILED), 0.0) == Written()
    with pytest.raises(StoreFull):
        store.create(pending("2", now=time.now), 0.0)


def test_a_free_key_makes_room_before_a_completed_one(store_of: Make, time: ManualTime) -> None:
    """What is over costs nobody anything."""
    store = store_of(max_entries=2)
    claim(store, "over", time, retention=10.0)
    complete(store, claim(store, "done", time, retention=1000.0))
    time.pass_by(10.0)
    claim(store, "new", time)
    assert [stands(store, pk) for pk in ("over", "done", "new")] == [False, True, True]


def test_a_key_is_bound_until_its_very_end(store_of: Make, time: ManualTime) -> None:
    """A moment before, it is not free."""
    store = store_of(max_entries=1)
    claim(store, "1", time, retention=10.0)
    time.pass_by(9.99)
    with pytest.raises(StoreFull):
        store.create(pending("2", now=time.now), 0.0)
    time.pass_by(0.01)
    claim(store, "2", time)


def test_bytes_are_bounded_too(store_of: Make, time: ManualTime) -> None:
    """Large answers push out older ones."""
    store = store_of(max_bytes=10_000)
    for pk in "123456":
        complete(store, claim(store, pk, time), body=b"x" * 3000)
        assert store.size_bytes <= 10_000
    assert stands(store, "6")
    assert not stands(store, "1")


def test_an_answer_is_recorded_even_where_there_is_no_room(store_of: Make, time: ManualTime) -> None:
    """The work is done; refusing the record would have it done again."""
    store = store_of(max_bytes=3000)
    first, second = claim(store, "1", time), claim(store, "2", time)
    done = after(first, status=Status.COMPLETED, response=KeptResponse(status=200, headers=(), body=b"x" * 1500))
    assert store.swap(first, done, 0.0) == Written()
    assert stands(store, second.pk)


def test_what_is_given_up_gives_its_bytes_back(store_of: Make, time: ManualTime) -> None:
    """The count does not drift."""
    store = store_of(max_entries=5)
    for number in range(100):
        complete(store, claim(store, str(number), time), body=b"x" * number)
    for pk in [str(number) for number in range(100)]:
        found = store.load(pk, 0.0)
        if isinstance(found, Found):
            assert store.swap(found.record, after(found.record, status=Status.FAILED, response=None), 0.0) == Written()
    assert len(store) == 5
    assert store.size_bytes == 5 * 1024


def test_keys_that_are_over_are_forgotten_as_new_ones_come(store_of: Make, time: ManualTime) -> None:
    """A backlog of a thousand is gone after five hundred new keys, without anybody asking for them again."""
    store = store_of()
    for number in range(1000):
        claim(store, f"old {number}", time, retention=10.0)
    time.pass_by(10.0)
    for number in range(500):
        claim(store, f"new {number}", time)
    assert len(store) == 500


def test_a_renewed_claim_outlives_its_first_end(store_of: Make, time: ManualTime) -> None:
    """An end that was moved is not an end."""
    store = store_of()
    record = claim(store, "1", time, retention=10.0)
    renewed = after(record, bound_until=time.now + 100.0)
    assert store.swap(record, renewed, 0.0) == Written()
    time.pass_by(50.0)
    claim(store, "2", time)
    assert store.load("1", 0.0) == Found(renewed)


@pytest.mark.parametrize("pause_seconds", [0.0005, 0.1])
def test_a_store_at_its_bound_takes_no_more_memory(store_of: Make, time: ManualTime, pause_seconds: float) -> None:
    """However many keys come and go before the first of them would be free, many at a time or one after another."""
    store = store_of(max_entries=100)

    def serve(requests: range) -> int:
        for number in requests:
            complete(store, claim(store, str(number), time, retention=86_400.0))
            time.pass_by(pause_seconds)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        warm = serve(range(2_000))
        assert serve(range(2_000, 12_000)) < warm + 32 * 1024
    finally:
        tracemalloc.stop()


class CountingDict(dict[str, Record]):
    """Counts the records that anybody walks over."""

    walked = 0

    def values(self) -> list[Record]:  # type: ignore[override]
        """All records, counted."""
        self.walked += len(self)
        return list(super().values())

    def items(self) -> list[tuple[str, Record]]:  # type: ignore[override]
        """All records, counted."""
        self.walked += len(self)
        return list(super().items())


def test_collecting_never_walks_over_all_records(store_of: Make, time: ManualTime) -> None:
    """A new key costs the same in a full store as in an empty one: over all calls, a constant number of looks each."""
    store = store_of(max_entries=2000)
    store._records = records = CountingDict()
    calls = 0
    for number in range(4000):
        record = claim(store, str(number), time, retention=float(number % 100 + 1))
        for _ in range(3):
            renewed = after(record, bound_until=record.bound_until + 0.5)
            assert store.swap(record, renewed, 0.0) == Written()
            record = renewed
        complete(store, record)
        calls += 5
        time.pass_by(0.01)
    assert records.walked <= calls


@pytest.mark.parametrize("bounds", [{"max_entries": 0}, {"max_bytes": 0}, {"max_entries": -1}], ids=str)
def test_a_store_without_room_is_not_made(store_of: Make, bounds: dict[str, int]) -> None:
    """A bound of nothing is a mistake."""
    with pytest.raises(ConfigurationError, match="1 or more"):
        store_of(**bounds)


def test_bodies_never_lie_beside_their_record(store_of: Make) -> None:
    """There is no limit that would need it; asking for it is a bug."""
    store = store_of()
    assert store.inline_bytes is None
    with pytest.raises(AssertionError):
        store.put_chunks(pending("1"), [b"x"], 0.0)
    with pytest.raises(AssertionError):
        store.get_chunks(pending("1"), 1, 0.0)
    assert isinstance(store.load("1", 0.0), Gone)


def test_a_key_that_was_renewed_often_still_makes_room(store_of: Make, time: ManualTime) -> None:
    """However many ends it had before its last one, once that is past the key is free."""
    store = store_of(max_entries=1)
    record = claim(store, "1", time, retention=10.0)
    for _ in range(20):
        renewed = after(record, bound_until=record.bound_until + 1.0)
        assert store.swap(record, renewed, 0.0) == Written()
        record = renewed
    time.pass_by(100.0)
    claim(store, "2", time)


def test_as_many_free_keys_go_as_a_large_record_needs(store_of: Make, time: ManualTime) -> None:
    """Nothing is refused while there are records that nobody needs."""
    store = store_of(max_bytes=8 * 1024)
    for number in range(8):
        claim(store, str(number), time, retention=10.0)
    time.pass_by(10.0)
    large = replace(
        pending("large", now=time.now), response=KeptResponse(status=200, headers=(), body=b"x" * (5 * 1024))
    )
    assert store.create(large, 0.0) == Written()


def test_it_keeps_nothing_beside_its_records() -> None:
    """Neither other items nor pieces of bodies: whoever asks for it has not looked at what it says of itself."""
    store = MemoryStore()
    with pytest.raises(ConfigurationError, match="MemoryStore has no transactions"):
        store.transact(None, pending("1"), Transaction((), "t"), 0.0)
    for ask in (lambda: store.put_chunks(pending("1"), [b""], 0.0), lambda: store.get_chunks(pending("1"), 1, 0.0)):
        with pytest.raises(AssertionError, match="in the record"):
            ask()


def test_a_key_that_is_not_in_the_index_can_be_taken_out_of_it() -> None:
    """Of its moment there may be no other key left."""
    index = ExpiryIndex()
    index.discard("1", 5.0)
    index.add("2", 5.0)
    index.discard("1", 5.0)
    assert (index.pop_ended(4.9), index.pop_ended(5.0), index.pop_ended(9.0)) == (None, "2", None)
