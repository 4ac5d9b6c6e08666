"""What the table's stream tells: records that were removed when they were over, and records that were overwritten.

    log = StreamHandler(store, observers=[EmbeddedMetricsObserver()])

    def handler(event, context):            # a Lambda function on the stream, with ReportBatchItemFailures
        return log(event)

The stream's view must be NEW_AND_OLD_IMAGES (or OLD_IMAGE, which does for removals alone).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from idem_middleware.errors import StoreUnavailable
from idem_middleware.events import Event, EventKind, LoggingObserver, Observer, emit, told
from idem_middleware.keys import short_digest
from idem_middleware.records import SCHEMA_VERSION, Record
from idem_middleware.stores.dynamodb.items import record_of
from idem_middleware.stores.dynamodb.layouts import item_name
from idem_middleware.stores.dynamodb.reconciling import is_forked

__all__ = ["AuditWriter", "StreamHandler"]

logger = logging.getLogger("idem_middleware")

_TTL_SERVICE = ("Service", "dynamodb.amazonaws.com")


class AuditWriter(Protocol):
    """Who remembers removed records: a `DynamoDBStore` with an audit table."""

    def remember(self, record: Record, removed_at: float) -> None:
        """Write the entry of a record that was removed; doing it twice is harmless."""
        ...


class StreamHandler:
    """Goes through the records of a stream. Safe under threads; one serves a whole environment.

    A record that TTL (or `sweep`) removed after its end becomes an entry of the audit table, if `audit` is given, and
    an event `ttl_removed` whose `seconds` say how long after the end of its retention (`expires_at`) that was. Replays
    write nothing, so nobody knows when a record was last of use: this is its age past its end, no more.

    A record that another owner's has overwritten without having taken it over is a key that two regions claimed: the
    event `cross_region_duplicate`.
    """

    def __init__(self, audit: AuditWriter | None = None, *, observers: Iterable[Observer] = ()) -> None:
        self._audit = audit
        self._observers: tuple[Observer, ...] = (LoggingObserver(), *observers)

    def __call__(self, event: Mapping[str, Any], context: object = None) -> dict[str, list[dict[str, str]]]:
        """Handle a batch as Lambda gives it, and report the first record that must come again.

        From that one on, Lambda delivers all again, in order.
        """
        for entry in event.get("Records", ()):
            change = entry.get("dynamodb", {})
            try:
                self._handle(entry, change)
            except StoreUnavailable as error:
                logger.error("the audit table can't be written: %s", error)  # noqa: TRY400 - its text says all
                return {"batchItemFailures": [{"itemIdentifier": str(change.get("SequenceNumber", ""))}]}
            except Exception as error:  # noqa: BLE001 - one record that nobody can read must not stop the shard
                logger.error("a record of the stream can't be read: %s", told(error))  # noqa: TRY400
        return {"batchItemFailures": []}

    def _handle(self, entry: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        old = _record(change.get("OldImage"))
        if old is None:
            return
        if entry.get("eventName") == "REMOVE":
            self._removed(old, float(change.get("ApproximateCreationDateTime", 0.0)), by_ttl=_is_by_ttl(entry))
        elif entry.get("eventName") == "MODIFY":
            new = _record(change.get("NewImage"))
            if new is not None and is_forked(old, new):
                self._tell(EventKind.CROSS_REGION_DUPLICATE, old, reason="overwritten")

    def _removed(self, old: Record, removed_at: float, *, by_ttl: bool) -> None:
        if removed_at < old.bound_until:
            return  # by hand, before its end: somebody wants the key to be free
        if self._audit is not None:
            self._audit.remember(old, removed_at)
        self._tell(
            EventKind.TTL_REMOVED,
            old,
            reason="ttl" if by_ttl else "deleted",
            seconds=max(0.0, removed_at - old.expires_at),
        )

    def _tell(self, kind: EventKind, record: Record, **fields: Any) -> None:
        emit(self._observers, Event(kind=kind, key_digest=short_digest(record.pk), attempt=record.attempt, **fields))


def _record(image: object) -> Record | None:
    """The record that an image is of; None for pieces of bodies, and for what this version can't read."""
    if not isinstance(image, Mapping) or "owner" not in image:
        return None
    item = {name: _typed(value) for name, value in image.items()}
    record = record_of(item, item_name(item))
    return record if record.schema == SCHEMA_VERSION else None


def _typed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Lambda's events are JSON, in which bytes are base64."""
    ((kind, content),) = value.items()
    match kind:
        case "B" if isinstance(content, str):
            return {"B": base64.b64decode(content)}
        case "L":
            return {"L": [_typed(each) for each in content]}
        case "M":
            return {"M": {name: _typed(each) for name, each in content.items()}}
        case _:
            return {kind: content}


def _is_by_ttl(entry: Mapping[str, Any]) -> bool:
    who = entry.get("userIdentity") or {}
    return (who.get("type"), who.get("principalId")) == _TTL_SERVICE
