"""Run the chaos from the command line: `python -m tests.chaos --requests 50000`."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.faults import Pace
from tests.chaos.scenario import POLICIES, Scenario, run
from tests.support.probes import INSTALLED_FRAMEWORKS

_MOST_SHOWN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Give 0 if every promise held, 1 if one was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000, help="over all frameworks and policies together")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each framework and policy, at most")
    parser.add_argument("--framework", action="append", choices=INSTALLED_FRAMEWORKS, help="default: all")
    parser.add_argument("--policy", action="append", choices=tuple(POLICIES), help="default: all")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--threads", type=int, default=24, help="clients at once")
    parser.add_argument("--fault-rate", type=float, default=0.02, help="of the calls to DynamoDB")
    parser.add_argument("--transport", default="boto3", choices=("boto3", "lean"))
    parser.add_argument("--folder", type=Path, help="where the histories are left; default: a temporary one")
    parsed = parser.parse_args(arguments)
    set_environment()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stop what was started, as after an interrupt
    seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
    folder = parsed.folder or Path(tempfile.mkdtemp(prefix="idem-chaos-"))
    _print(f"seed {seed}, histories in {folder}")
    pairs = [
        (framework, POLICIES[name])
        for framework in parsed.framework or INSTALLED_FRAMEWORKS
        for name in parsed.policy or POLICIES
    ]
    total: Counter[str] = Counter()
    for number, (framework, policy) in enumerate(pairs):
        scenario = Scenario(
            framework=framework,
            policy=policy,
            requests=-(-parsed.requests // len(pairs)),
            seconds=parsed.seconds,
            seed=seed + number,
            threads=parsed.threads,
            pace=Pace(),
            fault_rate=parsed.fault_rate,
            transport=parsed.transport,
        )
        report = run(scenario, folder / f"{framework}-{policy.name}")
        _print(report.told(most_violations=_MOST_SHOWN))
        total.update(_numbers(report.figures))
    _print(f"seed {seed}, all together: {json.dumps(total)}")
    return 1 if total["violations"] else 0


def _numbers(figures: dict[str, Any] | Any) -> Counter[str]:
    """Flatten the figures."""
    flat: Counter[str] = Counter()
    for name, value in figures.items():
        if isinstance(value, dict):
            flat.update({f"{name}: {each}": count for each, count in value.items()})
        else:
            flat[name] += value or 0
    return flat


def set_environment() -> None:
    """Keep the developer's own AWS account and proxies out of it, as the tests' own set-up does."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ.update(
        AWS_ACCESS_KEY_ID="testing",
        AWS_SECRET_ACCESS_KEY="testing",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
    )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
