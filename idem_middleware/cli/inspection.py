"""What stands under a key, what it means, and what an operator may do about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

from idem_middleware.errors import IdempotencyError
from idem_middleware.events import Event, EventKind, LoggingObserver, Observer, emit
from idem_middleware.keys import caller_partition, parse_key, placed, record_pk, short_digest, validate_key
from idem_middleware.options import Options
from idem_middleware.outcomes import function_identity
from idem_middleware.records import SCHEMA_VERSION, KeptResponse, OmittedResponse, Record, Status
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.items import item_of, item_size, record_of
from idem_middleware.stores.dynamodb.layouts import item_name
from idem_middleware.transitions import failed

__all__ = [
    "MEANINGS",
    "NotReleased",
    "Phase",
    "Seen",
    "load",
    "name_of",
    "phase",
    "release",
    "scan",
]

_PAGE = 500


class Phase(StrEnum):
    """What a record means at some moment: its status, and what time has made of it."""

    RUNNING = "running"
    ABANDONED = "abandoned"
    FAILED = "failed"
    DONE = "done"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    FREE = "free"
    UNREADABLE = "unreadable"


MEANINGS = {
    Phase.RUNNING: "an attempt holds the lease: retries get 409 in-progress, or wait",
    Phase.ABANDONED: "its lease is over and nobody has finished it: a crash, a freeze, or an answer that could not be "
    "recorded. The next retry takes over, or gets 409 outcome-unknown with on_abandoned='refuse'",
    Phase.FAILED: "the last attempt failed: the next retry runs",
    Phase.DONE: "retries get the stored answer",
    Phase.UNKNOWN: "it ended, and its answer is not kept: retries get 409, and nothing runs",
    Phase.EXPIRED: "its retention is over, the key still known: as on_expired says",
    Phase.FREE: "the key is free, and the item only waits for its deletion",
    Phase.UNREADABLE: "written by a newer version, or damaged: retries get 409 record-unreadable",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One record, its size as DynamoDB reckons it, and what it means."""

    record: Record
    phase: Phase
    size_bytes: int

    @property
    def answer_bytes(self) -> int | None:
        """What the answer's body takes where it lies, encoded; None without one."""
        response = self.record.response
        if not isinstance(response, KeptResponse):
            return None
        return response.chunks.size_bytes if response.chunks is not None else len(response.body or b"")


class NotReleased(IdempotencyError):
    """Only an abandoned claim is released; the message says what this one is."""


def name_of(store: DynamoDBStore, key: str, *, caller: str | None, namespace: str, function: bool = False) -> str:
    """The name of the record of this key, as the service gives it. `function`: of work that came by `run_once`.

    The key may be in quotes, as a client sends it.

    Raises:
        KeyInvalid: it is no key.

    """
    key = (parse_key([key]) if key.startswith('"') else validate_key(key)) or ""
    pk = record_pk(namespace, caller, key)
    if function:
        pk = function_identity(key, None, Options(namespace=namespace), caller).pk
    return placed(pk, caller_partition(namespace, caller)) if store.by_caller else pk


def phase(record: Record, now: float, margin_seconds: float) -> Phase:
    """What the record means at `now`, by the order of `decisions.decide`."""
    if record.schema != SCHEMA_VERSION:
        return Phase.UNREADABLE
    if now >= record.bound_until:
        return Phase.FREE
    match record.status:
        case Status.COMPLETED if now >= record.expires_at:
            return Phase.EXPIRED
        case Status.COMPLETED:
            without = record.response is None or isinstance(record.response, OmittedResponse)
            return Phase.UNKNOWN if without else Phase.DONE
        case Status.FAILED:
            return Phase.FAILED
        case _:
            return Phase.RUNNING if now < record.expires_at + margin_seconds else Phase.ABANDONED


def load(store: DynamoDBStore, name: str) -> Seen | None:
    """Read one record, strongly consistent; None where nothing stands."""
    found = store.load(name, store.clock.monotonic() + store.deadline_seconds)
    if isinstance(found, Gone):
        return None
    record = found.record
    size = item_size(item_of(record)) if record.schema == SCHEMA_VERSION else 0
    return Seen(record, phase(record, store.clock.now(), store.clock.margin_seconds), size)


def scan(
    store: DynamoDBStore,
    *,
    statuses: Sequence[Status] = tuple(Status),
    digest: str | None = None,
    units_per_second: float = inf,
    sleep: Callable[[float], object] = time.sleep,
    on_page: Callable[[int], object] | None = None,
) -> Iterator[Seen]:
    """Look through the whole table, page by page, for records of these statuses, or whose name begins so.

    `on_page` is told how many items each page has gone through. The mean rate of read units stays below the one given.

    Raises:
        StoreUnavailable: no answer.

    """
    names = {"#status": "status"}
    values: dict[str, Any] = {f":s{number}": {"S": status.value} for number, status in enumerate(statuses)}
    condition = f"#status IN ({', '.join(values)})"
    if digest is not None:
        names["#own"] = "sk" if store.by_caller else "pk"
        values[":digest"] = {"S": digest}
        condition += " AND begins_with(#own, :digest)"
    request: dict[str, Any] = {
        "TableName": store.table,
        "Limit": _PAGE,
        "FilterExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ReturnConsumedCapacity": "TOTAL",
    }
    admin = store.admin()
    while True:
        page = admin.call("scan", request)
        now = store.clock.now()
        for item in page.get("Items", ()):
            record = record_of(item, item_name(item))
            yield Seen(record, phase(record, now, store.clock.margin_seconds), item_size(item))
        if on_page is not None:
            on_page(page.get("ScannedCount", 0))
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
        pause_seconds = page.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0) / units_per_second
        if pause_seconds > 0:
            sleep(pause_seconds)


def release(store: DynamoDBStore, seen: Seen, *, observers: Sequence[Observer] = ()) -> Event:
    """Let the next retry of an abandoned claim run: FAILED, by compare-and-swap from exactly what was seen.

    An owner that wakes up after all can write nothing any more. What a checkpoint says stays.

    Raises:
        NotReleased: it is no abandoned claim, or is none any more.
        StoreUnavailable: no answer; it may have been released.

    """
    if seen.phase is not Phase.ABANDONED:
        raise NotReleased(f"this key is {seen.phase}, and only an abandoned claim is released: {MEANINGS[seen.phase]}")
    new = failed(seen.record, store.clock.now(), Options())
    outcome = store.swap(seen.record, new, store.clock.monotonic() + store.deadline_seconds)
    # Sent twice by ourselves after a lost reply, the second finds what the first has written.
    if not isinstance(outcome, Written) and outcome != Found(new):
        raise NotReleased("it has changed since it was looked at: look again")
    event = Event(
        kind=EventKind.RELEASED,
        key_digest=short_digest(new.pk),
        attempt=new.attempt,
        reason="operator",
    )
    emit((LoggingObserver(), *observers), event)
    return event
