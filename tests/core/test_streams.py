"""What is made of the table's stream, in the shape in which Lambda gives it."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from idem_middleware import Event, EventKind, StoreUnavailable
from idem_middleware.keys import caller_partition, placed, short_digest
from idem_middleware.records import Record, Status
from idem_middleware.stores.dynamodb.items import chunk_item, item_of
from idem_middleware.streams import StreamHandler
from tests.stores.records import LARGE_ANSWER, NOW, SMALL_ANSWER, after, pending

PK = "1" * 64
DAY = 86400
CLAIM = pending(PK)
DONE = after(CLAIM, status=Status.COMPLETED, response=SMALL_ANSWER, expires_at=NOW + DAY, bound_until=NOW + 2 * DAY)
TTL = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def image(record: Record) -> dict[str, Any]:
    """An item as JSON has it."""
    return {name: as_json(value) for name, value in item_of(record).items()}


def as_json(value: dict[str, Any]) -> dict[str, Any]:
    """A typed value, its bytes as base64."""
    ((kind, content),) = value.items()
    match kind:
        case "B":
            return {"B": base64.b64encode(content).decode()}
        case "L":
            return {"L": [as_json(each) for each in content]}
        case "M":
            return {"M": {name: as_json(each) for name, each in content.items()}}
        case _:
            return value


def removed(record: Record, at: float, *, by: dict[str, str] | None = TTL, number: str = "1") -> dict[str, Any]:
    """A removal."""
    change = {"OldImage": image(record), "ApproximateCreationDateTime": at, "SequenceNumber": number}
    return {"eventName": "REMOVE", "dynamodb": change} | ({"userIdentity": by} if by else {})


def modified(old: Record, new: Record) -> dict[str, Any]:
    """A change."""
    return {"eventName": "MODIFY", "dynamodb": {"OldImage": image(old), "NewImage": image(new)}}


class Log:
    """An audit table that remembers in memory, and may be away."""

    def __init__(self) -> None:
        self.entries: list[tuple[Record, float]] = []
        self.away = False

    def remember(self, record: Record, removed_at: float) -> None:
        if self.away:
            raise StoreUnavailable("away, as planned")
        self.entries.append((record, removed_at))


@pytest.fixture
def log() -> Log:
    """An empty one."""
    return Log()


@pytest.fixture
def events() -> list[Event]:
    """What the handler tells."""
    return []


@pytest.fixture
def handler(log: Log, events: list[Event]) -> StreamHandler:
    """With both."""
    return StreamHandler(log, observers=[events.append])


def handle(handler: StreamHandler, *records: dict[str, Any]) -> dict[str, Any]:
    """One batch."""
    return handler({"Records": list(records)})


def test_a_removal_by_ttl_becomes_an_entry_and_a_metric(handler: StreamHandler, log: Log, events: list[Event]) -> None:
    """With the time since the end of the retention: replays write nothing, so nobody knows the last use."""
    assert handle(handler, removed(DONE, NOW + 4 * DAY)) == {"batchItemFailures": []}
    assert log.entries == [(DONE, NOW + 4 * DAY)]
    assert events == [Event(kind=EventKind.TTL_REMOVED, key_digest=PK[:12], attempt=1, reason="ttl", seconds=3 * DAY)]


def test_a_removal_by_a_sweep_counts_too(handler: StreamHandler, log: Log, events: list[Event]) -> None:
    """As does one that was replicated from another region: neither names DynamoDB as who did it."""
    handle(handler, removed(DONE, NOW + 3 * DAY, by=None))
    assert len(log.entries) == 1
    assert [(event.kind, event.reason) for event in events] == [(EventKind.TTL_REMOVED, "deleted")]


def test_a_removal_before_the_end_is_somebody_s_wish(handler: StreamHandler, log: Log, events: list[Event]) -> None:
    """An operator who frees a key wants it to be free."""
    handle(handler, removed(DONE, NOW + DAY, by=None))
    assert (log.entries, events) == ([], [])


@pytest.mark.parametrize(
    "record",
    [
        CLAIM,
        replace(DONE, response=LARGE_ANSWER),
        replace(DONE, pk=placed(PK, caller_partition("", "ann"))),
        after(CLAIM, status=Status.FAILED),
    ],
    ids=["abandoned", "in chunks", "by caller", "failed"],
)
def test_records_of_every_kind_are_read(handler: StreamHandler, log: Log, events: list[Event], record: Record) -> None:
    """In both layouts; what is remembered of them is the audit table's to say."""
    handle(handler, removed(record, NOW + 9 * DAY))
    assert log.entries == [(record, NOW + 9 * DAY)]
    assert [event.key_digest for event in events] == [short_digest(record.pk)]


@pytest.mark.parametrize(
    "entry",
    [
        {"eventName": "REMOVE", "dynamodb": {"OldImage": chunk_item(CLAIM, 0, b"") | {"data": {"B": ""}}}},
        {"eventName": "REMOVE", "dynamodb": {"Keys": {"pk": {"S": PK}}}},
        {"eventName": "INSERT", "dynamodb": {"NewImage": image(CLAIM)}},
        {"eventName": "REMOVE", "dynamodb": {"OldImage": image(DONE) | {"schema": {"N": "99"}}}},
        {"eventName": "REMOVE", "dynamodb": {"OldImage": image(DONE) | {"bound_until": {"S": "never"}}}},
        {"eventName": "REMOVE", "dynamodb": {"OldImage": {"owner": {"S": "x"}}}},
        {"eventName": "REMOVE", "dynamodb": {"OldImage": image(DONE) | {"fingerprint": {"B": "no base64"}}}},
        {"eventName": "MODIFY", "dynamodb": {"OldImage": image(CLAIM)}},
        {},
    ],
    ids=["a piece", "keys only", "an insert", "newer", "damaged", "no record", "no base64", "no new image", "nothing"],
)
def test_what_is_no_removal_of_a_record_is_passed_over(
    handler: StreamHandler, log: Log, events: list[Event], entry: dict[str, Any]
) -> None:
    """And what can't be read stops nothing that comes after it."""
    assert handle(handler, entry, removed(DONE, NOW + 4 * DAY)) == {"batchItemFailures": []}
    assert (len(log.entries), len(events)) == (1, 1)


def test_a_record_that_another_region_s_overwrote_is_told(handler: StreamHandler, events: list[Event]) -> None:
    """Replication has put another owner's record where this one was, and that owner had not taken it over."""
    handle(handler, modified(DONE, replace(DONE, owner="b" * 32)))
    assert [(event.kind, event.reason) for event in events] == [(EventKind.CROSS_REGION_DUPLICATE, "overwritten")]


@pytest.mark.parametrize(
    ("old", "new"),
    [(CLAIM, DONE), (CLAIM, after(CLAIM)), (CLAIM, after(CLAIM, owner="b" * 32, attempt=2))],
    ids=["completed", "renewed", "taken over"],
)
def test_the_life_of_a_record_is_no_duplicate(
    handler: StreamHandler, events: list[Event], old: Record, new: Record
) -> None:
    """Each step raises the version."""
    handle(handler, modified(old, new))
    assert events == []


def test_where_the_audit_table_is_away_the_batch_comes_again_from_there(
    handler: StreamHandler, log: Log, events: list[Event]
) -> None:
    """In order: Lambda delivers from the first failure on."""
    log.away = True
    batch = [modified(CLAIM, DONE), removed(DONE, NOW + 4 * DAY, number="2"), removed(DONE, NOW + 4 * DAY, number="3")]
    assert handle(handler, *batch) == {"batchItemFailures": [{"itemIdentifier": "2"}]}
    assert events == []
    log.away = False
    assert handle(handler, *batch[1:]) == {"batchItemFailures": []}
    assert len(log.entries) == 2


def test_without_an_audit_table_there_is_the_metric(events: list[Event]) -> None:
    """It tells how far TTL lags behind."""
    StreamHandler(observers=[events.append])({"Records": [removed(DONE, NOW + 4 * DAY)]})
    assert [event.kind for event in events] == [EventKind.TTL_REMOVED]


@pytest.mark.parametrize("name", ["INSERT", "TRUNCATE", None])
def test_a_change_that_is_neither_an_overwriting_nor_a_removal_says_nothing(name: str | None) -> None:
    """Whatever DynamoDB may come to tell."""
    events: list[Event] = []
    entry = removed(DONE, DONE.bound_until + 1) | {"eventName": name}
    handler = StreamHandler(observers=[events.append])
    assert handler({"Records": [entry]}) == {"batchItemFailures": []}
    assert events == []
