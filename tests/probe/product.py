"""What a probe needs of the product before and beside its framework's adapter."""

from __future__ import annotations

from idem_middleware import DynamoDBStore, Engine, Options
from idem_middleware.stores import store_from_url
from tests.probe.settings import Settings


def prepare(settings: Settings) -> None:
    """Check the options and the store's URL, and create the table where it is missing.

    Raises:
        IdempotencyError: the options or the URL are wrong, or the table can't be made.

    """
    Options.from_mapping(settings.options)
    store = store_from_url(settings.store)
    if isinstance(store, DynamoDBStore):
        store.create_table()


def engine(settings: Settings) -> Engine:
    """Build the one engine that all routes of a process share."""
    return Engine(store_from_url(settings.store), Options.from_mapping(settings.options))
