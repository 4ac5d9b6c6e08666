"""One run: a fleet of one framework, its clients, everything that goes wrong, and the verdict about it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.checker import Verdict, check
from tests.chaos.clients import Clients
from tests.chaos.faults import Pace, Vandal
from tests.chaos.fleet import Fleet, Machine
from tests.chaos.history import History, Policy, history_of, read_trail, write_tries
from tests.chaos.store import DurableDynamoDB, RunningProxy, files_that_outlive_a_process
from tests.chaos.workload import flows
from tests.support.polling import eventually

REGION = "eu-central-1"
_TABLE = "chaos"
# The margin for differing clocks, on top of the lease, and time for a busy machine.
_SETTLING_SECONDS = 45.0

RETRY = Policy("retry", "retry", "retry", 2.0)
REFUSE = Policy("refuse", "refuse", "refuse", 2.0)
MIXED = Policy("mixed", "refuse", "retry", 2.0)
POLICIES = {policy.name: policy for policy in (RETRY, REFUSE, MIXED)}

MACHINES = (Machine(), Machine(clock_offset=120.0), Machine(clock_offset=-120.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What to run. It ends after so many requests, or so many seconds, and what is then left to be settled."""

    framework: str
    policy: Policy = RETRY
    requests: int = 4000
    seconds: float = 300.0
    seed: int = 0
    machines: Sequence[Machine] = MACHINES
    threads: int = 24
    pace: Pace = field(default_factory=Pace)
    fault_rate: float = 0.02
    transport: str = "boto3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it."""

    scenario: Scenario
    verdict: Verdict
    seconds: float
    figures: Mapping[str, Any]
    history: History

    def told(self, most_violations: int | None = None) -> str:
        """Tell it in a few lines."""
        which = f"{self.scenario.framework}, {self.scenario.policy.name}, seed {self.scenario.seed}"
        lines = [
            f"{which}: {len(self.history.tries)} requests in {self.seconds:.0f} s",
            f"  {json.dumps(self.figures)}",
            *(f"  VIOLATION {violation}" for violation in self.verdict.violations[:most_violations]),
        ]
        return "\n".join(lines)


def run(scenario: Scenario, folder: Path) -> Report:
    """Run it. All that it leaves is in the folder: what clients saw, the trail of the processes, both logs."""
    began_at = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    trail, log = folder / "trail.jsonl", folder / "runs.log"
    policy = scenario.policy
    with (
        files_that_outlive_a_process() as files,
        DurableDynamoDB(files) as dynamodb,
        RunningProxy(dynamodb.port, scenario.seed, scenario.fault_rate) as proxy,
        Fleet(
            scenario.framework,
            scenario.machines,
            store=f"dynamodb://{_TABLE}?region={REGION}&endpoint={proxy.url}&transport={scenario.transport}",
            options={
                "on_abandoned": policy.on_abandoned,
                "on_error": policy.on_error,
                "lease_seconds": policy.lease_seconds,
            },
            log=log,
            trail=trail,
        ) as fleet,
    ):
        clients = Clients(fleet.ports, threads=scenario.threads)
        vandal = Vandal(fleet, dynamodb, proxy, scenario.pace, scenario.seed)
        vandal.start()
        try:
            works = clients.storm(
                flows(scenario.seed, policy.lease_seconds),
                requests=scenario.requests,
                until=time.monotonic() + scenario.seconds,
            )
            if scenario.pace.script is not None:
                vandal.finished.wait(scenario.seconds)
        finally:
            vandal.stop()
        eventually(fleet.workers_are_up, what="all workers", within_seconds=60)
        clients.settle(works, within_seconds=policy.lease_seconds + _SETTLING_SECONDS)
        (folder / "errors.log").write_text(fleet.errors())
    write_tries(folder / "tries.jsonl", clients.tries)
    (folder / "faults.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in vandal.history))
    clocks = {number: machine.clock_offset for number, machine in enumerate(scenario.machines)}
    history = history_of(policy, clients.tries, read_trail(trail), _logged(log), clocks)
    verdict = check(history)
    report = Report(
        scenario=scenario,
        verdict=verdict,
        seconds=time.monotonic() - began_at,
        figures=_figures(history, verdict, vandal, proxy),
        history=history,
    )
    (folder / "report.txt").write_text(report.told() + "\n")
    return report


def _logged(log: Path) -> Counter[str]:
    if not log.exists():
        return Counter()
    return Counter(json.loads(line)["name"] for line in log.read_text().splitlines())


def _figures(history: History, verdict: Verdict, vandal: Vandal, proxy: RunningProxy) -> dict[str, Any]:
    answers = Counter(
        one.outcome
        if one.outcome != "answered"
        else f"{one.status} {one.problem or ('replayed' if one.replayed else 'fresh')}"
        for one in history.tries
    )
    skewed = {event.pid for event in history.told if event.event == "clock_skewed"}
    return {
        "requests": len(history.tries),
        "keys": len({one.subject for one in history.tries}),
        "runs": len(history.runs),
        "second runs": dict(verdict.reasons),
        "documented exceptions": dict(verdict.exceptions),
        "violations": len(verdict.violations),
        "answers": dict(answers.most_common()),
        "faults": dict(vandal.counts),
        "workers gone": len(history.gone),
        "workers that told of a wrong clock": len(skewed),
        "events": dict(Counter(event.event for event in history.told).most_common()),
        "store calls": proxy.report.get("calls"),
        "store faults": sum(proxy.report.get("struck", {}).values()),
    }
