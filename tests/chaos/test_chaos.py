"""A short run of the chaos, so that nothing breaks unseen. `tox -e chaos` is the long one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.chaos.faults import Fault, Pace
from tests.chaos.fleet import Machine
from tests.chaos.history import Policy
from tests.chaos.scenario import MIXED, REFUSE, RETRY, Scenario, run
from tests.conftest import REQUIRE_VARIABLE
from tests.support.dynamodb_local import DynamoDBLocalMissingError, locate
from tests.support.probes import INSTALLED_FRAMEWORKS

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local]

# One of each kind of server, as far as they are installed; the long run has them all.
_ASGI = [name for name in ("starlette", "fastapi", "django-asgi") if name in INSTALLED_FRAMEWORKS][:1]
_WSGI = [name for name in ("flask", "django-wsgi") if name in INSTALLED_FRAMEWORKS][:1]
# A worker dies, the store goes away and comes back, another worker is asked to leave while all begin anew.
_SCRIPT: tuple[Fault, ...] = ("kill", "outage", "retire")


# On CI the same faults every time: what is judged there is the change. Elsewhere others each time, and in the long run.
_SEED = 20_261_129 if os.environ.get("CI") == "true" else secrets.randbits(32)


@pytest.mark.parametrize(
    ("framework", "policy", "clock_offset"),
    [
        *(pytest.param(framework, RETRY, 120.0, id=f"{framework}-retry") for framework in _ASGI),
        *(pytest.param(framework, REFUSE, -120.0, id=f"{framework}-refuse") for framework in _WSGI),
    ],
)
def test_every_promise_holds_while_workers_die_and_the_store_comes_and_goes(
    framework: str, policy: Policy, clock_offset: float, tmp_path: Path
) -> None:
    """Two servers with two workers each, the clocks of one two minutes wrong."""
    try:
        locate()
    except DynamoDBLocalMissingError as missing:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            raise
        pytest.skip(str(missing))
    scenario = Scenario(
        framework=framework,
        policy=policy,
        requests=150,
        seconds=20,
        seed=_SEED,
        machines=(Machine(), Machine(clock_offset=clock_offset)),
        threads=12,
        pace=Pace(least_seconds=0.2, most_seconds=0.6, script=_SCRIPT),
    )
    report = run(scenario, tmp_path / "chaos")
    assert not report.verdict.violations, report.told()
    assert report.figures["faults"] == {"kill": 1, "outage": 1, "retire": 1}, report.told()
    assert report.figures["workers that told of a wrong clock"] >= 1, report.told()
    assert report.figures["store faults"] >= 1, report.told()
    assert report.figures["answers"]["201 fresh"] >= 1
    assert report.figures["answers"]["201 replayed"] >= 1


def test_the_policies_differ_in_what_they_let_run_again() -> None:
    """The bounds that the checker holds a history to are those of its policy."""
    assert {(policy.on_abandoned, policy.on_error) for policy in (RETRY, REFUSE, MIXED)} == {
        ("retry", "retry"),
        ("refuse", "refuse"),
        ("refuse", "retry"),
    }
