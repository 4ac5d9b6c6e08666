"""HTTP idempotency on DynamoDB: a request under one key runs once, and its retries get the first answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from idem_middleware.aio.engine import AsyncEngine
    from idem_middleware.aio.lease import AsyncLease
    from idem_middleware.blocking.engine import Engine
    from idem_middleware.blocking.lease import Lease
    from idem_middleware.errors import (
        ConfigurationError,
        IdempotencyError,
        LeaseLost,
        RequestRefused,
        StoreFull,
        StoreMisconfigured,
        StoreUnavailable,
        TransactionInvalid,
        TransactionRefused,
    )
    from idem_middleware.events import Event, EventKind, LoggingObserver
    from idem_middleware.messages import Request, Response
    from idem_middleware.options import Options
    from idem_middleware.problems import Problem, ProblemType
    from idem_middleware.stores.dynamodb import DynamoDBStore
    from idem_middleware.stores.memory import MemoryStore
    from idem_middleware.stores.regional import RegionalStore
    from idem_middleware.stores.urls import store_from_url

__version__ = "0.1.0"

_HOMES = {
    "AsyncEngine": "aio.engine",
    "AsyncLease": "aio.lease",
    "ConfigurationError": "errors",
    "DynamoDBStore": "stores.dynamodb",
    "Engine": "blocking.engine",
    "Event": "events",
    "EventKind": "events",
    "IdempotencyError": "errors",
    "Lease": "blocking.lease",
    "LeaseLost": "errors",
    "LoggingObserver": "events",
    "MemoryStore": "stores.memory",
    "Options": "options",
    "Problem": "problems",
    "ProblemType": "problems",
    "RegionalStore": "stores.regional",
    "Request": "messages",
    "RequestRefused": "errors",
    "Response": "messages",
    "StoreFull": "errors",
    "StoreMisconfigured": "errors",
    "StoreUnavailable": "errors",
    "TransactionInvalid": "errors",
    "TransactionRefused": "errors",
    "store_from_url": "stores.urls",
}

__all__ = [  # the names above, which a test compares
    "AsyncEngine",
    "AsyncLease",
    "ConfigurationError",
    "DynamoDBStore",
    "Engine",
    "Event",
    "EventKind",
    "IdempotencyError",
    "Lease",
    "LeaseLost",
    "LoggingObserver",
    "MemoryStore",
    "Options",
    "Problem",
    "ProblemType",
    "RegionalStore",
    "Request",
    "RequestRefused",
    "Response",
    "StoreFull",
    "StoreMisconfigured",
    "StoreUnavailable",
    "TransactionInvalid",
    "TransactionRefused",
    "store_from_url",
]


def __getattr__(name: str) -> object:
    """Import on first use, so that a process pays for what it uses (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - needed only here

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
