"""What the middleware itself costs in each framework: one application bare and protected by a MemoryStore.

    python -m benchmarks.overhead [--framework NAME …] [--requests N] [--rounds N] [--save]

CPU time of this process per request, called without a server. A round is short and goes bare, protected, protected,
bare, so that a machine's moods hit both alike and what drifts cancels out; there are many rounds, and what is told is
the median of their differences, with the interval that holds the true median in 95 of 100 runs. That is how 2 µs can be
told from noise. Each framework has a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.measuring import add_run_options, hardware, load, save, today, versions
from benchmarks.pairs import FRAMEWORKS, Pair
from benchmarks.peers.environments import variables
from benchmarks.peers.questions import Keys

QUESTIONS = ("new", "replay", "mismatch", "uncovered")
_MOST_WARM_UP = 200


def measured(framework: str, requests: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """For each question, CPU µs per request: of the bare application and what the protected one adds, by rounds."""
    pair, keys = Pair.of(framework), Keys()
    results: dict[str, dict[str, list[float]]] = {question: {"bare": [], "added": []} for question in QUESTIONS}
    for question in QUESTIONS:
        for protected in (False, True):
            pair.ask(question, min(_MOST_WARM_UP, 4 * requests), keys, protected=protected)()
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for question, found in results.items():
            costs: dict[bool, list[float]] = {False: [], True: []}
            for protected in (False, True, True, False):
                carry_out = pair.ask(question, requests, keys, protected=protected)
                began = time.process_time_ns()
                carry_out()
                costs[protected].append((time.process_time_ns() - began) / requests / 1000)
            bare = statistics.mean(costs[False])
            found["bare"].append(bare)
            found["added"].append(statistics.mean(costs[True]) - bare)
    return results


def sure(values: Sequence[float]) -> tuple[float, float]:
    """Between which of the values the true median lies, 95 times in 100 (by their order alone)."""
    ordered = sorted(values)
    reach = math.ceil(0.98 * math.sqrt(len(ordered)))
    middle = len(ordered) // 2
    return ordered[max(0, middle - reach)], ordered[min(len(ordered) - 1, middle + reach)]


def table(results: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| framework | request | bare, CPU µs | added, CPU µs | 95 % sure | times bare |"
    yield "|---|---|---:|---:|---:|---:|"
    for framework, questions in results.items():
        for question, found in questions.items():
            bare, more = statistics.median(found["bare"]), statistics.median(found["added"])
            low, high = sure(found["added"])
            yield (
                f"| {framework} | {question} | {bare:.1f} | {more:+.2f} | {low:+.2f} to {high:+.2f} | "
                f"{1 + more / bare:.2f} |"
            )


def in_its_own_process(framework: str, requests: int, rounds: int) -> Any:
    """Measure there."""
    command = [sys.executable, "-m", "benchmarks.overhead", "--one", framework]
    command += ["--requests", str(requests), "--rounds", str(rounds)]
    done = subprocess.run(command, env=variables(), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and keep it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_run_options(parser, requests=40, rounds=250)
    parser.add_argument("--framework", nargs="+", default=list(FRAMEWORKS), choices=FRAMEWORKS, metavar="NAME")
    parser.add_argument("--one", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(measured(given.one, given.requests, given.rounds)))
        return
    began = load()
    results = {name: in_its_own_process(name, given.requests, given.rounds) for name in given.framework}
    lines = [
        f"# What the middleware itself costs, {today()}",
        "",
        f"- {hardware()}; {began}",
        f"- {versions('starlette', 'fastapi', 'flask', 'django')}",
        f"- `python -m benchmarks.overhead --requests {given.requests} --rounds {given.rounds}`",
        "",
        *table(results),
    ]
    print("\n".join(lines))
    if given.save:
        save("overhead", lines, results)


if __name__ == "__main__":
    main()
