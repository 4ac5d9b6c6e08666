"""The table of instruments: every event counts, once, and no label can grow."""

from __future__ import annotations

import pytest

from idem_middleware import Event, EventKind, ProblemType
from idem_middleware.stores.dynamodb.faults import KNOWN_CODES
from idem_middleware.telemetry.instruments import INSTRUMENTS, OTHER, Instrument, Shape, observation, source_of

_MOST_SERIES = 400


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_counts_somewhere(kind: EventKind) -> None:
    """A new event needs a line in the table."""
    seen = observation(Event(kind=kind))
    assert seen is not None, f"{kind} counts nowhere: give it an instrument in idem_middleware.telemetry.instruments"
    assert kind in source_of(seen.instrument)
    assert len(seen.labels) == len(seen.instrument.labels)


def test_every_instrument_has_its_events_and_a_name_of_its_own() -> None:
    """On every platform."""
    assert all(source_of(instrument) for instrument in INSTRUMENTS)
    for names in ([i.name for i in INSTRUMENTS], [i.dotted for i in INSTRUMENTS]):
        assert len(set(names)) == len(names)


def test_the_names_that_were_promised_first_are_there() -> None:
    """Dashboards were written for them before the rest existed."""
    names = {i.name for i in INSTRUMENTS} | {i.exposed_name for i in INSTRUMENTS}
    assert {
        "dynamo_ttl_delete_before_retry_total",
        "transact_write_cancellation_reason",
        "dynamo_cross_region_duplicate_detected_total",
    } <= names


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda i: i.name)
def test_an_instrument_has_few_series_whatever_happens(instrument: Instrument) -> None:
    """What is in no list is "other"; no text of an error becomes a label."""
    assert instrument.most_series <= _MOST_SERIES
    strange = "a key, a token, or what a proxy made up"
    for kind in source_of(instrument):
        seen = observation(Event(kind=kind, reason=strange, dynamo_error_code=strange, key_digest=strange))
        assert seen is not None
        for label, value in zip(instrument.labels, seen.labels, strict=True):
            assert value in {*label.values, OTHER}


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda i: i.name)
def test_names_follow_prometheus_conventions(instrument: Instrument) -> None:
    """A counter's samples end in _total, a distribution's name in its unit."""
    if instrument.shape is Shape.COUNTER:
        assert not instrument.name.endswith("_total")
        assert instrument.exposed_name.endswith("_total")
    else:
        assert instrument.name.endswith("_seconds")
        assert instrument.unit == "s"
        assert list(instrument.buckets_seconds) == sorted(instrument.buckets_seconds)


@pytest.mark.parametrize(
    ("event", "name", "labels", "amount"),
    [
        (Event(kind=EventKind.TAKEN_OVER, attempt=2), "idempotency_claims", ("taken_over",), 1),
        (Event(kind=EventKind.COMPLETED, seconds=0.5), "idempotency_execution_seconds", ("completed",), 0.5),
        (Event(kind=EventKind.REPLAYED, observed=True), "idempotency_replays", ("observe",), 1),
        (Event(kind=EventKind.REFUSED, reason="key-reused"), "idempotency_refusals", ("key-reused", "enforce"), 1),
        (Event(kind=EventKind.LEASE_LOST), "idempotency_leases_lost", ("taken-over",), 1),
        (Event(kind=EventKind.LEASE_LOST, reason="lapsed"), "idempotency_leases_lost", ("lapsed",), 1),
        (Event(kind=EventKind.ABANDONED), "idempotency_abandoned", ("interrupted",), 1),
        (
            Event(kind=EventKind.STORE_FAILED, reason="add that to their policy", dynamo_error_code="AccessDenied"),
            "idempotency_store_failures",
            ("claim", "AccessDenied"),
            1,
        ),
        (
            Event(kind=EventKind.STORE_FAILED, reason="renewal", dynamo_error_code="TeapotException"),
            "idempotency_store_failures",
            ("renewal", OTHER),
            1,
        ),
        (
            Event(kind=EventKind.TRANSACTION_CANCELLED, reason="TransactionConflict"),
            "transact_write_cancellation_reason",
            ("TransactionConflict",),
            1,
        ),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Event) else None,
)
def test_an_event_counts_under_its_labels(event: Event, name: str, labels: tuple[str, ...], amount: float) -> None:
    """Read off the event, in the words of the list."""
    seen = observation(event)
    assert seen is not None
    assert (seen.instrument.name, seen.labels, seen.amount) == (name, labels, amount)


def test_the_lists_are_those_of_the_code() -> None:
    """A new refusal or error code is no stranger."""
    values = {(i.name, label.name): set(label.values) for i in INSTRUMENTS for label in i.labels}
    assert values["idempotency_refusals", "reason"] == {kind.slug for kind in ProblemType}
    assert values["idempotency_store_failures", "code"] == KNOWN_CODES
