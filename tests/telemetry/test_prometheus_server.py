"""A real Prometheus that scrapes a service under load: every query of dashboard and alerts shows something there."""

from __future__ import annotations

import json
import math
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from idem_middleware.telemetry.boards import alerts
from tests.support.polling import eventually
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.telemetry.queries import alert_queries, dashboard_queries

pytestmark = [pytest.mark.prometheus, pytest.mark.processes]

_CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: probe
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
_QUERIES = {**dict(dashboard_queries()), **dict(alert_queries())}


class Prometheus:
    """One that is running."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API; None while it can't be reached."""
        url = f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - its own address
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE:  # which it answers while it starts
                raise
            return None
        except OSError:
            return None

    def values(self, query: str) -> list[float]:
        """What an expression gives now."""
        data = self.ask("query", query=query)
        return [] if data is None else [float(series["value"][1]) for series in data["result"]]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt install prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    rules = folder / "alerts.yaml"
    rules.write_text(alerts(), encoding="utf-8")
    scraped, port = free_port(), free_port()
    configuration = folder / "prometheus.yml"
    configuration.write_text(_CONFIGURATION.format(rules=rules, port=scraped), encoding="utf-8")
    credentials = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    load = Process.module("tests.telemetry.load", "--port", str(scraped), environment=credentials)
    with load:
        load.wait_for_line("ready")
        arguments = [
            program,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with Process(arguments, working_folder=folder):
            server = Prometheus(port)
            # Counted in scrapes, not in seconds: a rate needs several.
            eventually(
                lambda: server.values('count_over_time(up{job="probe"}[1h]) > 8'),
                what="Prometheus has scraped the service a few times",
                within_seconds=60,
            )
            yield server


@pytest.mark.parametrize("name", _QUERIES)
def test_a_query_shows_something(name: str, prometheus: Prometheus) -> None:
    """A number that is not zero: what it looks for has happened."""

    def shown() -> bool:
        return any(value > 0 and not math.isnan(value) for value in prometheus.values(_QUERIES[name]))

    assert eventually(shown, what=f"{name} shows something", within_seconds=30, every_seconds=0.5)


def test_prometheus_takes_the_rules(prometheus: Prometheus) -> None:
    """Every alert fires here, or has begun the time that it waits."""

    def quiet() -> dict[str, str]:
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {name for name, _ in alert_queries()}
        return {rule["name"]: rule["health"] for rule in rules if rule["state"] not in {"firing", "pending"}}

    eventually(lambda: not quiet(), what="every alert is seen", within_seconds=60, every_seconds=0.5)
