"""Tables for the store tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from idem_middleware.stores import DynamoDBStore
from tests.stores.doubles import ManualTime
from tests.stores.records import new_pk


@pytest.fixture
def time() -> ManualTime:
    """Time that passes only where the test says so."""
    return ManualTime()


@pytest.fixture(scope="class")
def moto_store() -> Iterator[DynamoDBStore]:
    """A store on moto, in this process."""
    with mock_aws():
        store = DynamoDBStore("keys", region="eu-central-1")
        store.create_table()
        yield store


@pytest.fixture(scope="class")
def local_store(dynamodb_local: str) -> DynamoDBStore:
    """A store on DynamoDB Local, with a table of its own."""
    store = DynamoDBStore(f"keys-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local)
    store.create_table()
    return store
