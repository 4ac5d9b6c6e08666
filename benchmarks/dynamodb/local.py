"""Amazon's DynamoDB Local, with the tables of all variants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.dynamodb.tables import KEYS
from idem_middleware.testing.dynamodb_local import DynamoDBLocal


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Run it for the length of the block; its URL."""
    import boto3  # noqa: PLC0415  # where it is asked for

    with DynamoDBLocal.find() as server:
        client = boto3.client(
            "dynamodb",
            endpoint_url=server.url,
            region_name="eu-central-1",
            aws_access_key_id="stub",
            aws_secret_access_key="stub",  # noqa: S106  # opens nothing
        )
        for table, key in zip(("keys", "powertools", "idemkit"), KEYS, strict=True):
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        yield server.url
