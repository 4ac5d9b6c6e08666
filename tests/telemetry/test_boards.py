"""The dashboard and the alert rules are about metrics that exist, and tools accept them."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from idem_middleware.telemetry.boards import alerts, dashboard
from idem_middleware.telemetry.instruments import INSTRUMENTS, OTHER, Instrument, Shape
from tests.support.processes import ROOT
from tests.telemetry.queries import alert_queries, dashboard_queries, series_in

QUERIES = [*dashboard_queries(), *alert_queries()]
SERIES: dict[str, Instrument] = {
    name: instrument
    for instrument in INSTRUMENTS
    for name in (
        [instrument.exposed_name]
        if instrument.shape is Shape.COUNTER
        else [f"{instrument.name}_{ending}" for ending in ("count", "sum", "bucket")]
    )
}
_OF_PROMETHEUS = {"job", "instance", "le"}


@pytest.mark.parametrize("query", [query for _, query in QUERIES], ids=[name for name, _ in QUERIES])
def test_a_query_reads_series_and_labels_that_exist(query: str) -> None:
    """With values that can occur."""
    used = series_in(query)
    assert used
    assert used <= set(SERIES)
    labels = {label.name: {*label.values, OTHER} for name in used for label in SERIES[name].labels}
    for name, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', query):
        if name in _OF_PROMETHEUS:
            continue
        for choice in value.split("|") if operator == "=~" else [re.escape(value)]:
            assert any(re.fullmatch(choice, known) for known in labels[name]), f"{name} is never {choice}"
    for grouped in re.findall(r"by \(([^)]*)\)", query):
        assert set(grouped.split(", ")) <= {*labels, *_OF_PROMETHEUS}


def test_every_metric_is_on_the_dashboard() -> None:
    """None is counted that nobody looks at."""
    shown = {SERIES[name].name for _, query in dashboard_queries() for name in series_in(query)}
    assert shown == {instrument.name for instrument in INSTRUMENTS}


def test_the_dashboard_is_what_its_script_makes() -> None:
    """Change the script, and run it."""
    assert runpy.run_path(str(ROOT / "scripts" / "make_dashboard.py"))["text"]() == dashboard()


def test_panels_do_not_overlap() -> None:
    """Grafana would move them about."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(dashboard())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_alert_says_what_happened_and_where_to_read_on() -> None:
    """The runbook has a section of its name."""
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    headings = {heading.lower() for heading in re.findall(r"^### (\w+)$", runbook, re.MULTILINE)}
    rules = [rule for group in yaml.safe_load(alerts())["groups"] for rule in group["rules"]]
    assert {rule["annotations"]["runbook"] for rule in rules} <= headings
    for rule in rules:
        assert rule["annotations"]["runbook"] == rule["alert"].lower()
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path) -> None:
    """Prometheus's own checker, where it is installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    rules = tmp_path / "alerts.yaml"
    rules.write_text(alerts(), encoding="utf-8")
    checked = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(rules)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
