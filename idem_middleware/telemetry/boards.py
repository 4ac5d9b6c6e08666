"""What goes on the wall: a Grafana dashboard and Prometheus alert rules for the metrics of `telemetry.prometheus`."""

from __future__ import annotations

from importlib import resources

__all__ = ["alerts", "dashboard"]


def dashboard() -> str:
    """A Grafana dashboard, as JSON to import."""
    return _file("dashboard.json")


def alerts() -> str:
    """Alert rules, as YAML for Prometheus's `rule_files`. `docs/runbook.md` explains each."""
    return _file("alerts.yaml")


def _file(name: str) -> str:
    return resources.files("idem_middleware.telemetry").joinpath(name).read_text(encoding="utf-8")
