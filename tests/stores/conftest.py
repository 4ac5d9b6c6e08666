"""Tables for the store tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from moto import mock_aws

from idem_middleware.stores import DynamoDBStore, Store
from idem_middleware.stores.dynamodb.transport import TRANSPORTS, TransportName
from idem_middleware.stores.regional import RegionalStore
from idem_middleware.testing.contract import on_a_loop
from tests.stores.doubles import ManualTime
from tests.stores.records import new_pk
from tests.support.patience import patient


@pytest.fixture
def time() -> ManualTime:
    """Time that passes only where the test says so."""
    return ManualTime()


@pytest.fixture(scope="class", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> TransportName:
    """What carries the calls. Whoever asks for it is tested with each."""
    name: TransportName = request.param
    return name


@pytest.fixture(scope="class")
def moto_store(transport: TransportName) -> Iterator[DynamoDBStore]:
    """A store on moto, in this process."""
    with mock_aws():
        store = DynamoDBStore("keys", region="eu-central-1", transport=transport)
        store.create_table()
        yield store


@pytest.fixture(scope="class")
def moto_regional_store(transport: TransportName) -> Iterator[RegionalStore]:
    """A store on moto that has a table in each of two regions."""
    with mock_aws():
        store = RegionalStore("keys", ["eu-central-1", "us-east-1"], transport=transport)
        store.create_table()
        yield store


@pytest.fixture(scope="class")
def local_store(dynamodb_local: str, transport: TransportName) -> DynamoDBStore:
    """A store on DynamoDB Local, with a table of its own."""
    name = f"keys-{new_pk()[:12]}"
    store = DynamoDBStore(name, **patient(region="eu-central-1", endpoint=dynamodb_local, transport=transport))
    store.create_table()
    return store


@pytest.fixture(scope="class")
def moto_caller_store(transport: TransportName) -> Iterator[DynamoDBStore]:
    """A store on moto that keeps each caller's records together."""
    with mock_aws():
        store = DynamoDBStore("keys", region="eu-central-1", transport=transport, layout="caller")
        store.create_table()
        yield store


@pytest.fixture(scope="class")
def local_caller_store(dynamodb_local: str, transport: TransportName) -> DynamoDBStore:
    """The same on DynamoDB Local."""
    name = f"keys-{new_pk()[:12]}"
    store = DynamoDBStore(name, region="eu-central-1", endpoint=dynamodb_local, transport=transport, layout="caller")
    store.create_table()
    return store


OpenStore = Callable[..., Store]


def _opener(kind: str) -> Iterator[OpenStore]:
    with ExitStack() as stack:

        def make(**settings: Any) -> Store:
            settings.setdefault("region", "eu-central-1")
            name, _, looped = kind.partition(" on ")
            store = DynamoDBStore("keys", transport=name, **settings)  # type: ignore[arg-type]
            return stack.enter_context(on_a_loop(store)) if looped else store

        yield make


@pytest.fixture(params=["boto3", "lean", "lean on a loop"])
def open_store(request: pytest.FixtureRequest) -> Iterator[OpenStore]:
    """Make stores of the given settings over every transport, the native asynchronous one among them."""
    yield from _opener(request.param)


@pytest.fixture(params=["lean", "lean on a loop"])
def open_lean_store(request: pytest.FixtureRequest) -> Iterator[OpenStore]:
    """The same over those that are not boto3's."""
    yield from _opener(request.param)
