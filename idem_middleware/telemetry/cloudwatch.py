"""CloudWatch: an observer that writes each event as one line in the embedded metric format.

On Lambda and ECS the line goes to standard output, CloudWatch Logs takes the metric out of it, and the rest of the line
(the key's digest, the attempt) can be searched with Logs Insights. No agent, no call to AWS, nothing to install.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping

from idem_middleware.errors import ConfigurationError
from idem_middleware.events import Event
from idem_middleware.telemetry.instruments import Instrument, Observation, Shape, observation

__all__ = ["EmbeddedMetricsObserver", "dimension_name", "metric_name"]

# CloudWatch's limits: Embedded metric format specification; MetricDatum and Dimension in the API's reference.
_MOST_DIMENSIONS = 30
_MOST_LABELS = 2
_LONGEST_NAME = 255
_LONGEST_VALUE = 1024
_PROPERTIES = ("key_digest", "attempt", "status", "reason", "dynamo_error_code")


def _to_stdout(line: str) -> None:
    # One write, so that lines of several threads don't mix; the stream is looked up late, since Lambda replaces it.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class EmbeddedMetricsObserver:
    """One line of JSON per event, with one metric in it.

    `dimensions` (service, stage, …) are on every metric. A metric with labels is there twice: under those dimensions
    alone, to alarm on, and split by its labels. `write` gets each line without its end.

    Raises:
        ConfigurationError: a namespace or dimension that CloudWatch would refuse.
    """

    def __init__(
        self,
        namespace: str = "Idempotency",
        dimensions: Mapping[str, str] | None = None,
        *,
        write: Callable[[str], object] = _to_stdout,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._namespace = namespace
        self._dimensions = dict(dimensions or {})
        self._write = write
        self._now = now
        problems = list(_problems(namespace, self._dimensions))
        if problems:
            raise ConfigurationError(problems)

    def __call__(self, event: Event) -> None:
        """Write its line."""
        seen = observation(event)
        if seen is not None:
            self._write(json.dumps(self._line(event, seen), separators=(",", ":")))

    def _line(self, event: Event, seen: Observation) -> dict[str, object]:
        instrument = seen.instrument
        labels = {
            dimension_name(label.name): value for label, value in zip(instrument.labels, seen.labels, strict=True)
        }
        sets = [list(self._dimensions)]
        if labels:
            sets.append([*self._dimensions, *labels])
        name = metric_name(instrument)
        known = {name: getattr(event, name) for name in _PROPERTIES}
        return {
            "_aws": {
                "Timestamp": int(self._now() * 1000),
                "CloudWatchMetrics": [
                    {
                        "Namespace": self._namespace,
                        "Dimensions": sets,
                        "Metrics": [{"Name": name, "Unit": _UNITS[instrument.shape]}],
                    }
                ],
            },
            **self._dimensions,
            **labels,
            name: seen.amount,
            "event": event.kind.value,
            **{name: value for name, value in known.items() if value is not None},
        }


_UNITS = {Shape.COUNTER: "Count", Shape.HISTOGRAM: "Seconds"}


def metric_name(instrument: Instrument) -> str:
    """CloudWatch's way to write a name: `idempotency.lease_renewals` is `LeaseRenewals`; seed names stay."""
    first, dot, rest = instrument.dotted.partition(".")
    return dimension_name(rest.replace(".", "_")) if dot else first


def dimension_name(label: str) -> str:
    """The same for a label: `reason` is `Reason`."""
    return "".join(part.capitalize() for part in label.split("_"))


def _problems(namespace: str, dimensions: Mapping[str, str]) -> list[str]:
    problems = []
    if not namespace or len(namespace) > _LONGEST_NAME or namespace.startswith("AWS/"):
        problems.append(f"namespace must be 1 to {_LONGEST_NAME} characters and not begin with AWS/")
    if len(dimensions) > _MOST_DIMENSIONS - _MOST_LABELS:
        problems.append(f"dimensions must be at most {_MOST_DIMENSIONS - _MOST_LABELS}, with our own CloudWatch's 30")
    taken = {"event", "_aws", *_PROPERTIES}
    for name, value in dimensions.items():
        if not name or not value or len(name) > _LONGEST_NAME or len(value) > _LONGEST_VALUE or name.startswith(":"):
            problems.append(f"the dimension {name!r} needs a name and a value that CloudWatch takes")
        if name in taken:
            problems.append(f"the dimension {name!r} has the name of a field of ours")
    return problems
