"""What a caller has used, by the local index of the layout `caller`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.layouts import CREATED_INDEX, item_name
from idem_middleware.stores.dynamodb.requests import Request

__all__ = ["UsedKey", "keys_of"]

_PAGE = 500


@dataclass(frozen=True, slots=True)
class UsedKey:
    """The name of a record, and when its last attempt began, in unix seconds."""

    pk: str
    created_at: float


def keys_of(admin: Admin, partition: str, *, since: float, newest_first: bool, limit: int) -> Iterator[UsedKey]:
    """Query the index page by page, as far as the result is consumed.

    Raises:
        StoreMisconfigured: the table has no such index.
        StoreUnavailable: no answer in time.

    """
    request: Request = {
        "TableName": admin.table,
        "IndexName": CREATED_INDEX,
        "KeyConditionExpression": "#pk = :partition AND #created_at >= :since",
        "ExpressionAttributeNames": {"#pk": "pk", "#created_at": "created_at"},
        "ExpressionAttributeValues": {":partition": {"S": partition}, ":since": {"N": f"{since:.7f}"}},
        "ConsistentRead": True,
        "ScanIndexForward": not newest_first,
    }
    left = limit
    while left > 0:
        page = _page(admin, {**request, "Limit": min(left, _PAGE)})
        for item in page.get("Items", ()):
            left -= 1
            yield UsedKey(item_name(item), float(item["created_at"]["N"]))
        following = page.get("LastEvaluatedKey")
        if not following:
            return
        request["ExclusiveStartKey"] = following


def _page(admin: Admin, request: Request) -> Mapping[str, Any]:
    try:
        return admin.call("query", request)
    except StoreUnavailable as exc:
        if exc.code == "ValidationException":
            raise StoreMisconfigured(
                f"DynamoDB table {admin.table!r} has no index {CREATED_INDEX!r}: it is made with the table "
                "(create_table), and can't be added to one",
                code=exc.code,
            ) from exc
        raise
