"""All benchmarks, one after the other; what they find, plots of it, and the table of what is to be reached.

    python -m benchmarks [--quick] [--only PART …] [--list]

Results go into `benchmarks/results/` under today's date. With --quick everything runs small, in a few minutes, to see
that it works: its figures mean nothing, and go into `.benchmarks/quick/`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measuring import hardware, load

ROOT = Path(__file__).parents[1]
QUICK_RESULTS = ROOT / ".benchmarks" / "quick"


@dataclass(frozen=True, slots=True)
class Part:
    """One command."""

    name: str
    about: str
    options: tuple[str, ...] = ()
    """What the whole run gives it."""
    quick: tuple[str, ...] = ()
    """What a short look gives it instead."""
    module: str = ""
    """Where that is not its name."""
    lacks: Callable[[], str | None] = lambda: None
    """Says what is missing on this machine, if anything."""

    def command(self, *, quick: bool) -> list[str]:
        """What runs it."""
        options = self.quick if quick else self.options
        return [sys.executable, "-m", f"benchmarks.{self.module or self.name}", *options]


def _valgrind() -> str | None:
    return None if shutil.which("valgrind") else "valgrind"


def _matplotlib() -> str | None:
    return None if find_spec("matplotlib") else "matplotlib"


_SMALL = ("--requests", "4", "--rounds", "2", "--save")
_AS_WIDE = ("--requests", "64", "--rounds", "2", "--save")
"""As many as are in flight at most."""

PARTS = (
    Part("overhead", "the middleware itself, in each framework", ("--save",), _SMALL),
    Part(
        "instructions",
        "the same, in instructions",
        ("--jobs", "2", "--save"),
        ("--requests", "40", "--framework", "starlette", "--save"),
        lacks=_valgrind,
    ),
    Part("clients", "two writes over each client", ("--save",), _AS_WIDE),
    Part(
        "clients-far",
        "the same, where an answer takes 4 ms",
        ("--delay-ms", "4", "--rounds", "9", "--save"),
        (*_AS_WIDE, "--delay-ms", "4"),
        "clients",
    ),
    Part("peers", "others, on every question", ("--save",), (*_SMALL, "--in-flight", "1", "2")),
    Part("serving", "the same behind real servers", ("--save",), (*_SMALL, "--in-flight", "1", "64")),
    Part(
        "growth",
        "keys, bodies, waiters, leases",
        ("--save",),
        (
            *("--most-keys", "10000", "--most-leases", "100", "--most-bytes", "1000000", "--most-waiters", "10"),
            *("--seconds", "2", "--waiting-seconds", "1", "--save"),
        ),
    ),
    Part(
        "uploads",
        "memory that a large upload takes",
        ("--save",),
        ("--mebibytes", "4", "--framework", "starlette", "--save"),
    ),
    Part("pressure", "floods, crowds, slow and huge bodies", ("--save",), ("threads_waiting", "--save")),
    Part("plots", "a plot for each question", lacks=_matplotlib),
    Part("targets", "what is to be reached beside what was measured"),
)


def run(part: Part, *, quick: bool) -> str:
    """Run one; how it ended, in a line."""
    missing = part.lacks()
    if missing is not None:
        return f"{part.name}: left out, {missing} is not installed"
    command = part.command(quick=quick)
    print(f"\n=== {part.name}: {part.about}; {load()}\n$ {' '.join(command)}\n", flush=True)
    began = time.monotonic()
    environment = dict(os.environ) | ({"BENCHMARK_RESULTS": str(QUICK_RESULTS)} if quick else {})
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    ended = "done" if done.returncode == 0 else f"FAILED with {done.returncode}"
    return f"{part.name}: {ended}, {time.monotonic() - began:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--quick", action="store_true", help="see that everything works")
    parser.add_argument("--only", nargs="+", default=names, choices=names, metavar="PART", help="some of the parts")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    given = parser.parse_args(arguments)
    if given.list:
        for part in PARTS:
            print(f"{part.name:14} {part.about}: {' '.join(part.command(quick=given.quick)[1:])}")
        return 0
    print(f"{hardware()}; {load()}")
    endings = [run(part, quick=given.quick) for part in PARTS if part.name in given.only]
    print("\n" + "\n".join(endings))
    return int(any("FAILED" in ending for ending in endings))


if __name__ == "__main__":
    raise SystemExit(main())
