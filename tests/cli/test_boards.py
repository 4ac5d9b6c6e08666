"""`dashboard` and `alerts` print the files that the package carries."""

from __future__ import annotations

from idem_middleware.telemetry import boards
from tests.cli.conftest import Run


def test_the_dashboard_is_printed_as_it_is_imported(run: Run) -> None:
    """Nothing before it, nothing after it."""
    assert run("dashboard").stdout == boards.dashboard()


def test_the_alert_rules_are_printed_as_prometheus_reads_them(run: Run) -> None:
    """Comments too."""
    assert run("alerts").stdout == boards.alerts()
