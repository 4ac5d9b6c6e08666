"""`idem-middleware conformance` against every framework on its server, with two workers and a table."""

from __future__ import annotations

import pytest

from idem_middleware.cli.conformance import Target, Verdict, run
from tests.servers.client import Service

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]


def test_all_sequences_hold_but_the_link(double_service: Service) -> None:
    """No documentation is configured there, so refusals lead to none; the rest holds, and runs once."""
    probe, name = double_service.probe.url, double_service.name
    target = Target(
        url=f"{probe}/probe/{name}",
        slow={"X-Plan": '{"delay": 1.5}'},
        failing={"X-Plan": '{"status": 503}'},
        other_caller={"Authorization": "Bearer somebody-else"},
        runs_url=f"{probe}/log/{name}",
    )
    odd = {outcome.name: outcome for outcome in run(target) if outcome.verdict is not Verdict.HOLDS}
    assert {name: outcome.verdict for name, outcome in odd.items()} == {"missing key is explained": Verdict.DIFFERS}, (
        odd
    )
