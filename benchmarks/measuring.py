"""Variants of one thing, measured in one interleaved run, and shown as ratios."""

from __future__ import annotations

import gc
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

__all__ = ["Cost", "hardware", "interleaved", "stub", "table", "versions"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request cost, on the average of one round."""

    cpu_us: float
    """CPU of this whole process, all its threads, microseconds."""
    wall_us: float


def interleaved(variants: Mapping[str, Callable[[int], object]], requests: int, rounds: int) -> dict[str, list[Cost]]:
    """Let each variant carry out so many requests, so many times.

    The order changes from round to round, so that a machine's moods hit all alike.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in variants}
    for run in variants.values():
        run(max(64, requests))
    names = list(variants)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            gc.collect()
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            variants[name](requests)
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
            costs[name].append(Cost(cpu / requests / 1000, wall / requests / 1000))
    return costs


def table(costs: Mapping[str, list[Cost]], base: str) -> list[str]:
    """Lines of Markdown: medians, the ratio to `base` of the same round with its quartiles, and of the quiet rounds.

    The quiet ratio is that of the first quartiles: on a machine with other work the most trustworthy.
    """
    lines = [
        "| variant | CPU µs | ratio to base | quartiles | quiet ratio | wall µs |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    quiet_base = _first_quartile(costs[base])
    for name, own in costs.items():
        ratios = [cost.cpu_us / other.cpu_us for cost, other in zip(own, costs[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        cpu_us = statistics.median(cost.cpu_us for cost in own)
        wall_us = statistics.median(cost.wall_us for cost in own)
        shown = f"**{name}**" if name == base else name
        quiet = _first_quartile(own) / quiet_base
        lines.append(
            f"| {shown} | {cpu_us:.0f} | {middle:.2f} | {low:.2f} to {high:.2f} | {quiet:.2f} | {wall_us:.0f} |"
        )
    return lines


def _first_quartile(costs: list[Cost]) -> float:
    return statistics.quantiles([cost.cpu_us for cost in costs], n=4)[0]


@contextmanager
def stub(*arguments: str) -> Iterator[str]:
    """A stub DynamoDB in a process of its own, for the length of the block; its URL."""
    command = [sys.executable, "-m", "benchmarks.stub", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # our own module
        try:
            output: IO[str] | None = process.stdout
            assert output is not None
            yield f"http://127.0.0.1:{output.readline().split()[-1]}"
        finally:
            process.terminate()


def hardware() -> str:
    """The machine, in one line."""
    model, cores, memory = platform.machine(), 0, ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "processor":
                cores += 1
            elif name.strip() == "model name":
                model = value.strip()
        total = Path("/proc/meminfo").read_text().split()[1]
        memory = f", {int(total) / 2**20:.0f} GiB"
    except (OSError, ValueError, IndexError):
        pass
    return f"{model}, {cores or '?'} cores{memory}; {platform.system()} {platform.release()}"


def versions(*names: str) -> str:
    """The versions of what was measured, in one line."""
    found = [f"CPython {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


def today() -> str:
    """For the name of a file of results."""
    return datetime.now(UTC).strftime("%Y-%m-%d")
