"""OpenTelemetry: an observer that counts events, and tells the current span of them (extra `otel`).

It needs the API alone. The span is the one that the framework's instrumentation made for the request; none is begun
here. What goes on in the background (renewals, late recordings) has no span, and is counted all the same.
"""

from __future__ import annotations

from idem_middleware.events import Event, EventKind
from idem_middleware.telemetry.instruments import INSTRUMENTS, Instrument, Shape, observation

try:
    from opentelemetry import metrics, trace
except ImportError as missing:
    raise ImportError("this needs opentelemetry-api: pip install 'idem-middleware[otel]'") from missing

__all__ = ["DECISIONS", "OUTCOMES", "OpenTelemetryObserver", "attribute_name"]

DECISIONS = frozenset(
    {
        EventKind.CLAIMED,
        EventKind.RUN_AGAIN,
        EventKind.TAKEN_OVER,
        EventKind.REPLAYED,
        EventKind.REFUSED,
        EventKind.BYPASSED,
    }
)
"""What was done with the request: the span's attribute `idempotency.decision`."""

OUTCOMES = frozenset(
    {
        EventKind.COMPLETED,
        EventKind.COMPLETED_WITHOUT_ANSWER,
        EventKind.FAILED,
        EventKind.RELEASED,
        EventKind.ABANDONED,
        EventKind.EXECUTED_NOT_RECORDED,
    }
)
"""How its execution ended: the span's attribute `idempotency.outcome`."""

_Attributes = dict[str, str | int | float | bool]
_LASTING = ("idempotency.key_digest", "idempotency.attempt")
_ATTRIBUTES = {"code": "error.type"}  # the semantic conventions' name; the others are ours: idempotency.*


class OpenTelemetryObserver:
    """Counts each event once, and writes it to the current span: an event of its own, and attributes to search by.

    Without arguments it uses the providers that the process has set. `spans=False` leaves the spans alone.
    """

    def __init__(self, meter_provider: metrics.MeterProvider | None = None, *, spans: bool = True) -> None:
        meter = metrics.get_meter("idem_middleware", meter_provider=meter_provider)
        self._instruments = {instrument.name: _made(meter, instrument) for instrument in INSTRUMENTS}
        self._spans = spans

    def __call__(self, event: Event) -> None:
        """Count it, and tell the span."""
        seen = observation(event)
        if seen is not None:
            names = (attribute_name(label.name) for label in seen.instrument.labels)
            attributes = dict(zip(names, seen.labels, strict=True))
            made = self._instruments[seen.instrument.name]
            if isinstance(made, metrics.Counter):
                made.add(seen.amount, attributes)
            else:
                made.record(seen.amount, attributes)
        if self._spans:
            _tell_span(event)


def _made(meter: metrics.Meter, instrument: Instrument) -> metrics.Counter | metrics.Histogram:
    if instrument.shape is Shape.COUNTER:
        return meter.create_counter(instrument.dotted, instrument.unit, instrument.description)
    return meter.create_histogram(
        instrument.dotted,
        instrument.unit,
        instrument.description,
        explicit_bucket_boundaries_advisory=instrument.buckets_seconds,
    )


def attribute_name(name: str) -> str:
    """The name of a label in OpenTelemetry."""
    return _ATTRIBUTES.get(name, f"idempotency.{name}")


def _tell_span(event: Event) -> None:
    span = trace.get_current_span()
    if not span.is_recording():
        return
    attributes = _attributes(event)
    span.add_event(f"idempotency.{event.kind.value}", attributes)
    lasting: _Attributes = {name: attributes[name] for name in _LASTING if name in attributes}
    if event.kind in DECISIONS:
        lasting["idempotency.decision"] = event.kind.value
        lasting["idempotency.replayed"] = event.kind is EventKind.REPLAYED and not event.observed
        if event.reason is not None:
            lasting["idempotency.reason"] = event.reason
    elif event.kind in OUTCOMES:
        lasting["idempotency.outcome"] = event.kind.value
    span.set_attributes(lasting)


def _attributes(event: Event) -> _Attributes:
    """All that the event says, under names of ours but where the semantic conventions have one."""
    known = {
        "idempotency.key_digest": event.key_digest,
        "idempotency.attempt": event.attempt,
        "idempotency.reason": event.reason,
        "idempotency.status": event.status,
        "idempotency.seconds": event.seconds,
        "idempotency.observed": event.observed or None,
        # A condition that did not hold is an answer: the request that met it has not failed.
        "error.type": None if event.kind is EventKind.CONDITION_FAILED else event.dynamo_error_code,
    }
    return {name: value for name, value in known.items() if value is not None}
