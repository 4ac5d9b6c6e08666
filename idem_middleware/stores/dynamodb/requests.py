"""The parameters of every call to DynamoDB, as plain dictionaries; no I/O.

Every attribute goes by a placeholder: `status`, `owner` and `ttl` are among the words that DynamoDB reserves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from idem_middleware.records import Record
from idem_middleware.stores.dynamodb.items import OPTIONAL, chunk_item, chunk_pk, item_of
from idem_middleware.stores.dynamodb.layouts import item_key
from idem_middleware.transactions import Transaction

__all__ = [
    "BATCH_KEYS",
    "CLAIM_ITEM_BYTES",
    "INLINE_BYTES",
    "Request",
    "create_request",
    "get_chunk_request",
    "get_chunks_request",
    "load_request",
    "put_chunk_request",
    "swap_request",
    "transact_request",
]

Request = dict[str, Any]
"""Keyword arguments of one method of boto3's low-level client."""

CLAIM_ITEM_BYTES = 4096
"""How large an item may be that a retry storm hits: each failed write is billed by its size, 1 unit a KB begun."""

INLINE_BYTES = CLAIM_ITEM_BYTES - 416
"""How large headers and body may be inside the claim's item.

The rest of the item takes 357 bytes with a fingerprint of 33 bytes, a caller's digest of 32 and an owner of 32
characters, 34 more in the layout `caller`; what is left over is for larger versions and longer owners. A test keeps
the sum below CLAIM_ITEM_BYTES.
"""

BATCH_KEYS = 100
"""BatchGetItem takes no more."""


def create_request(table: str, new: Record) -> Request:
    """PutItem if nothing stands there; a failure brings what does."""
    return {
        "TableName": table,
        "Item": item_of(new),
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": "pk"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def swap_request(table: str, old: Record, new: Record) -> Request:
    """UpdateItem if version, owner and status are still those of `old`; a failure brings what stands there.

    Afterwards the item says `new` in every attribute of ours, whatever an older or a newer schema had put there;
    attributes that are not ours stay.
    """
    if old.pk != new.pk:
        raise ValueError("a swap stays under one key")
    item, key = item_of(new), item_key(new.pk)
    for name in key:
        del item[name]
    update, names, placeholders = _swap_expressions(tuple(item))
    values = dict(zip(placeholders, item.values(), strict=True))
    values[":old_version"] = {"N": str(old.version)}
    values[":old_owner"] = {"S": old.owner}
    values[":old_status"] = {"S": old.status.value}
    return {
        "TableName": table,
        "Key": key,
        "UpdateExpression": update,
        "ConditionExpression": "#version = :old_version AND #owner = :old_owner AND #status = :old_status",
        "ExpressionAttributeNames": dict(names),
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@lru_cache(maxsize=64)
def _swap_expressions(given: tuple[str, ...]) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """What an update that sets these attributes says: a record has few shapes, so each is written once."""
    gone = sorted(OPTIONAL.difference(given))
    update = f"SET {', '.join(f'#{name} = :{name}' for name in given)}"
    if gone:
        update += f" REMOVE {', '.join(f'#{name}' for name in gone)}"
    return update, {f"#{name}": name for name in (*given, *gone)}, tuple(f":{name}" for name in given)


def transact_request(table: str, old: Record | None, new: Record, transaction: Transaction) -> Request:
    """TransactWriteItems: the record's write first, then the actions; a failed condition brings what is there."""
    own = {"Put": create_request(table, new)} if old is None else {"Update": swap_request(table, old, new)}
    items: list[Any] = [own]
    for action in transaction.actions:
        ((kind, part),) = action.items()
        items.append({kind: {"ReturnValuesOnConditionCheckFailure": "ALL_OLD", **part}})
    return {"TransactItems": items, "ClientRequestToken": transaction.token}


def load_request(table: str, pk: str) -> Request:
    """GetItem, strongly consistent."""
    return {"TableName": table, "Key": item_key(pk), "ConsistentRead": True}


def put_chunk_request(table: str, owner: Record, number: int, data: bytes) -> Request:
    """PutItem of one piece, without a condition: the same attempt writes the same bytes again."""
    return {"TableName": table, "Item": chunk_item(owner, number, data)}


def get_chunk_request(table: str, owner: Record, number: int) -> Request:
    """GetItem of one piece, strongly consistent."""
    return load_request(table, chunk_pk(owner, number))


def get_chunks_request(table: str, pks: Sequence[str]) -> Request:
    """BatchGetItem, strongly consistent, of at most BATCH_KEYS keys."""
    if not 0 < len(pks) <= BATCH_KEYS:
        raise ValueError(f"a batch has 1 to {BATCH_KEYS} keys, not {len(pks)}")
    return {"RequestItems": {table: {"Keys": [item_key(pk) for pk in pks], "ConsistentRead": True}}}
