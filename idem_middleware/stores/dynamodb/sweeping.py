"""Deleting what is over, where DynamoDB has no TTL: strongly consistent global tables, some emulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from idem_middleware.errors import ConfigurationError
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.calls import Answer
from idem_middleware.stores.dynamodb.layouts import item_key, item_name
from idem_middleware.stores.dynamodb.requests import Request

__all__ = ["Pace", "Swept", "check_pace", "sweep", "units"]

_PAGE = 200
"""Items a page. A page ends at 1 MB in any case: 128 units are the most that are taken at once."""


@dataclass(frozen=True, slots=True)
class Swept:
    """How far a sweep got. Units are DynamoDB's own figures.

    `kept` items were over when they were seen and had been bound anew when they were to be deleted. `resume_from` goes
    into the next sweep; None: the table was swept to its end.
    """

    seen: int = 0
    deleted: int = 0
    kept: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    resume_from: str | None = None


def sweep(
    admin: Admin,
    *,
    units_per_second: float = 25.0,
    max_seconds: float | None = None,
    resume_from: str | None = None,
    on_progress: Callable[[Swept], object] | None = None,
) -> Swept:
    """Scan the table once, and delete each item whose `ttl` has passed, under the condition that it still has.

    Items of every version and both layouts, and the pieces of bodies; what has no `ttl` is not ours. The mean rate of
    read and write units together stays below `units_per_second`. After `max_seconds` it ends where it is. It needs
    `dynamodb:Scan` and `dynamodb:DeleteItem`, which the service itself does not.

    Raises:
        ConfigurationError: a rate or a time that is none.
        StoreUnavailable: no answer in time. What was deleted is.

    """
    check_pace(units_per_second, max_seconds)
    pace = Pace(admin, units_per_second)
    end_at = None if max_seconds is None else admin.clock.monotonic() + max_seconds
    swept = Swept(resume_from=resume_from)
    while True:
        page = admin.call("scan", _scan_request(admin, swept.resume_from))
        read = units(page)
        swept = replace(swept, seen=swept.seen + page.get("ScannedCount", 0), read_units=swept.read_units + read)
        pace.spend(read)
        for item in page.get("Items", ()):
            swept = _delete(admin, item, swept, pace)
        following = page.get("LastEvaluatedKey")
        swept = replace(swept, resume_from=item_name(following) if following else None)
        if on_progress is not None:
            on_progress(swept)
        if not following or (end_at is not None and admin.clock.monotonic() >= end_at):
            return swept


def check_pace(units_per_second: float, max_seconds: float | None) -> None:
    """Refuse a rate or a time that is none, before the first call.

    Raises:
        ConfigurationError: it is.

    """
    problems = []
    if not (isfinite(units_per_second) and units_per_second > 0):
        problems.append(f"units_per_second must be above 0, not {units_per_second!r}")
    if max_seconds is not None and not max_seconds > 0:
        problems.append(f"max_seconds must be above 0, not {max_seconds!r}")
    if problems:
        raise ConfigurationError(problems)


def _scan_request(admin: Admin, resume_from: str | None) -> Request:
    request: Request = {
        "TableName": admin.table,
        "Limit": _PAGE,
        "FilterExpression": "#ttl < :now",
        "ProjectionExpression": "#pk, #sk",
        "ExpressionAttributeNames": {"#ttl": "ttl", "#pk": "pk", "#sk": "sk"},
        "ExpressionAttributeValues": {":now": _now(admin)},
        "ReturnConsumedCapacity": "TOTAL",
    }
    if resume_from is not None:
        request["ExclusiveStartKey"] = item_key(resume_from)
    return request


def _delete(admin: Admin, item: Mapping[str, Any], swept: Swept, pace: Pace) -> Swept:
    outcome = admin.attempt(
        "delete_item",
        {
            "TableName": admin.table,
            "Key": item,
            "ConditionExpression": "#ttl < :now",  # it may have been bound anew since it was seen
            "ExpressionAttributeNames": {"#ttl": "ttl"},
            "ExpressionAttributeValues": {":now": _now(admin)},
            "ReturnConsumedCapacity": "TOTAL",
        },
    )
    if not isinstance(outcome, Answer):
        pace.spend(1.0)  # a refused write reports nothing; it is billed by the item's size, and ours are small
        return replace(swept, kept=swept.kept + 1)
    spent = units(outcome.response)
    pace.spend(spent)
    return replace(swept, deleted=swept.deleted + 1, write_units=swept.write_units + spent)


def _now(admin: Admin) -> dict[str, str]:
    return {"N": str(int(admin.clock.now()))}


def units(answer: Mapping[str, Any]) -> float:
    """What one call took, by its answer."""
    spent: float = answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)
    return spent


class Pace:
    """Pauses until what was spent is earned again."""

    def __init__(self, admin: Admin, units_per_second: float) -> None:
        self._admin = admin
        self._rate = units_per_second
        self._free_at = admin.clock.monotonic()

    def spend(self, spent: float) -> None:
        """Wait for so many units to be earned."""
        now = self._admin.clock.monotonic()
        self._free_at = max(self._free_at, now) + spent / self._rate
        if self._free_at > now:
            self._admin.sleep(self._free_at - now)
