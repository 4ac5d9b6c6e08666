"""The one table of what is measured: which event counts where, under which labels.

One event is one increment of one instrument. A label takes its values from a fixed list, everything else is "other":
so no key, no caller and no text of an error can become a label, and the number of series is known beforehand. What
makes a single event findable (the key's digest, the attempt) belongs to logs and traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from idem_middleware.events import Event, EventKind
from idem_middleware.problems import ProblemType
from idem_middleware.stores.dynamodb.faults import KNOWN_CODES

__all__ = ["INSTRUMENTS", "OTHER", "Instrument", "Label", "Observation", "Shape", "observation", "source_of"]

OTHER = "other"
"""The value of a label for what is not on its list."""


class Shape(StrEnum):
    """How the values of an instrument add up."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """One dimension. `read` takes its value from an event; what is not in `values` counts as "other"."""

    name: str
    values: tuple[str, ...]
    read: Callable[[Event], str | None]

    def of(self, event: Event) -> str:
        """The value that this event counts under."""
        value = self.read(event)
        return value if value in self.values else OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One counter, or one distribution of seconds.

    `name` is the Prometheus name of the family: a counter's samples add `_total` to it. `dotted` is the name in
    OpenTelemetry, from which CloudWatch's is made too.
    """

    name: str
    dotted: str
    description: str
    unit: str
    labels: tuple[Label, ...] = ()
    shape: Shape = Shape.COUNTER
    buckets_seconds: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name to use in a PromQL expression (a histogram's series add `_count`, `_sum` and `_bucket`)."""
        return f"{self.name}_total" if self.shape is Shape.COUNTER else self.name

    @property
    def most_series(self) -> int:
        """How many combinations of label values there can be, with "other" in each."""
        return prod(len(label.values) + 1 for label in self.labels)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one event adds: 1 to a counter, its seconds to a distribution."""

    instrument: Instrument
    labels: tuple[str, ...]
    amount: float


def _named(names: Mapping[EventKind, str]) -> Callable[[Event], str | None]:
    return lambda event: names.get(event.kind)


def _reason(default: str | None = None) -> Callable[[Event], str | None]:
    return lambda event: event.reason or default


def _stage(event: Event) -> str:
    """Where the store failed. A claim's reason is advice to the operator, in words."""
    return event.reason if event.reason in ("renewal", "recording") else "claim"


_STARTS = {EventKind.CLAIMED: "new", EventKind.RUN_AGAIN: "run_again", EventKind.TAKEN_OVER: "taken_over"}
_OUTCOMES = {
    EventKind.COMPLETED: "completed",
    EventKind.COMPLETED_WITHOUT_ANSWER: "completed_without_answer",
    EventKind.FAILED: "failed",
    EventKind.RELEASED: "released",
}
_PROBLEMS = tuple(kind.slug for kind in ProblemType)

_MODE = Label("mode", ("enforce", "observe"), lambda event: "observe" if event.observed else "enforce")
_CODE = Label("code", tuple(sorted(KNOWN_CODES)), lambda event: event.dynamo_error_code)
# The API's reference, TransactWriteItems, "Cancellation reasons".
_CANCELLATIONS = Label(
    "reason",
    (
        "ConditionalCheckFailed",
        "DuplicateItem",
        "ItemCollectionSizeLimitExceeded",
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "TransactionConflict",
        "ValidationError",
    ),
    _reason(),
)

_CLAIMS = Instrument(
    name="idempotency_claims",
    dotted="idempotency.claims",
    description="Executions that began: of a new key, again after a failure, or taken over after a crash.",
    unit="{execution}",
    labels=(Label("start", tuple(_STARTS.values()), _named(_STARTS)),),
)
_EXECUTIONS = Instrument(
    name="idempotency_execution_seconds",
    dotted="idempotency.execution.duration",
    description="Time from an execution's claim until its end was recorded, by how it ended.",
    unit="s",
    labels=(Label("outcome", tuple(_OUTCOMES.values()), _named(_OUTCOMES)),),
    shape=Shape.HISTOGRAM,
    # From a quick handler to max_execution_seconds; 30 and 60 are the usual time-outs of balancers and gateways.
    buckets_seconds=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0),
)
_WAITS = Instrument(
    name="idempotency_wait_seconds",
    dotted="idempotency.wait.duration",
    description="Time that duplicates waited for the first request's answer (wait_seconds).",
    unit="s",
    shape=Shape.HISTOGRAM,
    buckets_seconds=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)


def _counter(name: str, description: str, unit: str, *labels: Label, seed: bool = False) -> Instrument:
    """A counter whose dotted name follows from its name. Seed names are the same on every platform."""
    dotted = name if seed else name.replace("_", ".", 1)
    return Instrument(name=name, dotted=dotted, description=description, unit=unit, labels=labels)


_REPLAYS = _counter("idempotency_replays", "Retries that got the stored answer.", "{request}", _MODE)
_REFUSALS = _counter(
    "idempotency_refusals",
    "Requests that were refused, by the name of the problem.",
    "{request}",
    Label("reason", _PROBLEMS, _reason()),
    _MODE,
)
_ABANDONED = _counter(
    "idempotency_abandoned",
    "Executions of which nobody knows what they did: cut off, longer than max_execution_seconds, or not recordable.",
    "{execution}",
    Label("reason", ("interrupted", "max-execution", "store-unavailable"), _reason("interrupted")),
)
_NOT_RECORDED = _counter(
    "idempotency_executed_not_recorded",
    "Work that was done and could not be recorded: the next retry may run it again.",
    "{execution}",
    Label("reason", ("lease-lost", "store-unavailable"), _reason()),
)
_RENEWALS = _counter("idempotency_lease_renewals", "Leases renewed under a handler that still runs.", "{renewal}")
_LEASES_LOST = _counter(
    "idempotency_leases_lost",
    "Leases that ended under a handler that still ran: lapsed, or taken over by another attempt.",
    "{lease}",
    Label("reason", ("lapsed", "taken-over"), _reason("taken-over")),
)
_UNDONE = _counter("idempotency_claims_undone", "Uncertain claims that were taken back; nothing ran.", "{claim}")
_BYPASSES = _counter("idempotency_bypasses", "Requests that ran unprotected (on_store_error).", "{request}")
_STORE_RETRIES = _counter("idempotency_store_retries", "Calls to the store that were sent again.", "{call}", _CODE)
_STORE_FAILURES = _counter(
    "idempotency_store_failures",
    "Calls to the store that were given up.",
    "{call}",
    Label("stage", ("claim", "renewal", "recording"), _stage),
    _CODE,
)
_SKEWS = _counter("idempotency_clock_skews", "Times that a machine's clock was off by more than the margin.", "{skew}")
_LATE_DUPLICATES = _counter(
    "dynamo_ttl_delete_before_retry",
    "Retries that came when the record of their key was gone already.",
    "{request}",
    seed=True,
)
_REJECTIONS = _counter(
    "idempotency_records_rejected",
    "Stored answers that were not authentic, or not readable with this cipher; nothing was given out, nothing ran.",
    "{record}",
    Label("reason", ("authentication", "malformed", "no-cipher", "plain", "unknown-key"), _reason()),
)
_CROWDED = _counter(
    "idempotency_waiters_refused",
    "Duplicates that could not wait, because as many waited already as the options allow.",
    "{request}",
)
_REMOVALS = Instrument(
    name="idempotency_removal_age_seconds",
    dotted="idempotency.removal.age",
    description="How long after the end of their retention records were removed, by what removed them.",
    unit="s",
    labels=(Label("by", ("ttl", "deleted"), _reason()),),
    shape=Shape.HISTOGRAM,
    # TTL deletes within a few days, as a rule; tombstones are kept for as long as somebody chose.
    buckets_seconds=(3600.0, 21600.0, 43200.0, 86400.0, 172800.0, 345600.0, 604800.0, 1209600.0, 2592000.0),
)
_CANCELLED_TRANSACTIONS = _counter(
    "transact_write_cancellation_reason",
    "Transactions that DynamoDB cancelled, by the reason that decided.",
    "{transaction}",
    _CANCELLATIONS,
    seed=True,
)
_PROBES = _counter(
    "idempotency_probes",
    "Abandoned claims that the prober was asked about, by what it said.",
    "{claim}",
    Label("reason", ("done", "not-done", "unknown"), _reason("unknown")),
)
_CHECKPOINTS = _counter("idempotency_checkpoints", "Checkpoints that handlers saved by themselves.", "{checkpoint}")
_TRANSACTIONS = _counter(
    "idempotency_transactions", "Transactions of handlers that were carried out with their claims.", "{transaction}"
)
_CONDITIONS = _counter(
    "idempotency_conditions_failed",
    "Writes that came second: DynamoDB's answer to every retry, and no fault.",
    "{call}",
)
_REGIONAL_DUPLICATES = _counter(
    "dynamo_cross_region_duplicate_detected",
    "Keys that two regions were found to have claimed.",
    "{key}",
    seed=True,
)

# Every kind of event, and no kind twice: a test compares it with `EventKind`.
_TABLE: Mapping[EventKind, Instrument] = {
    EventKind.CLAIMED: _CLAIMS,
    EventKind.RUN_AGAIN: _CLAIMS,
    EventKind.TAKEN_OVER: _CLAIMS,
    EventKind.COMPLETED: _EXECUTIONS,
    EventKind.COMPLETED_WITHOUT_ANSWER: _EXECUTIONS,
    EventKind.FAILED: _EXECUTIONS,
    EventKind.RELEASED: _EXECUTIONS,
    EventKind.REPLAYED: _REPLAYS,
    EventKind.REFUSED: _REFUSALS,
    EventKind.WAITED: _WAITS,
    EventKind.ABANDONED: _ABANDONED,
    EventKind.EXECUTED_NOT_RECORDED: _NOT_RECORDED,
    EventKind.RENEWED: _RENEWALS,
    EventKind.LEASE_LOST: _LEASES_LOST,
    EventKind.CLAIM_UNDONE: _UNDONE,
    EventKind.PROBED: _PROBES,
    EventKind.CHECKPOINTED: _CHECKPOINTS,
    EventKind.TRANSACTED: _TRANSACTIONS,
    EventKind.BYPASSED: _BYPASSES,
    EventKind.CONDITION_FAILED: _CONDITIONS,
    EventKind.STORE_RETRIED: _STORE_RETRIES,
    EventKind.STORE_FAILED: _STORE_FAILURES,
    EventKind.CLOCK_SKEWED: _SKEWS,
    EventKind.RECORD_REJECTED: _REJECTIONS,
    EventKind.CROWDED: _CROWDED,
    EventKind.LATE_DUPLICATE: _LATE_DUPLICATES,
    EventKind.TTL_REMOVED: _REMOVALS,
    EventKind.TRANSACTION_CANCELLED: _CANCELLED_TRANSACTIONS,
    EventKind.CROSS_REGION_DUPLICATE: _REGIONAL_DUPLICATES,
}

INSTRUMENTS: tuple[Instrument, ...] = tuple(dict.fromkeys(_TABLE.values()))
"""Each once, in the order of the table."""


def observation(event: Event) -> Observation | None:
    """What this event adds, and where. None for a kind that this release does not know."""
    instrument = _TABLE.get(event.kind)
    if instrument is None:
        return None
    amount = 1.0 if instrument.shape is Shape.COUNTER else event.seconds or 0.0
    return Observation(instrument, tuple(label.of(event) for label in instrument.labels), amount)


def source_of(instrument: Instrument) -> tuple[EventKind, ...]:
    """The kinds of event that count there."""
    return tuple(kind for kind, counted in _TABLE.items() if counted is instrument)
