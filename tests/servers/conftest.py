"""Services to send requests to: every framework, on one worker and on two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.client import Service
from tests.servers.probes import DEMANDING, ONE_WORKER, SHORT_LEASES, TWO_WORKERS, Probes
from tests.support.fault_proxy import FaultProxy, running_fault_proxy
from tests.support.probes import INSTALLED_FRAMEWORKS

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

_WORKERS = {1: ONE_WORKER, 2: TWO_WORKERS}
_PAIRS_AT_ONCE = ("fastapi", "flask")  # one behind uvicorn, one behind gunicorn: the others' pairs are thorough tests


def _everywhere() -> Iterator[ParameterSet]:
    for framework in INSTALLED_FRAMEWORKS:
        for workers, setup in _WORKERS.items():
            later = workers > 1 and framework not in _PAIRS_AT_ONCE
            marks = [pytest.mark.thorough] if later else []
            yield pytest.param((framework, setup), id=f"{framework}-{workers}", marks=marks)


on_all_frameworks = pytest.fixture(params=INSTALLED_FRAMEWORKS)


@pytest.fixture(scope="session")
def proxy(dynamodb_local: str) -> Iterator[FaultProxy]:
    """The proxy between all probes and DynamoDB Local."""
    with running_fault_proxy(dynamodb_local) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def probes(dynamodb_local: str, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probes]:
    """The probes of this test process."""
    probes = Probes(dynamodb_local, proxy, tmp_path_factory.mktemp("servers"))
    yield probes
    probes.stop()


@pytest.fixture(params=_everywhere())
def service(request: pytest.FixtureRequest, probes: Probes) -> Iterator[Service]:
    """The product's defaults, with one worker and with two."""
    with probes.service(*request.param) as service:
        yield service


@on_all_frameworks
def single_service(request: pytest.FixtureRequest, probes: Probes) -> Iterator[Service]:
    """The product's defaults, with one worker: for what no second worker can change."""
    with probes.service(request.param, ONE_WORKER) as service:
        yield service


@on_all_frameworks
def double_service(request: pytest.FixtureRequest, probes: Probes) -> Iterator[Service]:
    """The product's defaults, with two workers: one of them may crash, and is replaced."""
    with probes.service(request.param, TWO_WORKERS) as service:
        yield service


@on_all_frameworks
def demanding_service(request: pytest.FixtureRequest, probes: Probes) -> Iterator[Service]:
    """Strict keys that are UUIDs, duplicates that wait, server errors that are final, no second run after a crash.

    Its refusals link to a page, and a cross-origin and a compressing middleware are around it.
    """
    with probes.service(request.param, DEMANDING) as service:
        yield service


@on_all_frameworks
def short_leased_service(request: pytest.FixtureRequest, probes: Probes) -> Iterator[Service]:
    """Leases of a second, with two workers."""
    with probes.service(request.param, SHORT_LEASES) as service:
        yield service
