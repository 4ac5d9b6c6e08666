"""`dashboard` and `alerts`: what goes on the wall, to standard output."""

from __future__ import annotations

import click

from idem_middleware.cli.terminal import examples
from idem_middleware.telemetry import boards

__all__ = ["alerts", "dashboard"]


@click.command(epilog=examples("dashboard > idempotency.json"))
def dashboard() -> None:
    """Print a Grafana dashboard (JSON) for the metrics of the Prometheus observer."""
    click.echo(boards.dashboard(), nl=False)


@click.command(epilog=examples("alerts > /etc/prometheus/rules/idempotency.yaml"))
def alerts() -> None:
    """Print Prometheus alert rules (YAML); docs/runbook.md explains each."""
    click.echo(boards.alerts(), nl=False)
