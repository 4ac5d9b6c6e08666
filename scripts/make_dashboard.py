"""Write the Grafana dashboard that the package carries: `python scripts/make_dashboard.py`.

The panels are said here in a few words each; Grafana's JSON has some fifty lines for one. A test compares the two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from idem_middleware.telemetry.instruments import INSTRUMENTS, Instrument, Shape

TARGET = Path(__file__).resolve().parents[1] / "idem_middleware" / "telemetry" / "dashboard.json"

_WIDTH = 24  # of Grafana's grid
_JOB = 'job=~"$job"'


def rate(name: str, *selectors: str, by: str = "") -> str:
    """Per second, summed."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({name}{{{', '.join((_JOB, *selectors))}}}[$__rate_interval]))"


def grown(name: str, *selectors: str) -> str:
    """How many in the time that is shown."""
    return f"sum(increase({name}{{{', '.join((_JOB, *selectors))}}}[$__range]))"


def quantile(share: float, name: str) -> str:
    """Of a distribution of seconds."""
    return f"histogram_quantile({share:g}, {rate(name + '_bucket', by='le')})"


@dataclass(frozen=True)
class Panel:
    """One picture: its queries with their legends."""

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "ops"
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 8
    alarming: bool = False


@dataclass(frozen=True)
class Row:
    """Panels that belong together."""

    title: str
    panels: tuple[Panel, ...]


def _alarm(title: str, description: str, query: str) -> Panel:
    return Panel(title, description, ((query, ""),), unit="short", kind="stat", width=4, alarming=True)


_REPLAYED = rate("idempotency_replays_total")

ROWS = (
    Row(
        "Should be zero",
        (
            _alarm(
                "Executed, not recorded",
                "Work that was done and could not be recorded: the next retry may run it again.",
                grown("idempotency_executed_not_recorded_total"),
            ),
            _alarm(
                "Abandoned",
                "Executions of which nobody knows what they did.",
                grown("idempotency_abandoned_total"),
            ),
            _alarm(
                "Taken over",
                "Executions that began because an earlier one crashed or stalled.",
                grown("idempotency_claims_total", 'start="taken_over"'),
            ),
            _alarm("Leases lost", "Leases that ended under a living handler.", grown("idempotency_leases_lost_total")),
            _alarm("Unprotected", "Requests that ran without protection.", grown("idempotency_bypasses_total")),
            _alarm("Clocks off", "Machines whose clock is off.", grown("idempotency_clock_skews_total")),
        ),
    ),
    Row(
        "Requests",
        (
            Panel(
                "Decisions",
                "What was done with each protected request.",
                (
                    (rate("idempotency_claims_total", by="start"), "run: {{start}}"),
                    (rate("idempotency_replays_total"), "replayed"),
                    (rate("idempotency_refusals_total"), "refused"),
                ),
            ),
            Panel(
                "Refusals",
                "By the name of the problem.",
                ((rate("idempotency_refusals_total", by="reason, mode"), "{{reason}} ({{mode}})"),),
            ),
            Panel(
                "Duplicates",
                "Share of the requests that were retries of work already done. Each costs a write unit or more.",
                (
                    (
                        f"{_REPLAYED} / ({rate('idempotency_claims_total')} + {_REPLAYED})",
                        "replayed",
                    ),
                ),
                unit="percentunit",
            ),
            Panel(
                "Outcomes",
                "How executions ended.",
                ((rate("idempotency_execution_seconds_count", by="outcome"), "{{outcome}}"),),
            ),
            Panel(
                "Execution time",
                "From the claim until the end was recorded. Compare it with your balancer's time-out.",
                tuple(
                    (quantile(share, "idempotency_execution_seconds"), f"p{share * 100:g}")
                    for share in (0.5, 0.95, 0.99)
                ),
                unit="s",
            ),
            Panel(
                "Waiting duplicates",
                "How long duplicates waited for the first answer (wait_seconds), and how many a second.",
                (
                    (quantile(0.95, "idempotency_wait_seconds"), "p95"),
                    (rate("idempotency_wait_seconds_count"), "waits per second"),
                ),
                unit="short",
            ),
        ),
    ),
    Row(
        "Leases",
        (
            Panel(
                "Rejected records",
                "Answers in the table that are not authentic, or not readable with this cipher.",
                ((rate("idempotency_records_rejected_total", by="reason"), "{{reason}}"),),
            ),
            Panel(
                "Waiters refused",
                "Duplicates that could not wait, because as many waited already as the options allow.",
                ((rate("idempotency_waiters_refused_total"), "refused"),),
            ),
            Panel(
                "Renewals",
                "Leases renewed under handlers that take longer than a third of lease_seconds.",
                ((rate("idempotency_lease_renewals_total"), "renewed"),),
            ),
            Panel(
                "Ends that nobody wanted",
                "By reason.",
                (
                    (rate("idempotency_leases_lost_total", by="reason"), "lost: {{reason}}"),
                    (rate("idempotency_abandoned_total", by="reason"), "abandoned: {{reason}}"),
                    (rate("idempotency_executed_not_recorded_total", by="reason"), "not recorded: {{reason}}"),
                ),
            ),
            Panel(
                "Claims undone",
                "Uncertain claims that were taken back; their clients got 503 and nothing ran.",
                ((rate("idempotency_claims_undone_total"), "undone"),),
            ),
        ),
    ),
    Row(
        "DynamoDB",
        (
            Panel(
                "Calls sent again",
                "By error code. A failed condition is no error, and not here.",
                ((rate("idempotency_store_retries_total", by="code"), "{{code}}"),),
            ),
            Panel(
                "Calls given up",
                "By what they were for, and error code.",
                ((rate("idempotency_store_failures_total", by="stage, code"), "{{stage}}: {{code}}"),),
            ),
            Panel(
                "Failed conditions",
                "Writes that came second: every retry is one. DynamoDB's answer, and no fault.",
                ((rate("idempotency_conditions_failed_total"), "answered"),),
            ),
            Panel(
                "Transactions",
                "Of handlers, carried out together with their claims.",
                (
                    (rate("idempotency_transactions_total"), "carried out"),
                    (rate("idempotency_checkpoints_total"), "checkpoints"),
                ),
            ),
            Panel(
                "Cancelled transactions",
                "By the reason that decided.",
                ((rate("transact_write_cancellation_reason_total", by="reason"), "{{reason}}"),),
            ),
            Panel(
                "Late duplicates",
                "Retries that came when the record of their key was gone.",
                ((rate("dynamo_ttl_delete_before_retry_total"), "late"),),
                width=4,
            ),
            Panel(
                "Duplicates across regions",
                "Keys that two regions claimed.",
                ((rate("dynamo_cross_region_duplicate_detected_total"), "keys"),),
                width=4,
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The whole, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in (*ROWS, *_others()):
        position = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False, "gridPos": position}
        )
        top += 1
        left = height = 0
        for panel in row.panels:
            if left + panel.width > _WIDTH:
                left, top = 0, top + height
            height = 4 if panel.kind == "stat" else 8
            panels.append(_panel(panel, len(panels) + 1, {"h": height, "w": panel.width, "x": left, "y": top}))
            left += panel.width
        top += height
    return {
        "title": "Idempotency",
        "uid": "idem-middleware",
        "description": "HTTP idempotency: what was run, replayed and refused, and what went wrong.",
        "tags": ["idempotency", "dynamodb"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _plain(instrument: Instrument) -> Panel:
    title = instrument.name.removeprefix("idempotency_").replace("_", " ").capitalize()
    if instrument.shape is Shape.HISTOGRAM:
        return Panel(title, instrument.description, ((quantile(0.95, instrument.name), "p95"),), unit="s")
    names = [label.name for label in instrument.labels]
    legend = " ".join(f"{{{{{name}}}}}" for name in names) or "all"
    return Panel(title, instrument.description, ((rate(instrument.exposed_name, by=", ".join(names)), legend),))


def _others() -> tuple[Row, ...]:
    """What no panel above is about: nothing is counted that nobody can look at."""
    shown = " ".join(query for row in ROWS for panel in row.panels for query, _ in panel.queries)
    panels = tuple(_plain(instrument) for instrument in INSTRUMENTS if instrument.name not in shown)
    return (Row("More", panels),) if panels else ()


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": {"query": "label_values(idempotency_claims_total, job)", "refId": "job"},
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        },
    ]


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarming:
        steps.append({"color": "red", "value": 1})
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.kind == "stat":
        options = {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": position,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": source,
                "expr": query,
                "legendFormat": legend,
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


def text() -> str:
    """What the file holds."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET.name)
