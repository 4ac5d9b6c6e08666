"""What a request costs a real server: uvicorn with one process, gunicorn with one process of threads.

    python -m benchmarks.serving [--requests N] [--rounds N] [--in-flight N …] [--only TEXT …] [--plain] [--save]

The variants and questions are those of `benchmarks.peers`, each in its own virtual environment. All servers run on the
first core, the load and the stub of DynamoDB on the second; the servers take turns. The cost is the CPU time of the
serving process, read from its clock; latencies are what the client sees. uvicorn runs as `uvicorn[standard]` does, on
uvloop and httptools; with --plain on asyncio and h11.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path

from benchmarks.measuring import child, load, save
from benchmarks.peers.environments import ROOT, interpreter, variables
from benchmarks.peers.questions import QUESTIONS, Keys, Sent, unexpected
from benchmarks.peers.turns import Cost, add_options, chosen, dynamodb, measure, report
from benchmarks.peers.variants import Variant
from benchmarks.serving.load import Clients, wire

_LOOK = wire(Sent("GET", "/gate", None, b""))
_OPEN = wire(Sent("GET", "/gate/open", None, b""))
_PATIENCE_SECONDS = 30.0
_TRIES = 600


class Server:
    """One variant behind its server."""

    def __init__(self, variant: Variant, url: str, core: int, stack: ExitStack, *, plain: bool) -> None:
        self.variant = variant
        command = [interpreter(variant.environment), "-m", "benchmarks.serving.server", variant.name, url, str(core)]
        command += ["--plain"] if plain else []
        self._process = stack.enter_context(child(command, cwd=ROOT, env=variables()))
        self._keys = Keys()
        self._is_protected = variant.protection != "bare"

    def wait_until_it_serves(self, runner: asyncio.Runner) -> None:
        """It says where it listens when it does; the runner is for those who call it."""
        self._runner = runner
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("serving "):
            raise RuntimeError(f"{self.variant.name} does not start; look at what it said")
        _, pid, port = line.split()
        self._pid = int(pid)
        self._clients = Clients(int(port))

    def prepare(self, question: str, requests: int) -> None:
        """Make so many requests, and send the one that they presuppose."""
        self._asked = QUESTIONS[question]
        first, sent = self._keys.requests(self._asked, requests, protected=self._is_protected)
        self._requests = list(map(wire, sent))
        self._held: asyncio.Task[object] | None = None
        if first is not None:
            self._runner.run(self._before(wire(first)))

    async def _before(self, first: bytes) -> None:
        if not self._asked.is_held:
            ((status, content, _),) = await self._clients.send([first], 1)
            assert status == HTTPStatus.CREATED, (status, content)
            await self._until_it_is_recorded(first)
            return
        self._held = asyncio.ensure_future(self._clients.send_aside(first))
        until = time.monotonic() + _PATIENCE_SECONDS
        while b"true" not in (await self._clients.send([_LOOK], 1))[0][1]:
            assert time.monotonic() < until, "nobody came to the gate"
            await asyncio.sleep(0.001)

    async def _until_it_is_recorded(self, first: bytes) -> None:
        """Wait until it is replayed, which ours is at once; idemkit answers before it has recorded."""
        if self.variant.environment != "idemkit":
            return
        for _ in range(_TRIES):
            if (await self._clients.send([first], 1))[0][0] == HTTPStatus.CREATED:
                return
            await asyncio.sleep(_PATIENCE_SECONDS / _TRIES)

    def measure(self, in_flight: int) -> Cost:
        """Send them, so many at a time."""
        Path(f"/proc/{self._pid}/clear_refs").write_text("5", encoding="ascii")  # the peak counts anew
        cpu, wall = cpu_ns(self._pid), time.perf_counter_ns()
        replies = self._runner.run(self._clients.send(self._requests, in_flight))
        cpu, wall = cpu_ns(self._pid) - cpu, time.perf_counter_ns() - wall
        statuses = [status for status, _, _ in replies]
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self._pid}/status").read_text(encoding="ascii"))
        return {
            "cpu_us": cpu / len(replies) / 1000,
            "wall_us": wall / len(replies) / 1000,
            "peak_mb": int(peak[1]) / 1024 if peak else 0.0,
            "latencies_us": [taken for _, _, taken in replies],
            "unexpected": unexpected(self._asked, statuses, protected=self._is_protected),
        }

    def put_away(self) -> None:
        """Let go whoever was held."""
        if self._held is not None:
            self._runner.run(self._let_go(self._held))

    def close(self) -> None:
        """Close the connections to it."""
        self._runner.run(self._clients.aclose())

    async def _let_go(self, held: asyncio.Task[object]) -> None:
        await self._clients.send([_OPEN], 1)
        await asyncio.wait_for(held, _PATIENCE_SECONDS)


def cpu_ns(pid: int) -> int:
    """CPU of a process, all its threads, those that ended included (Linux: clock_getcpuclockid(3))."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def cores() -> tuple[int, set[int]]:
    """One for the servers, and the next for everything else; -1 where there is only one."""
    first, *others = sorted(os.sched_getaffinity(0))
    return (first, {others[0]}) if others else (-1, {first})


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a report, and keep it if asked."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, requests=256, rounds=5)
    parser.add_argument("--plain", action="store_true", help="uvicorn on asyncio and h11")
    given = parser.parse_args(arguments)
    began = load()
    core, mine = cores()
    with ExitStack() as stack:
        for variant in chosen(given.only):
            interpreter(variant.environment)
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        os.sched_setaffinity(0, mine)  # the stub inherits it
        url, counted = dynamodb(given, stack)
        servers = [Server(variant, url, core, stack, plain=given.plain) for variant in chosen(given.only)]
        runner = stack.enter_context(asyncio.Runner())
        for server in servers:
            server.wait_until_it_serves(runner)
            stack.callback(server.close)
        results = measure(servers, given, counted)
    lines = list(report("Behind servers", began, given, "benchmarks.serving" + " --plain" * given.plain, results))
    print("\n".join(lines))
    if given.save:
        save("serving" + "-plain" * given.plain, lines, results)


if __name__ == "__main__":
    main()
