"""What protecting a request costs: bare, by us, by others and by hand, in one interleaved run.

    python -m benchmarks.peers [--requests N] [--rounds N] [--in-flight N …] [--only TEXT …] [--delay-ms N] [--save]

Each variant is a process of its own, in a virtual environment of its own (made under `.benchmarks/` when it is first
needed), without a server: the application is called as a server would. All of them live through the whole run and take
turns at each question. The cost is the CPU time of the variant's whole process. DynamoDB is the stub, which remembers
what is written and reckons capacity units from the items' sizes, those of failed writes included; with --dynamodb-local
it is Amazon's, and nothing is counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.measuring import child, load, save
from benchmarks.peers.environments import ROOT, interpreter, variables
from benchmarks.peers.turns import Cost, add_options, chosen, dynamodb, measure, report
from benchmarks.peers.variants import Variant


class Worker:
    """One variant in its process."""

    def __init__(self, variant: Variant, url: str, stack: ExitStack) -> None:
        self.variant = variant
        command = [interpreter(variant.environment), "-m", "benchmarks.peers.worker", variant.name, url]
        self._process = stack.enter_context(child(command, stdin=subprocess.PIPE, cwd=ROOT, env=variables()))
        self._line()

    def prepare(self, question: str, requests: int) -> None:
        """Make so many requests, and send the one that they presuppose."""
        self._order("prepare", question=question, requests=requests)

    def measure(self, in_flight: int) -> Cost:
        """Send them, so many at a time."""
        return self._order("measure", in_flight=in_flight)

    def put_away(self) -> None:
        """Let go whoever was held."""
        self._order("put_away")

    def _order(self, part: str, **given: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([part, given]) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.variant.name} has ended; look at what it said")
        found: dict[str, Any] = json.loads(line)
        return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a report, and keep it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, requests=32, rounds=11)
    given = parser.parse_args(arguments)
    began = load()
    with ExitStack() as stack:
        url, counted = dynamodb(given, stack)
        workers = [Worker(variant, url, stack) for variant in chosen(given.only)]
        results = measure(workers, given, counted)
    lines = list(report("Peers", began, given, "benchmarks.peers", results))
    print("\n".join(lines))
    if given.save:
        save("peers" + "-local" * given.dynamodb_local, lines, results)


if __name__ == "__main__":
    main()
