"""A record as it lies in the table: read by DynamoDB's own call, past the product."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import boto3

from idem_middleware.keys import record_pk
from idem_middleware.stores.dynamodb.table import DEFAULT_TABLE

__all__ = ["Item", "holds", "item_under", "meaning"]

Item = dict[str, dict[str, Any]]


def item_under(store_url: str, *, caller: str, key: str) -> Item:
    """The item that belongs to this key of this caller; empty if there is none."""
    parts = urlsplit(store_url)
    settings = dict(parse_qsl(parts.query))
    client: Any = boto3.client("dynamodb", region_name=settings.get("region"), endpoint_url=settings.get("endpoint"))
    name = {"pk": {"S": record_pk("", caller, key)}}
    answer = client.get_item(TableName=parts.netloc or DEFAULT_TABLE, Key=name, ConsistentRead=True)
    return dict(answer.get("Item", {}))


def holds(item: Item, text: str) -> bool:
    """Whether this text can be read anywhere in the item."""
    return text in str(item)


_MEANINGS = {
    "pk": "SHA-256 of namespace, caller and key: the key itself is not kept",
    "status": "PENDING, COMPLETED or FAILED",
    "version": "one more with every write; no write succeeds against another",
    "owner": "random for each attempt",
    "attempt": "the first was killed",
    "fingerprint": "what the request was",
    "created_at": "unix seconds",
    "expires_at": "until then the answer is given again",
    "bound_until": "from then on the key is free",
    "ttl": "from then on DynamoDB may delete it",
    "response": "what is given again",
    "schema": "version of this format",
}


def meaning(attribute: str) -> str:
    """What an attribute says."""
    return _MEANINGS.get(attribute, "")
