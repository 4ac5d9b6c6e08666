"""What every store does, for whoever writes one. Needs pytest.

A test module derives a class and gives it a fixture `store`; `ChunkedStoreContract` is for stores whose
`inline_bytes` is not None:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore()

    class TestMyStoreOnALoop(StoreContract):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            with on_a_loop(MyStore()) as store:
                yield store
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from typing import Any, TypeVar

import pytest

from idem_middleware.decisions import Attempt, Execute, decide
from idem_middleware.options import Options
from idem_middleware.records import KeptResponse, Record, Status
from idem_middleware.stores.base import AsyncStore, Cancelled, Found, Gone, Store, Written
from idem_middleware.stores.faces import Face
from idem_middleware.testing.samples import NOW, SHAPES, SMALL_ANSWER, after, lives, new_pk, pending, soon
from idem_middleware.transactions import Transaction

__all__ = ["AsyncStoreAsStore", "ChunkedStoreContract", "StoreContract", "on_a_loop"]

T = TypeVar("T")


class AsyncStoreAsStore(Face[AsyncStore]):
    """An asynchronous store behind the calls of a synchronous one: each call is one run of an event loop."""

    def __init__(self, store: AsyncStore, runner: asyncio.Runner, plain: Store) -> None:
        super().__init__(store)
        self._runner = runner
        self._plain = plain

    @property
    def is_transactional(self) -> bool:
        return self._plain.is_transactional

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        return self._run(self._store.transact(old, new, transaction, deadline))

    def create(self, new: Record, deadline: float) -> Written | Found:
        return self._run(self._store.create(new, deadline))

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        return self._run(self._store.swap(old, new, deadline))

    def load(self, pk: str, deadline: float) -> Found | Gone:
        return self._run(self._store.load(pk, deadline))

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        self._run(self._store.put_chunks(owner, chunks, deadline))

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        return self._run(self._store.get_chunks(owner, count, deadline))

    def twin(self) -> Store:
        return self._plain.twin()

    def to_async(self) -> AsyncStore:
        return self._store

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)


@contextmanager
def on_a_loop(store: Store) -> Iterator[Store]:
    """The store's asynchronous face, to be tested by the same contract."""
    with asyncio.Runner() as runner:
        yield AsyncStoreAsStore(store.to_async(), runner, store)


class StoreContract:
    """Create, swap and load: a compare-and-swap register."""

    @staticmethod
    def new_pk() -> str:
        """A name for a record, as this store's layout wants it."""
        return new_pk()

    @pytest.fixture
    def pk(self) -> str:
        """A key of the test's own, so that tests can share a table."""
        return self.new_pk()

    # --- create and load ---

    def test_nothing_stands_under_a_new_key(self, store: Store, pk: str) -> None:
        """A key that was never written is gone."""
        assert isinstance(store.load(pk, soon(store)), Gone)

    def test_the_first_create_is_written(self, store: Store, pk: str) -> None:
        """A create under a new key puts its record there."""
        assert store.create(pending(pk), soon(store)) == Written()
        assert store.load(pk, soon(store)) == Found(pending(pk))

    def test_a_second_create_finds_the_first(self, store: Store, pk: str) -> None:
        """A create under a used key changes nothing and tells what stands there."""
        first, second = pending(pk, owner="first"), pending(pk, owner="second")
        store.create(first, soon(store))
        assert store.create(second, soon(store)) == Found(first)
        assert store.load(pk, soon(store)) == Found(first)

    def test_keys_are_independent(self, store: Store, pk: str) -> None:
        """A record under one key is not seen under another."""
        store.create(pending(pk), soon(store))
        assert store.create(pending(self.new_pk()), soon(store)) == Written()

    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_created_record_is_found_as_it_was_written(self, store: Store, pk: str, shape: str) -> None:
        """Every field comes back, whichever call brings it."""
        record = lives(pk)[shape]
        store.create(record, soon(store))
        assert store.load(pk, soon(store)) == Found(record)
        assert store.create(pending(pk, owner="other"), soon(store)) == Found(record)
        assert store.swap(pending(pk, owner="other"), pending(pk, version=9), soon(store)) == Found(record)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_swapped_record_is_found_as_it_was_written(self, store: Store, pk: str, shape: str) -> None:
        """Every field is written by a swap as it is by a create, and nothing of the old record stays."""
        old = replace(pending(pk), checkpoint=b"old", response=SMALL_ANSWER)
        record = replace(lives(pk)[shape], version=old.version + 1)
        store.create(old, soon(store))
        assert store.swap(old, record, soon(store)) == Written()
        assert store.load(pk, soon(store)) == Found(record)

    @pytest.mark.parametrize("fraction", [0.0, 0.5, 0.001, 0.000_001, 0.123_456, 0.999_999_9])
    def test_fractions_of_a_second_are_kept(self, store: Store, pk: str, fraction: float) -> None:
        """Leases may be shorter than a second, so no time is rounded to one (powertools-lambda-java#1281)."""
        now = float(int(NOW)) + fraction
        record = replace(pending(pk), created_at=now, expires_at=now + 0.25, bound_until=now + 0.5)
        store.create(record, soon(store))
        assert store.load(pk, soon(store)) == Found(record)

    # --- swap ---

    def test_a_swap_from_what_stands_there_is_written(self, store: Store, pk: str) -> None:
        """The owner of the newest version may write the next one."""
        claim = pending(pk)
        done = after(claim, status=Status.COMPLETED, response=SMALL_ANSWER)
        store.create(claim, soon(store))
        assert store.swap(claim, done, soon(store)) == Written()
        assert store.load(pk, soon(store)) == Found(done)

    @pytest.mark.parametrize(
        "difference",
        [
            {"version": 2},
            {"version": 0},
            {"owner": "somebody"},
            {"status": Status.FAILED},
            {"status": Status.COMPLETED},
        ],
        ids=str,
    )
    def test_a_swap_from_anything_else_finds_what_stands_there(
        self, store: Store, pk: str, difference: dict[str, Any]
    ) -> None:
        """One of version, owner and status that differs is enough: a late owner overwrites nothing."""
        claim = pending(pk)
        store.create(claim, soon(store))
        stale = replace(claim, **difference)
        assert store.swap(stale, after(stale, owner="late"), soon(store)) == Found(claim)
        assert store.load(pk, soon(store)) == Found(claim)

    def test_a_swap_compares_nothing_but_the_fence(self, store: Store, pk: str) -> None:
        """Times, fingerprints and answers are none of the store's business."""
        claim = pending(pk)
        store.create(claim, soon(store))
        other = replace(claim, fingerprint=b"other", expires_at=NOW, bound_until=NOW, caller_digest=None, attempt=7)
        assert store.swap(other, after(claim, owner="next"), soon(store)) == Written()

    def test_a_swap_where_nothing_stands_is_gone(self, store: Store, pk: str) -> None:
        """A swap never creates."""
        claim = pending(pk)
        assert isinstance(store.swap(claim, after(claim), soon(store)), Gone)
        assert isinstance(store.load(pk, soon(store)), Gone)

    def test_of_two_swaps_from_one_version_the_second_finds_the_first(self, store: Store, pk: str) -> None:
        """Two workers that take over at once: one of them wins."""
        claim = pending(pk)
        store.create(claim, soon(store))
        first, second = after(claim, owner="first"), after(claim, owner="second")
        assert store.swap(claim, first, soon(store)) == Written()
        assert store.swap(claim, second, soon(store)) == Found(first)

    def test_a_record_whose_time_is_over_still_stands(self, store: Store, pk: str) -> None:
        """Deletion by time lags, so nothing relies on it (flask-session#240): the old record is found and swapped."""
        old = replace(pending(pk), created_at=NOW - 1e6, expires_at=NOW - 1e6, bound_until=NOW - 9e5)
        store.create(old, soon(store))
        assert store.create(pending(pk), soon(store)) == Found(old)
        assert store.swap(old, pending(pk, version=old.version + 1), soon(store)) == Written()

    def test_a_record_that_was_found_does_not_change(self, store: Store, pk: str) -> None:
        """What a call gave stays as it was, whatever is written later."""
        claim = pending(pk)
        store.create(claim, soon(store))
        found = store.load(pk, soon(store))
        store.swap(claim, after(claim, owner="next"), soon(store))
        assert found == Found(claim)
        assert isinstance(found, Found)
        with pytest.raises(FrozenInstanceError):
            found.record.version = 5  # type: ignore[misc]

    # --- lost replies ---

    def test_a_create_sent_again_finds_its_own_record(self, store: Store, pk: str) -> None:
        """After a lost reply the resend brings one's own claim back, and it counts as won (aws-sdk-java#2667)."""
        attempt = attempt_of(pk)
        claim = attempt.claim(None, NOW)
        store.create(claim, soon(store))  # this reply is lost
        found = store.create(claim, soon(store))
        assert found == Found(claim)
        assert decide(attempt.after(claim), claim, NOW) == Execute(claim)

    def test_a_swap_sent_again_finds_its_own_record(self, store: Store, pk: str) -> None:
        """The same for a take-over: the resend does not fit the old version any more and brings the new one."""
        attempt = attempt_of(pk)
        old = pending(pk, owner="crashed")
        taken = attempt.claim(old, NOW)
        store.create(old, soon(store))
        store.swap(old, taken, soon(store))  # this reply is lost
        assert store.swap(old, taken, soon(store)) == Found(taken)
        assert decide(attempt.after(taken), taken, NOW) == Execute(taken)

    # --- around it ---

    def test_a_twin_sees_the_same_records(self, store: Store, pk: str) -> None:
        """The renewer's own connections lead to the same table."""
        store.create(pending(pk), soon(store))
        assert store.twin().load(pk, soon(store)) == Found(pending(pk))

    def test_its_limits_are_told(self, store: Store) -> None:
        """The engine plans with them."""
        assert store.deadline_seconds > 0
        assert store.inline_bytes is None or store.inline_bytes > 0


class ChunkedStoreContract(StoreContract):
    """The same, and bodies that lie beside their record."""

    def test_chunks_come_back_in_order(self, store: Store, pk: str) -> None:
        """What was written is read, piece by piece."""
        chunks = [b"one", b"\x00\xff" * 1000, b"three"]
        store.put_chunks(pending(pk), chunks, soon(store))
        assert list(store.get_chunks(pending(pk), 3, soon(store))) == chunks

    def test_a_single_chunk_comes_back(self, store: Store, pk: str) -> None:
        """The commonest case takes a simpler call."""
        store.put_chunks(pending(pk), [b"only"], soon(store))
        assert list(store.get_chunks(pending(pk), 1, soon(store))) == [b"only"]

    def test_more_chunks_than_one_call_reads_come_back(self, store: Store, pk: str) -> None:
        """BatchGetItem takes 100 keys."""
        chunks = [b"%d" % number for number in range(103)]
        store.put_chunks(pending(pk), chunks, soon(store))
        assert list(store.get_chunks(pending(pk), 103, soon(store))) == chunks

    def test_missing_chunks_are_none(self, store: Store, pk: str) -> None:
        """A piece that was swept away is told as such, in its place."""
        store.put_chunks(pending(pk), [b"zero", b"one"], soon(store))
        assert list(store.get_chunks(pending(pk), 4, soon(store))) == [b"zero", b"one", None, None]
        assert list(store.get_chunks(pending(self.new_pk()), 1, soon(store))) == [None]

    def test_chunks_belong_to_one_attempt(self, store: Store, pk: str) -> None:
        """Two attempts under one key don't overwrite each other's pieces."""
        first, second = pending(pk, owner="first"), pending(pk, owner="second")
        store.put_chunks(first, [b"1"], soon(store))
        store.put_chunks(second, [b"2"], soon(store))
        assert list(store.get_chunks(first, 1, soon(store))) == [b"1"]

    def test_chunks_may_be_written_twice(self, store: Store, pk: str) -> None:
        """A resend after a lost reply changes nothing."""
        for _ in range(2):
            store.put_chunks(pending(pk), [b"one", b"two"], soon(store))
        assert list(store.get_chunks(pending(pk), 2, soon(store))) == [b"one", b"two"]

    def test_chunks_are_no_records(self, store: Store, pk: str) -> None:
        """Writing a body claims nothing."""
        store.put_chunks(pending(pk), [b"one"], soon(store))
        assert isinstance(store.load(pk, soon(store)), Gone)

    def test_a_body_of_eight_megabytes_comes_back(self, store: Store, pk: str) -> None:
        """A whole answer of the largest default size, in pieces of the size that is used."""
        chunks = [bytes([number]) * (350 * 1024) for number in range(24)]
        store.put_chunks(pending(pk), chunks, soon(store))
        assert list(store.get_chunks(pending(pk), 24, soon(store))) == chunks

    def test_a_full_record_fits(self, store: Store, pk: str) -> None:
        """Headers beyond the inline size are still written: the answer matters more than the price."""
        headers = tuple((f"x-{number}", "v" * 1000) for number in range(60))
        record = after(
            pending(pk), status=Status.COMPLETED, response=KeptResponse(status=200, headers=headers, body=b"")
        )
        store.create(pending(pk), soon(store))
        assert store.swap(pending(pk), record, soon(store)) == Written()
        assert store.load(pk, soon(store)) == Found(record)


def attempt_of(pk: str) -> Attempt:
    """One try to do something under this key."""
    return Attempt(pk=pk, owner="me", fingerprint=b"f", caller_digest=None, options=Options())
