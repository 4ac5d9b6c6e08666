"""The queries of the dashboard and of the alert rules, by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml

from idem_middleware.telemetry.boards import alerts, dashboard

_VARIABLES = {"$job": ".*", "$__rate_interval": "1m", "$__range": "1h"}


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """A name, and the query with Grafana's variables filled in."""
    for panel in json.loads(dashboard())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for variable, value in _VARIABLES.items():
                query = query.replace(variable, value)
            yield f"{panel['title']} / {target['refId']}", query


def alert_queries() -> Iterator[tuple[str, str]]:
    """The alert's name, and its expression."""
    for group in yaml.safe_load(alerts())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def series_in(query: str) -> set[str]:
    """The names of the series that it reads."""
    return set(re.findall(r"\b(?:idempotency|dynamo|transact)_[a-z_]+", query))
