"""The Prometheus observer: one event, one increment; in one process, and in several that are read as one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from idem_middleware import Engine, Event, EventKind, MemoryStore, Options
from idem_middleware.telemetry.instruments import INSTRUMENTS
from idem_middleware.telemetry.prometheus import PrometheusObserver
from tests.support.processes import Process
from tests.telemetry.events import EVERY_KIND


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def totals(registry: CollectorRegistry) -> dict[str, float]:
    """How often each family was incremented."""
    counted: dict[str, float] = {}
    for family in registry.collect():
        ending = "_count" if family.type == "histogram" else "_total"
        values = [sample.value for sample in family.samples if sample.name == family.name + ending]
        counted[family.name] = sum(values)
    return counted


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.kind.value)
def test_one_event_is_one_increment(event: Event, registry: CollectorRegistry) -> None:
    """Of one series of one family."""
    observer = PrometheusObserver(registry)
    before = totals(registry)
    observer(event)
    after = totals(registry)
    assert sorted(after[name] - before[name] for name in after) == [0.0] * (len(after) - 1) + [1.0]


def test_observers_of_one_registry_share_its_metrics(registry: CollectorRegistry) -> None:
    """An application with two engines is no reason for an error, nor for a second series."""
    first, second = PrometheusObserver(registry), PrometheusObserver(registry)
    first(Event(kind=EventKind.RENEWED))
    second(Event(kind=EventKind.RENEWED))
    assert registry.get_sample_value("idempotency_lease_renewals_total") == 2


def test_what_a_store_says_counts_once_however_many_engines_it_serves(registry: CollectorRegistry) -> None:
    """Throttling of one call is one event."""

    class Talking(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.observers: list[object] = []

        def subscribe(self, observer: object) -> None:
            if observer not in self.observers:
                self.observers.append(observer)

    store, observer = Talking(), PrometheusObserver(registry)
    for namespace in ("a", "b"):
        Engine(store, Options(namespace=namespace, observers=(observer,)))
    assert len(store.observers) == 2  # the log, and this one


def test_series_are_there_before_anything_happens(registry: CollectorRegistry) -> None:
    """So that the first event is seen as a rise, not as a series that begins at 1."""
    PrometheusObserver(registry)
    shown = generate_latest(registry).decode()
    for line in (
        'idempotency_claims_total{start="taken_over"} 0.0',
        'idempotency_executed_not_recorded_total{reason="lease-lost"} 0.0',
        'idempotency_refusals_total{mode="enforce",reason="outcome-unknown"} 0.0',
        "dynamo_cross_region_duplicate_detected_total 0.0",
        'transact_write_cancellation_reason_total{reason="TransactionConflict"} 0.0',
    ):
        assert line in shown


def test_every_instrument_is_exposed_with_its_description(registry: CollectorRegistry) -> None:
    """Under the table's names."""
    PrometheusObserver(registry)
    shown = generate_latest(registry).decode()
    assert [i.name for i in INSTRUMENTS if f"# HELP {i.exposed_name} {i.description}" not in shown] == []


def test_requests_count_as_they_go(registry: CollectorRegistry) -> None:
    """A first execution and a replay of it."""
    engine = Engine(MemoryStore(), Options(observers=(PrometheusObserver(registry),)))
    for _ in range(2):
        engine.run_once("order-7", None, lambda lease: "done")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("idempotency_claims_total", start="new") == 1
    assert value("idempotency_execution_seconds_count", outcome="completed") == 1
    assert value("idempotency_replays_total", mode="enforce") == 1


_WORKER = """
from idem_middleware import Engine, Options
from idem_middleware.telemetry.prometheus import PrometheusObserver

engine = Engine("memory://", Options(observers=[PrometheusObserver()]))
for _ in range(3):
    engine.run_once("order-7", None, lambda lease: "done")
print("ready", flush=True)
"""


@pytest.mark.processes
def test_several_processes_are_read_as_one(tmp_path: Path) -> None:
    """By prometheus_client's multi-process mode; also of workers that have ended."""
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        with Process([sys.executable, "-c", _WORKER], environment=environment) as worker:
            worker.wait_for_line("ready")
            assert worker.wait() == 0
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))  # type: ignore[no-untyped-call]
    shown = generate_latest(registry).decode()
    assert 'idempotency_claims_total{start="new"} 2.0' in shown
    assert 'idempotency_replays_total{mode="enforce"} 4.0' in shown
    assert 'idempotency_execution_seconds_count{outcome="completed"} 2.0' in shown
    assert 'idempotency_claims_total{start="taken_over"} 0.0' in shown
