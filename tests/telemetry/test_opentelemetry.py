"""The OpenTelemetry observer: metrics by its conventions, and what the current span is told."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from idem_middleware import Engine, Event, EventKind, MemoryStore, Options
from idem_middleware.telemetry.instruments import INSTRUMENTS
from idem_middleware.telemetry.opentelemetry import OpenTelemetryObserver
from tests.telemetry.events import EVERY_KIND


class Meters:
    """An observer, and what it counted."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.observer = OpenTelemetryObserver(MeterProvider([self._reader], shutdown_on_exit=False))

    def points(self) -> dict[str, tuple[str, list[tuple[dict[str, object], float]]]]:
        """By the metric's name: its unit, and the attributes and number of increments of each series."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [metric for r in data.resource_metrics for s in r.scope_metrics for metric in s.metrics]
        return {
            metric.name: (
                metric.unit or "",
                [(dict(p.attributes or {}), _increments(p)) for p in metric.data.data_points],
            )
            for metric in metrics
        }


def _increments(point: object) -> float:
    """Of a counter or of a distribution."""
    if isinstance(point, HistogramDataPoint):
        return point.count
    assert isinstance(point, NumberDataPoint)
    return point.value


class Spans:
    """A tracer, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("tests")

    def ended(self) -> ReadableSpan:
        """The only one."""
        (span,) = self._exporter.get_finished_spans()
        return span


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.kind.value)
def test_one_event_is_one_increment(event: Event) -> None:
    """Of one series of one metric, with the table's unit."""
    meters = Meters()
    meters.observer(event)
    ((name, (unit, series)),) = meters.points().items()
    assert [count for _, count in series] == [1]
    assert unit == next(i.unit for i in INSTRUMENTS if i.dotted == name)


def test_attributes_have_the_names_of_the_conventions() -> None:
    """An error's code is `error.type`; the others are in our namespace."""
    meters = Meters()
    meters.observer(Event(kind=EventKind.STORE_FAILED, reason="renewal", dynamo_error_code="ThrottlingException"))
    assert meters.points() == {
        "idempotency.store_failures": (
            "{call}",
            [({"idempotency.stage": "renewal", "error.type": "ThrottlingException"}, 1)],
        )
    }


def test_the_current_span_tells_what_was_decided_and_how_it_ended() -> None:
    """To search by, and in order."""
    spans, engine = Spans(), Engine(MemoryStore(), Options(observers=(OpenTelemetryObserver(),)))
    with spans.tracer.start_as_current_span("POST /payments"):
        engine.run_once("order-7", None, lambda lease: "done")
    span = spans.ended()
    assert [event.name for event in span.events] == ["idempotency.claimed", "idempotency.completed"]
    attributes = dict(span.attributes or {})
    digest = attributes.pop("idempotency.key_digest")
    assert isinstance(digest, str)
    assert len(digest) == 12
    assert attributes == {
        "idempotency.attempt": 1,
        "idempotency.decision": "claimed",
        "idempotency.replayed": False,
        "idempotency.outcome": "completed",
    }


def test_a_replay_can_be_searched_for() -> None:
    """Among the spans of one endpoint."""
    spans, engine = Spans(), Engine(MemoryStore(), Options(observers=(OpenTelemetryObserver(),)))
    engine.run_once("order-7", None, lambda lease: "done")
    with spans.tracer.start_as_current_span("POST /payments"):
        engine.run_once("order-7", None, lambda lease: "done")
    attributes = spans.ended().attributes or {}
    assert (attributes["idempotency.decision"], attributes["idempotency.replayed"]) == ("replayed", True)


def test_a_refusal_says_why() -> None:
    """By the problem's name."""
    spans = Spans()
    with spans.tracer.start_as_current_span("POST /payments"):
        OpenTelemetryObserver()(Event(kind=EventKind.REFUSED, reason="key-reused", status=422))
    attributes = spans.ended().attributes or {}
    assert (attributes["idempotency.decision"], attributes["idempotency.reason"]) == ("refused", "key-reused")


def test_spans_can_be_left_alone() -> None:
    """Where somebody counts only."""
    spans = Spans()
    with spans.tracer.start_as_current_span("POST /payments"):
        OpenTelemetryObserver(spans=False)(Event(kind=EventKind.CLAIMED))
    assert (spans.ended().attributes, spans.ended().events) == ({}, ())


def test_without_an_sdk_nothing_happens() -> None:
    """The API alone costs next to nothing."""
    observer = OpenTelemetryObserver()
    for event in EVERY_KIND:
        observer(event)
