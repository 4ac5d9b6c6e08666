"""A second table that remembers for long which keys were used, after their records are gone; no I/O.

An entry is an item as of a record, without its answer, and with a `bound_until` that is `audit_seconds` later. So it is
read, and decided about, like the record that it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from idem_middleware.records import Record, Status
from idem_middleware.stores.dynamodb.items import Item, item_of, record_of
from idem_middleware.stores.dynamodb.layouts import item_key
from idem_middleware.stores.dynamodb.requests import Request

__all__ = ["AuditLog", "is_remembered"]


def is_remembered(record: Record) -> bool:
    """Whether something was, or may have been, done under this record: what has failed leaves nothing to remember."""
    return record.status is not Status.FAILED


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The table, and for how long after a key would have been free it is still known."""

    table: str
    seconds: float

    def entry(self, record: Record, removed_at: float) -> Item:
        """What stands there for a record that was removed."""
        kept = replace(self._known_longer(record), response=None)
        return item_of(kept) | {"removed_at": {"N": f"{removed_at:.7f}"}}

    def put_request(self, record: Record, removed_at: float) -> Request:
        """PutItem of the entry, unless a later one of the same key stands there."""
        return {
            "TableName": self.table,
            "Item": self.entry(record, removed_at),
            "ConditionExpression": "attribute_not_exists(#pk) OR #created_at <= :created_at",
            "ExpressionAttributeNames": {"#pk": "pk", "#created_at": "created_at"},
            "ExpressionAttributeValues": {":created_at": item_of(record)["created_at"]},
        }

    def check(self, pk: str, now: float) -> dict[str, Any]:
        """The action of a claim's transaction that fails where the key is known."""
        return {
            "ConditionCheck": {
                "TableName": self.table,
                "Key": item_key(pk),
                "ConditionExpression": "attribute_not_exists(#pk) OR #bound_until <= :now",
                "ExpressionAttributeNames": {"#pk": "pk", "#bound_until": "bound_until"},
                "ExpressionAttributeValues": {":now": {"N": f"{now:.7f}"}},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def read(self, item: object, pk: str) -> Record:
        """The record that an entry stands for. Never raises, as `record_of`."""
        return replace(record_of(item, pk), audited=True)

    def extended(self, record: Record, now: float) -> Record:
        """A record that is over, and stands, is known for as long as its entry will be, whenever TTL gets round to it.

        Nothing else of it is touched, and no other record: what is found may be written again.
        """
        if record.bound_until > now or not is_remembered(record):
            return record
        return self._known_longer(record)

    def _known_longer(self, record: Record) -> Record:
        return replace(record, bound_until=record.bound_until + self.seconds)
