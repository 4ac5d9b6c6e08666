"""What protecting a request costs: bare, by us, by others and by hand, in one interleaved run.

    python -m benchmarks.peers [--requests N] [--rounds N] [--in-flight N] [--delay-ms N] [--save]

Each variant is a process of its own, in a virtual environment of its own (made under `.benchmarks/` when it is first
needed), without a server: the application is called as a server would. All of them live through the whole run and take
turns, so that whatever else the machine does hits all alike. The cost is the CPU time of the variant's whole process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import hardware, save, stub, today, versions
from benchmarks.peers.worker import VARIANTS

ENVIRONMENTS = Path(__file__).parents[2] / ".benchmarks"
_WEB = ("starlette", "flask")
PACKAGES = {
    "idemkit": ("idemkit[dynamodb]==1.0.2", *_WEB),
    "powertools": ("aws-lambda-powertools==3.37.0", "boto3", "jmespath", *_WEB),
}
MEMORY = ("new", "replay", "mismatch", "uncovered")
DYNAMODB = ("new",)
"""The stub applies every write, so only a request that was never seen means something on it."""


@dataclass(slots=True)
class Worker:
    """One variant, and what its requests cost."""

    name: str
    process: subprocess.Popen[str]
    questions: Sequence[str]
    costs: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def carry_out(self, question: str, requests: int, in_flight: int) -> dict[str, float]:
        """Send an order, and wait for its cost."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"question": question, "requests": requests, "in_flight": in_flight}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended; look at what it said")
        cost: dict[str, float] = json.loads(line)
        return cost

    def median(self, question: str, what: str = "cpu_us") -> float:
        """The middle of all rounds."""
        return statistics.median(cost[what] for cost in self.costs[question])


def environment(name: str) -> Path:
    """The interpreter for a variant, in an environment that is made when it is not there."""
    packages = next((packages for peer, packages in PACKAGES.items() if f", {peer}" in name), None)
    if packages is None:
        return Path(sys.executable)
    folder = ENVIRONMENTS / packages[0].partition("==")[0].partition("[")[0]
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "complete").touch()
    return python


def started(names: Sequence[str], url: str, stack: ExitStack) -> list[Worker]:
    """A process for each variant."""
    workers = []
    for name in names:
        command = [str(environment(name)), str(Path(__file__).with_name("worker.py")), name, url]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(process.wait, 10)
        stack.callback(process.terminate)
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"{name} does not start")
        on_table = not name.endswith(("bare", "memory", "local cache"))
        workers.append(Worker(name, process, DYNAMODB if on_table else MEMORY))
    return workers


def measure(workers: Sequence[Worker], requests: int, rounds: int, in_flight: int) -> None:
    """Let them take turns; the order changes from round to round."""
    for worker in workers:
        for question in worker.questions:
            worker.carry_out(question, max(64, requests), in_flight)
    for number in range(rounds):
        first = number % len(workers)
        for worker in (*workers[first:], *workers[:first]):
            for question in worker.questions:
                cost = worker.carry_out(question, requests, in_flight)
                worker.costs.setdefault(question, []).append(cost)


def tables(workers: Sequence[Worker]) -> Iterator[str]:
    """Lines of Markdown: what each variant adds to the bare application of its framework."""
    bare = {worker.name.partition(",")[0]: worker for worker in workers if worker.name.endswith("bare")}
    for question in MEMORY:
        yield from ("", f"## {question}", "")
        yield "| variant | CPU µs | added to bare | spread of what is added | peak MB |"
        yield "|---|---:|---:|---:|---:|"
        for worker in workers:
            if question not in worker.costs or (question == "uncovered" and "local cache" in worker.name):
                continue
            # Nothing replays or refuses in the bare application: it runs.
            base = bare[worker.name.partition(",")[0]]
            added = [
                own["cpu_us"] - other["cpu_us"]
                for own, other in zip(worker.costs[question], base.costs[question], strict=True)
            ]
            low, *_, high = statistics.quantiles(added, n=10, method="inclusive")
            yield (
                f"| {worker.name} | {worker.median(question):.1f} | {statistics.median(added):.1f} | "
                f"{low:.1f} to {high:.1f} | {worker.median(question, 'peak_mb'):.0f} |"
            )


def ratios(workers: Sequence[Worker]) -> Iterator[str]:
    """The targets that this run can judge, as ratios of medians."""
    new = {worker.name: worker.median("new") for worker in workers}
    bare = {name.partition(",")[0]: cost for name, cost in new.items() if name.endswith("bare")}
    yield from ("", "## Ratios, new request", "", "| what | ratio |", "|---|---:|")
    for ours, theirs in COMPARED:
        added = [new[name] - bare[name.partition(",")[0]] for name in (ours, theirs)]
        yield f"| {ours}, to {theirs}: whole process | {new[ours] / new[theirs]:.2f} |"
        yield f"| the same, of what is added to bare | {added[0] / added[1]:.2f} |"


COMPARED = (
    ("starlette, ours, memory", "starlette, idemkit, memory"),
    ("flask, ours, memory", "flask, idemkit, memory"),
    ("flask, ours, boto3", "flask, by hand, boto3"),
    ("flask, ours, lean", "flask, by hand, boto3"),
    ("flask, ours, lean", "flask, powertools, boto3"),
    ("flask, ours, lean", "flask, idemkit, aioboto3"),
    ("starlette, ours, lean", "starlette, by hand, aiohttp"),
    ("starlette, ours, lean", "starlette, idemkit, aioboto3"),
    ("starlette, ours, lean", "starlette, powertools, boto3"),
)


def raw(workers: Sequence[Worker]) -> Mapping[str, Any]:
    """All that was measured, for the plots."""
    return {worker.name: worker.costs for worker in workers}


def main() -> None:
    """Print a report, and keep it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=128, help="per variant, question and round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--in-flight", type=int, default=1, help="at a time, in the variants on an event loop")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="how long the stub takes for an answer")
    parser.add_argument("--save", action="store_true", help="into benchmarks/results, under today's date")
    arguments = parser.parse_args()
    os.environ.update(
        AWS_ACCESS_KEY_ID="stub",
        AWS_SECRET_ACCESS_KEY="stub",  # noqa: S106  # opens nothing
        AWS_DEFAULT_REGION="eu-central-1",
        PYTHONWARNINGS="ignore",
    )
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        url = stack.enter_context(stub("--delay-ms", str(arguments.delay_ms)))
        workers = started(list(VARIANTS), url, stack)
        measure(workers, arguments.requests, arguments.rounds, arguments.in_flight)
        options = f"--requests {arguments.requests} --rounds {arguments.rounds} --in-flight {arguments.in_flight}"
        lines = [
            f"# Peers, {today()}",
            "",
            f"- {hardware()}; {load:.1f} processes wanted to run when it began",
            f"- {versions('starlette', 'flask', 'boto3', 'aiohttp')}; {', '.join(p[0] for p in PACKAGES.values())}",
            f"- `python -m benchmarks.peers {options} --delay-ms {arguments.delay_ms:g}`",
            *tables(workers),
            *ratios(workers),
        ]
        print("\n".join(lines))
        if arguments.save:
            save(f"peers-{arguments.in_flight}", lines, raw(workers))


if __name__ == "__main__":
    main()
