"""Records in a DynamoDB table. boto3 is imported with the first call, not before."""

from __future__ import annotations

from idem_middleware.stores.dynamodb.store import DynamoDBStore

__all__ = ["DynamoDBStore"]
