"""What was measured of each variant, by question and by how many requests were in flight; tables of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["COUNTED", "Cell", "Results", "added", "tables"]


@dataclass(slots=True)
class Cell:
    """One variant, one question, so many in flight: a figure for each round, and all latencies."""

    cpu_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    latencies_us: list[float] = field(default_factory=list)
    requests: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Calls of DynamoDB, and its capacity units; nothing where nobody counts."""
    unexpected: int = 0

    def note(self, cost: Mapping[str, Any], requests: int, counts: Mapping[str, int]) -> None:
        """Take in one round."""
        self.cpu_us.append(cost["cpu_us"])
        self.wall_us.append(cost["wall_us"])
        self.peak_mb.append(cost["peak_mb"])
        self.latencies_us += cost["latencies_us"]
        self.requests += requests
        self.unexpected += cost["unexpected"]
        for name, counted in counts.items():
            self.counts[name] = self.counts.get(name, 0) + counted

    def as_json(self) -> dict[str, Any]:
        """For the file of results: figures per request, the CPU of each round."""
        latencies = self.latencies_us if len(self.latencies_us) > 1 else self.latencies_us * 2
        hundredths = statistics.quantiles(latencies, n=100, method="inclusive")
        return {
            "cpu_us": self.cpu_us,
            "p50_us": hundredths[49],
            "p99_us": hundredths[98],
            "per_second": 1e6 / statistics.median(self.wall_us),
            "peak_mb": statistics.median(self.peak_mb),
            **{name: self.counts[name] / self.requests if name in self.counts else None for name in COUNTED},
            "unexpected": self.unexpected / self.requests,
        }


COUNTED = ("calls", "write_units", "read_units")

Results = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""Question, in flight, variant: `Cell.as_json`."""


def added(cells: Mapping[str, Mapping[str, Any]], variant: str) -> list[float]:
    """CPU µs that a variant adds to the bare application of its framework, in each round."""
    bare = cells[f"{variant.partition(', ')[0]}, bare"]
    return [own - other for own, other in zip(cells[variant]["cpu_us"], bare["cpu_us"], strict=True)]


def tables(results: Results, order: Iterable[str]) -> Iterator[str]:
    """Lines of Markdown."""
    order = list(order)
    for question, by_width in results.items():
        for width, cells in by_width.items():
            yield from ("", f"## {question[0].upper()}{question[1:]}, {width} in flight", "")
            yield (
                "| variant | CPU µs | added to bare | tenth to nine tenths | p50 µs | p99 µs | per second | "
                "peak MB | calls | write units | read units |"
            )
            yield f"|---|{'---:|' * 10}"
            for variant in order:
                if variant in cells:
                    yield _line(variant, cells)
            wrong = [f"{variant} {cell['unexpected']:.1%}" for variant, cell in cells.items() if cell["unexpected"]]
            if wrong:
                yield from ("", f"Answered otherwise than asked for, as with a time-out: {', '.join(wrong)}.")


def _line(variant: str, cells: Mapping[str, Mapping[str, Any]]) -> str:
    cell, more = cells[variant], "| | |"
    if f"{variant.partition(', ')[0]}, bare" in cells:
        each = added(cells, variant)
        low, *_, high = statistics.quantiles(each, n=10, method="inclusive") if len(each) > 1 else each * 2
        more = f"| {statistics.median(each):+.1f} | {low:+.1f} to {high:+.1f} |"
    return (
        f"| {variant} | {statistics.median(cell['cpu_us']):.1f} {more} {cell['p50_us']:.0f} | {cell['p99_us']:.0f} | "
        f"{cell['per_second']:,.0f} | {cell['peak_mb']:.0f} | "
        f"{' | '.join('-' if cell[name] is None else f'{cell[name]:.2f}' for name in COUNTED)} |"
    )
