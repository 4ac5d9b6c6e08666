"""Where records are kept. boto3 is imported with the first call to DynamoDB, not here."""

from __future__ import annotations

from idem_middleware.stores.base import Store
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.memory import MemoryStore
from idem_middleware.stores.urls import store_from_url

__all__ = ["DynamoDBStore", "MemoryStore", "Store", "store_from_url"]
