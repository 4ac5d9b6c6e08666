"""How many instructions one request takes, counted by Valgrind: these do not change with the machine's mood.

    python -m benchmarks.instructions [--framework NAME …] [--requests N] [--jobs N] [--save]

One application in each framework, bare and protected by a MemoryStore. Each question is asked twice, with few and with
many requests, and the difference is divided: what the interpreter takes to start drops out. Needs `valgrind`, and a
quarter of a minute for a question. Where threads take turns (Django's ASGI), the counts vary by some percent.
"""

from __future__ import annotations

import argparse
import gc
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.measuring import add_run_options, hardware, save, today, versions
from benchmarks.pairs import FRAMEWORKS, Pair
from benchmarks.peers.environments import variables
from benchmarks.peers.questions import Keys

KINDS = {"bare, new": False, "ours, new": True, "ours, replay": True, "bare, uncovered": False, "ours, uncovered": True}
"""What is counted in each framework, and whether that is protected. A replay in a bare application is a new request."""
_WARM_UP = 60


def carry_out(framework: str, kind: str, requests: int) -> None:
    """So many requests, after as many as it takes until all caches are filled."""
    pair, keys = Pair.of(framework), Keys()
    ask = pair.ask(kind.partition(", ")[2], _WARM_UP + requests, keys, protected=KINDS[kind])
    gc.freeze()
    ask()


def counted(framework: str, kind: str, requests: int) -> int:
    """Instructions of a whole process."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", sys.executable]
    command += ["-m", "benchmarks.instructions", "--requests", str(requests), "--carry-out", framework, kind]
    done = subprocess.run(command, env=variables(), capture_output=True, text=True, check=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def count(frameworks: Sequence[str], requests: int, jobs: int) -> dict[str, float]:
    """Instructions per request of each kind in each framework."""
    few = requests // 4
    asked = [(framework, kind) for framework in frameworks for kind in KINDS]
    with ThreadPoolExecutor(jobs) as threads:
        pending = {
            (framework, kind): [threads.submit(counted, framework, kind, number) for number in (few, requests)]
            for framework, kind in asked
        }
        return {
            f"{framework}, {kind}": (more.result() - less.result()) / (requests - few)
            for (framework, kind), (less, more) in pending.items()
        }


def table(counts: Mapping[str, float]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| framework | request | bare | ours | added |"
    yield "|---|---|---:|---:|---:|"
    for framework in dict.fromkeys(name.partition(",")[0] for name in counts):
        for question in ("new", "replay", "uncovered"):
            bare = counts[f"{framework}, bare, {'uncovered' if question == 'uncovered' else 'new'}"]
            own = counts[f"{framework}, ours, {question}"]
            yield f"| {framework} | {question} | {bare:,.0f} | {own:,.0f} | {own - bare:+,.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and keep it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_run_options(parser, requests=400, rounds=1)
    parser.add_argument("--framework", nargs="+", default=list(FRAMEWORKS), choices=FRAMEWORKS, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="at a time: they do not disturb each other's counts")
    parser.add_argument("--carry-out", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.carry_out:
        framework, kind = given.carry_out
        carry_out(framework, kind, given.requests)
        return
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    counts = count(given.framework, given.requests, given.jobs)
    lines = [
        f"# Instructions per request, {today()}",
        "",
        f"- {hardware()}",
        f"- {versions('starlette', 'fastapi', 'flask', 'django')}",
        f"- `python -m benchmarks.instructions --requests {given.requests}`, by Valgrind's cachegrind",
        "",
        *table(counts),
    ]
    print("\n".join(lines))
    if given.save:
        save("instructions", lines, counts)


if __name__ == "__main__":
    main()
