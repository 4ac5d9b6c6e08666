"""The contract, kept by every store, from threads and from event loops, and over each transport.

On an event loop boto3 runs in threads, and the lean transport natively.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idem_middleware.keys import caller_partition, placed
from idem_middleware.stores import DynamoDBStore, MemoryStore, Store
from idem_middleware.stores.base import Found, Written
from idem_middleware.stores.dynamodb.aio import AsyncDynamoDBStore, ThreadedTransport
from idem_middleware.stores.dynamodb.lean.aio import AsyncLeanTransport
from idem_middleware.stores.dynamodb.transport import TransportName
from idem_middleware.stores.threaded import ThreadedStore
from idem_middleware.testing.contract import AsyncStoreAsStore, ChunkedStoreContract, StoreContract, on_a_loop
from tests.stores.records import new_pk, pending, soon


class TestMemoryStore(StoreContract):
    """In this process."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty one."""
        return MemoryStore()


class TestMemoryStoreOnALoop(StoreContract):
    """In this process, asynchronously."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """An empty one."""
        with on_a_loop(MemoryStore()) as store:
            yield store


class TestMemoryStoreInThreads(StoreContract):
    """Through the threads that a blocking store gets."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """An empty one."""
        with on_a_loop(MemoryStore()) as store:
            yield AsyncStoreAsStore(ThreadedStore(MemoryStore()), store._runner, MemoryStore())  # type: ignore[attr-defined]

    def test_a_twin_sees_the_same_records(self, store: Store, pk: str) -> None:
        """Not here: a memory store is its own twin, and this class tests the threads."""


class TestDynamoDBStoreOnMoto(ChunkedStoreContract):
    """On moto."""

    @pytest.fixture
    def store(self, moto_store: DynamoDBStore) -> Store:
        """The class's own."""
        return moto_store


class TestDynamoDBStoreOnMotoOnALoop(ChunkedStoreContract):
    """On moto, asynchronously."""

    @pytest.fixture
    def store(self, moto_store: DynamoDBStore) -> Iterator[Store]:
        """The class's own."""
        with on_a_loop(moto_store) as store:
            yield store


@pytest.mark.dynamodb_local
class TestDynamoDBStoreOnDynamoDBLocal(ChunkedStoreContract):
    """On Amazon's own program."""

    @pytest.fixture
    def store(self, local_store: DynamoDBStore) -> Store:
        """The class's own."""
        return local_store


@pytest.mark.dynamodb_local
class TestDynamoDBStoreOnDynamoDBLocalOnALoop(ChunkedStoreContract):
    """On Amazon's own program, asynchronously."""

    @pytest.fixture
    def store(self, local_store: DynamoDBStore) -> Iterator[Store]:
        """The class's own."""
        with on_a_loop(local_store) as store:
            yield store


CALLER = caller_partition("", "ann")


class InACallersPartition(ChunkedStoreContract):
    """Names that say where they lie."""

    @staticmethod
    def new_pk() -> str:
        return placed(new_pk(), CALLER)

    def test_the_same_key_in_another_partition_is_another(self, store: Store, pk: str) -> None:
        """A plain condition is about one item, and an item is its whole key: partition and sort key."""
        elsewhere = placed(pk.partition("@")[0], caller_partition("", "bob"))
        store.create(pending(pk), soon(store))
        assert store.create(pending(elsewhere), soon(store)) == Written()
        assert store.create(pending(pk, owner="late"), soon(store)) == Found(pending(pk))


class TestCallerLayoutOnMotoOnALoop(InACallersPartition):
    """On moto, asynchronously, over each transport."""

    @pytest.fixture
    def store(self, moto_caller_store: DynamoDBStore) -> Iterator[Store]:
        """The class's own."""
        with on_a_loop(moto_caller_store) as store:
            yield store


@pytest.mark.dynamodb_local
class TestCallerLayoutOnDynamoDBLocal(InACallersPartition):
    """On Amazon's own program, over each transport."""

    @pytest.fixture
    def store(self, local_caller_store: DynamoDBStore) -> Store:
        """The class's own."""
        return local_caller_store


@pytest.mark.parametrize(
    ("transport", "kind"), [("boto3", ThreadedTransport), ("lean", AsyncLeanTransport)], indirect=["transport"]
)
def test_an_event_loop_gets_what_its_transport_can_do(transport: TransportName, kind: type) -> None:
    """So the classes above test what they say."""
    store = DynamoDBStore(transport=transport).to_async()
    assert isinstance(store, AsyncDynamoDBStore)
    assert isinstance(store._transport, kind)
