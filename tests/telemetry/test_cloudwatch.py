"""CloudWatch's embedded metric format: lines that it takes, with what its users search for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from idem_middleware import ConfigurationError, Event, EventKind
from idem_middleware.telemetry.cloudwatch import EmbeddedMetricsObserver, metric_name
from idem_middleware.telemetry.instruments import INSTRUMENTS
from tests.telemetry.events import EVERY_KIND


def line(event: Event, **dimensions: str) -> dict[str, Any]:
    """What is written of it."""
    lines: list[str] = []
    EmbeddedMetricsObserver(dimensions=dimensions, write=lines.append, now=lambda: 1_700_000_000.5)(event)
    (written,) = lines
    assert "\n" not in written
    return json.loads(written)  # type: ignore[no-any-return]


def test_a_line_says_what_cloudwatch_counts_and_what_people_search_for() -> None:
    """The key's digest and the attempt are fields, never dimensions."""
    event = Event(kind=EventKind.REFUSED, key_digest="0123456789ab", reason="key-reused", status=422)
    assert line(event, Service="payments") == {
        "_aws": {
            "Timestamp": 1_700_000_000_500,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Idempotency",
                    "Dimensions": [["Service"], ["Service", "Reason", "Mode"]],
                    "Metrics": [{"Name": "Refusals", "Unit": "Count"}],
                }
            ],
        },
        "Service": "payments",
        "Reason": "key-reused",
        "Mode": "enforce",
        "Refusals": 1.0,
        "event": "refused",
        "key_digest": "0123456789ab",
        "status": 422,
        "reason": "key-reused",
    }


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.kind.value)
def test_every_line_keeps_to_the_format(event: Event) -> None:
    """Every name that is declared is a member of the line, of the right type."""
    written = line(event, Service="payments")
    (directive,) = written["_aws"]["CloudWatchMetrics"]
    (metric,) = directive["Metrics"]
    assert isinstance(written[metric["Name"]], float)
    assert metric["Unit"] in {"Count", "Seconds"}
    for dimensions in directive["Dimensions"]:
        assert all(isinstance(written[name], str) and written[name] for name in dimensions)


def test_names_are_cloudwatchs_but_for_the_ones_promised_first() -> None:
    """In capitals, without the namespace twice."""
    names = [metric_name(instrument) for instrument in INSTRUMENTS]
    assert {"Claims", "ExecutionDuration", "LeaseRenewals", "ExecutedNotRecorded"} <= set(names)
    assert "dynamo_ttl_delete_before_retry" in names
    assert len(set(names)) == len(names)


def test_lines_go_to_standard_output_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Where Lambda and ECS look."""
    EmbeddedMetricsObserver()(Event(kind=EventKind.RENEWED))
    written = capsys.readouterr().out
    assert written.endswith("}\n")
    assert json.loads(written)["LeaseRenewals"] == 1


@pytest.mark.parametrize(
    ("namespace", "dimensions"),
    [
        ("", {}),
        ("AWS/DynamoDB", {}),
        ("Idempotency", {"Service": ""}),
        ("Idempotency", {"key_digest": "x"}),
        ("Idempotency", {f"Dimension{number}": "x" for number in range(29)}),
    ],
    ids=["no namespace", "AWS's own", "an empty value", "a field of ours", "too many"],
)
def test_what_cloudwatch_would_drop_stops_the_start(namespace: str, dimensions: dict[str, str]) -> None:
    """It would do so in silence."""
    with pytest.raises(ConfigurationError):
        EmbeddedMetricsObserver(namespace, dimensions)
