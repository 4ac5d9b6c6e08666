"""Fixtures for pytest. Installed with the package; nothing is imported before a test asks for it.

    idempotency_clock           a `ManualClock`
    idempotency_store           a `FaultyStore` over a store in memory, judged by that clock
    idempotency_engine          an `Engine` on that store
    idempotency_events          what this engine told its observers, in order
    idempotency_moto_store      a `DynamoDBStore` with its table, on moto in this process; nothing about races is proven
    idempotency_dynamodb_local  the URL of a DynamoDB Local, or the test is skipped
    idempotency_dynamodb_store  a `DynamoDBStore` with a table of its own there

DynamoDB Local is the one at the URL in IDEMPOTENCY_DYNAMODB_LOCAL_URL (such as the container amazon/dynamodb-local);
else one that is started from the folder in DYNAMODB_LOCAL_DIR, with java.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from idem_middleware import DynamoDBStore, Engine, Event
    from idem_middleware.testing.doubles import FaultyStore, ManualClock

__all__ = [
    "idempotency_clock",
    "idempotency_dynamodb_local",
    "idempotency_dynamodb_store",
    "idempotency_engine",
    "idempotency_events",
    "idempotency_moto_store",
    "idempotency_store",
]

_REGION = "eu-central-1"

# Emulators take any credentials; real ones must not be found by mistake.
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def idempotency_clock() -> ManualClock:
    """Time that passes when the test says so."""
    from idem_middleware.testing.doubles import ManualClock  # noqa: PLC0415

    return ManualClock()


@pytest.fixture
def idempotency_store(idempotency_clock: ManualClock) -> FaultyStore:
    """In memory, and failing where the test says so."""
    from idem_middleware import MemoryStore  # noqa: PLC0415
    from idem_middleware.testing.doubles import FaultyStore  # noqa: PLC0415

    return FaultyStore(MemoryStore(clock=idempotency_clock))


@pytest.fixture
def idempotency_events() -> list[Event]:
    """What `idempotency_engine` told, in order."""
    return []


@pytest.fixture
def idempotency_engine(idempotency_store: FaultyStore, idempotency_events: list[Event]) -> Iterator[Engine]:
    """With the default options and a shared caller. Give it to an adapter: `Idempotency(app, engine=…)`."""
    from idem_middleware import Engine, Options  # noqa: PLC0415

    engine = Engine(idempotency_store, Options(caller="shared", observers=(idempotency_events.append,)))
    yield engine
    engine.drain()


@pytest.fixture
def idempotency_moto_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBStore]:
    """On moto, which shows all calls and no races: it lets two claims win under threads."""
    moto = pytest.importorskip("moto", reason="idempotency_moto_store needs moto: pip install 'moto[dynamodb]'")
    from idem_middleware import DynamoDBStore  # noqa: PLC0415

    _use_test_credentials(monkeypatch)
    with moto.mock_aws():
        store = DynamoDBStore(_new_table(), region=_REGION)
        store.create_table()
        yield store


@pytest.fixture(scope="session")
def idempotency_dynamodb_local() -> Iterator[str]:
    """The endpoint of a DynamoDB Local, for the whole session. Tests take tables of their own."""
    url = os.environ.get("IDEMPOTENCY_DYNAMODB_LOCAL_URL")
    if url:
        yield url
        return
    from idem_middleware.testing.dynamodb_local import DynamoDBLocal, NotAvailable  # noqa: PLC0415

    try:
        local = DynamoDBLocal.find()
    except NotAvailable as reason:
        pytest.skip(str(reason))
    with local:
        yield local.url


@pytest.fixture
def idempotency_dynamodb_store(idempotency_dynamodb_local: str, monkeypatch: pytest.MonkeyPatch) -> DynamoDBStore:
    """With a table of this test's own."""
    from idem_middleware import DynamoDBStore  # noqa: PLC0415

    _use_test_credentials(monkeypatch)
    store = DynamoDBStore(_new_table(), region=_REGION, endpoint=idempotency_dynamodb_local)
    store.create_table()
    return store


def _new_table() -> str:
    return f"idempotency_test_{secrets.token_hex(6)}"


def _use_test_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
