"""Stores by their URL."""

from __future__ import annotations

import pytest

from idem_middleware.errors import ConfigurationError
from idem_middleware.stores import DynamoDBStore, MemoryStore, store_from_url
from idem_middleware.stores.dynamodb.lean.blocking import LeanTransport
from tests.stores.records import pending


def test_memory_gives_a_memory_store() -> None:
    """With its own bounds."""
    assert isinstance(store_from_url("memory://"), MemoryStore)


def test_memory_takes_bounds() -> None:
    """As parameters."""
    store = store_from_url("memory://?max_entries=1&max_bytes=100000")
    assert isinstance(store, MemoryStore)
    store.create(pending("1"), 0.0)
    assert (store._max_entries, store._max_bytes) == (1, 100_000)


def test_dynamodb_takes_table_region_and_endpoint() -> None:
    """All that differs between a laptop and production."""
    store = store_from_url("dynamodb://My_Keys.v2?region=eu-central-1&endpoint=http://127.0.0.1:8000")
    assert isinstance(store, DynamoDBStore)
    assert store.table == "My_Keys.v2"
    client = store._transport.get()  # type: ignore[attr-defined]
    assert (client.meta.region_name, client.meta.endpoint_url) == ("eu-central-1", "http://127.0.0.1:8000")


def test_dynamodb_takes_a_transport() -> None:
    """The same as the class's."""
    store = store_from_url("dynamodb://keys?transport=lean")
    assert isinstance(store, DynamoDBStore)
    assert isinstance(store._transport, LeanTransport)


@pytest.mark.parametrize("url", ["dynamodb://", "dynamodb:///", "DynamoDB://"])
def test_the_table_has_a_default_name(url: str) -> None:
    """The same as the class's."""
    store = store_from_url(url)
    assert isinstance(store, DynamoDBStore)
    assert store.table == DynamoDBStore().table == "idempotency_keys"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamo://keys", r"did you mean dynamodb\?"),
        ("memroy://", r"did you mean memory\?"),
        ("redis://user:password@host", "one of memory://, dynamodb://"),
        ("keys", "one of memory://, dynamodb://"),
        ("", "one of memory://, dynamodb://"),
        ("memory:", "one of memory://, dynamodb://"),
        ("dynamodb:keys", "one of memory://, dynamodb://"),
        ("http://[", "not a URL"),
        ("memory://?max_entry=1", r"no parameter max_entry; did you mean max_entries\?"),
        ("memory://?max_entries=many", "max_entries must be a whole number"),
        ("memory://?max_entries=0", "1 or more"),
        ("memory://?max_entries=-1", "1 or more"),
        ("memory://?max_bytes=\u00b2", "max_bytes must be a whole number"),
        ("memory://?max_bytes=", "max_bytes must be a whole number"),
        ("memory://?max_bytes=1&max_bytes=2", "given twice"),
        ("memory://host", "no host"),
        ("memory://#x", "no fragment"),
        ("dynamodb://keys?regoin=x", r"no parameter regoin; did you mean region\?"),
        ("dynamodb://keys?max_entries=5", "no parameter max_entries"),
        ("dynamodb://keys?region=", "region has no value"),
        ("dynamodb://keys?transport=fast", "transport must be one of boto3, lean"),
        ("dynamodb://keys?endpoint=localhost:8000", "endpoint must be an http or https URL"),
        ("dynamodb://keys/and/more", "no path"),
        ("dynamodb://ab", "3 to 255"),
        ("dynamodb://a%20b", "3 to 255"),
        ("dynamodb://AKIAKEY:SECRET@keys", "credentials don't belong"),
    ],
)
def test_wrong_urls_say_what_is_right(url: str, says: str) -> None:
    """At start-up, with the nearest right name."""
    with pytest.raises(ConfigurationError, match=says):
        store_from_url(url)


@pytest.mark.parametrize("url", ["redis://user:SECRET@host", "dynamodb://AKIA:SECRET@keys/x?y=1", "SECRET"])
def test_errors_do_not_repeat_passwords(url: str) -> None:
    """URLs hold them, and errors go to logs."""
    with pytest.raises(ConfigurationError) as raised:
        store_from_url(url)
    assert "SECRET" not in str(raised.value)


def test_all_that_is_wrong_comes_in_one_error() -> None:
    """Nobody wants to find it bit by bit."""
    with pytest.raises(ConfigurationError) as raised:
        store_from_url("memory://host?max_entries=x&max_bytes=y&z=1#f")
    assert len(raised.value.problems) == 5


@pytest.mark.parametrize("url", [None, 5, b"memory://"])
def test_what_is_no_text_is_no_url(url: object) -> None:
    """Its type is told; its value may hold a password."""
    with pytest.raises(ConfigurationError, match=f"not of type {type(url).__name__}"):
        store_from_url(url)  # type: ignore[arg-type]
