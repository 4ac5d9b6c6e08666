"""Prometheus: an observer that counts events with `prometheus_client` (extra `prometheus`).

Works with its multi-process mode as it is: set PROMETHEUS_MULTIPROC_DIR, and expose a `MultiProcessCollector`.
"""

from __future__ import annotations

import threading
from itertools import product
from weakref import WeakKeyDictionary

from idem_middleware.events import Event
from idem_middleware.telemetry.instruments import INSTRUMENTS, Instrument, Shape, observation

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
except ImportError as missing:
    raise ImportError("this needs prometheus_client: pip install 'idem-middleware[prometheus]'") from missing

__all__ = ["PrometheusObserver"]

_Metric = Counter | Histogram

_MOST_PREPARED_SERIES = 64
"""Instruments with at most so many series show them all from the start, at 0.

An alert on a rate sees the first event only if the series was there before it. The exceptions are those by error code.
"""

_metrics: WeakKeyDictionary[CollectorRegistry, dict[str, _Metric]] = WeakKeyDictionary()
_lock = threading.Lock()


class PrometheusObserver:
    """Counts each event once, in the registry given. Any number of them may share one.

    `docs/reference/metrics.md` lists the names; `idem_middleware.telemetry.boards` has a dashboard and alerts for them.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        with _lock:
            if registry not in _metrics:
                _metrics[registry] = {instrument.name: _metric(instrument, registry) for instrument in INSTRUMENTS}
            self._metrics = _metrics[registry]

    def __call__(self, event: Event) -> None:
        """Count it."""
        seen = observation(event)
        if seen is None:
            return
        metric = self._metrics[seen.instrument.name]
        child = metric.labels(*seen.labels) if seen.labels else metric
        if isinstance(child, Counter):
            child.inc(seen.amount)
        else:
            child.observe(seen.amount)


def _metric(instrument: Instrument, registry: CollectorRegistry) -> _Metric:
    names = tuple(label.name for label in instrument.labels)
    metric: _Metric
    if instrument.shape is Shape.COUNTER:
        metric = Counter(instrument.name, instrument.description, names, registry=registry)
    else:
        buckets = instrument.buckets_seconds
        metric = Histogram(instrument.name, instrument.description, names, registry=registry, buckets=buckets)
    if names and instrument.most_series <= _MOST_PREPARED_SERIES:
        for values in product(*(label.values for label in instrument.labels)):
            metric.labels(*values)
    return metric
