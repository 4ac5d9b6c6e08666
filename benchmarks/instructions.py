"""How many instructions one request takes, counted by Valgrind: these do not change with the machine's mood.

    python -m benchmarks.instructions [--requests N]

Each question is asked twice, with few and with many requests, and the difference is divided: what the interpreter takes
to start drops out. Needs `valgrind`, and half a minute for a question.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.measuring import hardware, versions
from benchmarks.overhead import application, call, fresh_keys, no_key, same_key

QUESTIONS: dict[str, tuple[bool, str, Callable[[], Iterator[str | None]]]] = {
    "bare POST": (False, "POST", no_key),
    "protected POST, new": (True, "POST", fresh_keys),
    "protected POST, replay": (True, "POST", same_key),
    "bare GET": (False, "GET", no_key),
    "protected GET (uncovered)": (True, "GET", no_key),
}
_WARM_UP = 60


async def carry_out(question: str, requests: int) -> None:
    """So many requests, after as many as it takes until all caches are filled."""
    protected, method, keys = QUESTIONS[question]
    app, sent = application(protected=protected), keys()
    for _ in range(_WARM_UP + requests):
        await call(app, method, next(sent))


def counted(question: str, requests: int) -> int:
    """Instructions of a whole process."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "benchmarks.instructions", "--carry-out", question, "--requests", str(requests)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--carry-out", choices=QUESTIONS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.carry_out:
        asyncio.run(carry_out(arguments.carry_out, arguments.requests))
        return
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    few, many = arguments.requests // 4, arguments.requests
    with ThreadPoolExecutor(2) as threads:
        counts = {name: [threads.submit(counted, name, number) for number in (few, many)] for name in QUESTIONS}
    print(f"{hardware()}; {versions('starlette')}; instructions per request")
    costs = {name: (more.result() - less.result()) / (many - few) for name, (less, more) in counts.items()}
    for name, cost in costs.items():
        base = costs["bare GET" if "GET" in name else "bare POST"]
        print(f"{name:28} {cost:10,.0f}   {cost - base:+10,.0f}")


if __name__ == "__main__":
    main()
