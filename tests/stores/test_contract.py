"""The contract, kept by every store, from threads and from event loops, and over each transport.

On an event loop boto3 runs in threads, and the lean transport natively.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idem_middleware.stores import DynamoDBStore, MemoryStore, Store
from idem_middleware.stores.dynamodb.aio import AsyncDynamoDBStore
from idem_middleware.stores.dynamodb.transport import TransportName
from idem_middleware.stores.threaded import ThreadedStore
from tests.stores.contract import AsyncStoreAsStore, ChunkedStoreContract, StoreContract, on_a_loop


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


@pytest.mark.parametrize(
    ("transport", "kind"), [("boto3", ThreadedStore), ("lean", AsyncDynamoDBStore)], indirect=["transport"]
)
def test_an_event_loop_gets_what_its_transport_can_do(transport: TransportName, kind: type) -> None:
    """So the classes above test what they say."""
    assert isinstance(DynamoDBStore(transport=transport).to_async(), kind)
