"""Variants of one thing, measured in one interleaved run, and shown as ratios."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

__all__ = [
    "RESULTS",
    "Cost",
    "add_run_options",
    "call_by_call",
    "child",
    "hardware",
    "interleaved",
    "load",
    "newest",
    "save",
    "stub",
    "table",
    "today",
    "versions",
]

RESULTS = Path(os.environ.get("BENCHMARK_RESULTS") or Path(__file__).parent / "results")
"""Where results are kept; a short look puts its own elsewhere."""
_STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request cost, or one on the average of a round."""

    cpu_us: float
    """CPU of this whole process, all its threads, microseconds."""
    wall_us: float


def call_by_call(variants: Mapping[str, Callable[[], object]], calls: int) -> dict[str, list[Cost]]:
    """Let the variants take turns, call by call: whatever else happens on the machine happens to all of them."""
    costs: dict[str, list[Cost]] = {name: [] for name in variants}
    for once in variants.values():
        for _ in range(50):
            once()
    gc.collect()
    for _ in range(calls):
        for name, once in variants.items():
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            once()
            cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
            costs[name].append(Cost(cpu / 1000, wall / 1000))
    return costs


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
    """Lines of Markdown: median and first decile of the CPU, and their ratios to those of `base`.

    The first decile is what it costs when nothing else gets in the way; other work on the machine only ever adds.
    """
    lines = ["| variant | CPU µs | ratio | CPU µs, first decile | ratio | wall µs |", "|---|---:|---:|---:|---:|---:|"]
    base_low, base_middle = _low_and_middle(cost.cpu_us for cost in costs[base])
    for name, own in costs.items():
        low, middle = _low_and_middle(cost.cpu_us for cost in own)
        _, wall = _low_and_middle(cost.wall_us for cost in own)
        shown = f"**{name}**" if name == base else name
        lines.append(
            f"| {shown} | {middle:.0f} | {middle / base_middle:.2f} | {low:.0f} | {low / base_low:.2f} | {wall:.0f} |"
        )
    return lines


def _low_and_middle(values: Iterable[float]) -> tuple[float, float]:
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    return deciles[0], deciles[4]


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process for the length of the block."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:  # our own modules
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def stub(*arguments: str) -> Iterator[str]:
    """A stub DynamoDB in a process of its own, for the length of the block; its URL."""
    with child([sys.executable, "-m", "benchmarks.stub", *arguments]) as process:
        output: IO[str] | None = process.stdout
        assert output is not None
        yield f"http://127.0.0.1:{output.readline().split()[-1]}"


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


def load() -> str:
    """How busy the machine is, in words for a report."""
    return f"{os.getloadavg()[0]:.1f} processes wanted to run when it began"


def add_run_options(parser: argparse.ArgumentParser, *, requests: int, rounds: int) -> None:
    """The options that most parts have."""
    parser.add_argument("--requests", type=int, default=requests, help="per variant and round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="(default: %(default)s)")
    parser.add_argument("--save", action="store_true", help="into benchmarks/results, under today's date")


def save(name: str, lines: Iterable[str], raw: object = None) -> None:
    """Keep a report among the results, under today's date, and what was measured beside it, for plots and targets."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{today()}-{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if raw is not None:
        (RESULTS / f"{today()}-{name}.json").write_text(json.dumps(_shortened(raw)) + "\n", encoding="utf-8")


def _shortened(raw: object) -> object:
    """The same with numbers of five digits: more is noise, and it is kept in the repository."""
    if isinstance(raw, float):
        return float(f"{raw:.5g}")
    if isinstance(raw, Mapping):
        return {str(name): _shortened(value) for name, value in raw.items()}
    if isinstance(raw, list | tuple):
        return [_shortened(value) for value in raw]
    return raw


def newest(name: str) -> tuple[str, Any] | None:
    """The date of the newest results of this name, and what was measured; None if there are none."""
    found = sorted(RESULTS.glob(f"????-??-??-{name}.json"))
    return (found[-1].name[:10], json.loads(found[-1].read_text(encoding="utf-8"))) if found else None


def today() -> str:
    """For the name of a file of results."""
    return datetime.now(UTC).strftime("%Y-%m-%d")
