"""Comparing what several regions say of the same keys: two owners at once mean that a request ran in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from idem_middleware.events import Event, EventKind, Observer, emit
from idem_middleware.keys import short_digest
from idem_middleware.records import Record, Status
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.items import record_of
from idem_middleware.stores.dynamodb.layouts import item_key, item_name
from idem_middleware.stores.dynamodb.requests import BATCH_KEYS, Request
from idem_middleware.stores.dynamodb.sweeping import Pace, check_pace, units

__all__ = ["Duplicate", "Reconciled", "is_forked", "reconcile"]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """One key that was claimed in two regions; the key's digest, and the regions."""

    key_digest: str
    regions: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How far a comparison got. `resume_from` goes into the next one; None: the table was compared to its end."""

    compared: int = 0
    duplicates: tuple[Duplicate, ...] = ()
    units: float = 0.0
    resume_from: str | None = None


def is_forked(one: Record, other: Record) -> bool:
    """Whether two records of one key can't both be of one history: each of two owners claimed it.

    A record that lags behind is no fork: its owner came before the other's claim, which has a higher version then. A
    claim is PENDING when it is written, so an ended record (COMPLETED, FAILED) was claimed one version earlier or more.
    What is told is certain; what has gone on since (a fork that was renewed, or overwritten) can be missed.
    """
    older, newer = sorted((one, other), key=lambda record: record.version)
    if older.owner == newer.owner or not _overlap(older, newer):
        return False
    latest_claim = newer.version if newer.status is Status.PENDING else newer.version - 1
    return latest_claim <= older.version


def _overlap(one: Record, other: Record) -> bool:
    """Whether each was claimed while the other bound the key; else one was swept before the other came."""
    return one.created_at < other.bound_until and other.created_at < one.bound_until


def reconcile(
    admins: Mapping[str, Admin],
    *,
    observers: Iterable[Observer] = (),
    units_per_second: float = 25.0,
    max_seconds: float | None = None,
    resume_from: str | None = None,
) -> Reconciled:
    """Scan the table of the first region, look each of its records up in the others, and tell of every fork.

    The mean rate in capacity units, of all regions together, stays below `units_per_second`. Once replication has
    caught up, the last writer has overwritten the other: then there is nothing left to compare. So this finds what
    happened within the lag before it looks; the stream (`idem_middleware.streams`) tells of overwriting as it happens.

    Raises:
        ConfigurationError: a rate or a time that is none.
        StoreUnavailable: a region did not answer.

    """
    check_pace(units_per_second, max_seconds)
    (first, scanned), *others = admins.items()
    pace = Pace(scanned, units_per_second)
    end_at = None if max_seconds is None else scanned.clock.monotonic() + max_seconds
    so_far = Reconciled(resume_from=resume_from)
    while True:
        page = scanned.call("scan", _scan_request(scanned, so_far.resume_from))
        read = units(page)
        seen = {first: _records(page.get("Items", ()))}
        for region, admin in others:
            seen[region], more = _looked_up(admin, list(seen[first]))
            read += more
        following = page.get("LastEvaluatedKey")
        so_far = replace(
            so_far,
            compared=so_far.compared + len(seen[first]),
            duplicates=(*so_far.duplicates, *_duplicates(seen, observers)),
            units=so_far.units + read,
            resume_from=item_name(following) if following else None,
        )
        if not following or (end_at is not None and scanned.clock.monotonic() >= end_at):
            return so_far
        pace.spend(read)


def _duplicates(seen: Mapping[str, Mapping[str, Record]], observers: Iterable[Observer]) -> Iterator[Duplicate]:
    for one, other in combinations(seen, 2):
        for name in seen[one].keys() & seen[other].keys():
            if is_forked(seen[one][name], seen[other][name]):
                digest = short_digest(name)
                emit(
                    observers,
                    Event(kind=EventKind.CROSS_REGION_DUPLICATE, key_digest=digest, reason=f"{one} {other}"),
                )
                yield Duplicate(digest, (one, other))


def _scan_request(admin: Admin, resume_from: str | None) -> Request:
    request: Request = {
        "TableName": admin.table,
        "Limit": BATCH_KEYS,
        "FilterExpression": "attribute_exists(#owner)",  # not the pieces of bodies
        "ExpressionAttributeNames": {"#owner": "owner"},
        "ConsistentRead": True,
        "ReturnConsumedCapacity": "TOTAL",
    }
    if resume_from is not None:
        request["ExclusiveStartKey"] = item_key(resume_from)
    return request


def _looked_up(admin: Admin, names: Sequence[str]) -> tuple[dict[str, Record], float]:
    found: dict[str, Record] = {}
    spent = 0.0
    keys = [item_key(name) for name in names]
    while keys:
        answer = admin.call(
            "batch_get_item",
            {
                "RequestItems": {admin.table: {"Keys": keys, "ConsistentRead": True}},
                "ReturnConsumedCapacity": "TOTAL",
            },
        )
        spent += sum(units({"ConsumedCapacity": part}) for part in answer.get("ConsumedCapacity", ()))
        items = [item for part in answer.get("Responses", {}).values() for item in part]
        found.update(_records(items))
        keys = [key for part in answer.get("UnprocessedKeys", {}).values() for key in part["Keys"]]
        if keys and not items:
            admin.sleep(1.0)  # throttled
    return found, spent


def _records(items: Iterable[Mapping[str, Any]]) -> dict[str, Record]:
    return {(name := item_name(item)): record_of(item, name) for item in items}
