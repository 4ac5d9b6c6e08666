"""What is to be reached beside what was measured, from the newest results; nothing here is typed by hand.

    python -m benchmarks.targets

Writes `results/DATE-targets.md`. A figure whose results are missing says which command makes them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.clients import BASE, BLOCKING
from benchmarks.measuring import hardware, newest, save, today
from benchmarks.overhead import sure
from benchmarks.peers.results import added

__all__ = ["lines"]


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure against its bound."""

    what: str
    bound: str
    measured: str
    met: bool | None
    """None for what stands beside a target, to compare."""


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the table: it needs the results of one part, and judges them."""

    what: str
    part: str
    judge: Callable[[Any], Iterator[Judged]]


def _at_most(what: str, value: float, most: float, unit: str = "", spread: Sequence[float] = ()) -> Judged:
    shown = f"{value:,.2f}{unit}"
    if spread:
        shown += f" ({spread[0]:,.2f} to {spread[1]:,.2f})"
    return Judged(what, f"≤ {most:g}{unit}", shown, value <= most)


def _beside(what: str, value: float, unit: str = "") -> Judged:
    return Judged(what, "", f"{value:,.2f}{unit}", None)


def _ratio(own: Sequence[float], other: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The median of the rounds' ratios, and between which its true value lies 95 times in 100."""
    each = [mine / theirs for mine, theirs in zip(own, other, strict=True)]
    return statistics.median(each), sure(each)


def _compared(cells: Mapping[str, Any], ours: str, theirs: str, most: float, what: str) -> Judged:
    ratio, spread = _ratio(cells[ours]["cpu_us"], cells[theirs]["cpu_us"])
    otherwise = max(cells[name]["unexpected"] for name in (ours, theirs))
    if otherwise:
        what += f" ({otherwise:.1%} of one were answered otherwise)"
    return _at_most(what, ratio, most, " ×", spread)


# --- one function for each row ----------------------------------------------------------------------------------------


def _itself(results: Any) -> Iterator[Judged]:
    costs = results["starlette"]["new"]["added"]
    yield _at_most("over the bare application", statistics.median(costs), 60, " µs", sure(costs))


def _beside_idemkit(results: Any) -> Iterator[Judged]:
    cells = results["new"]["1"]
    ours, theirs = (added(cells, f"starlette, {name}, memory") for name in ("ours", "idemkit"))
    ratio, spread = _ratio(ours, theirs)
    yield _at_most("of what idemkit adds", ratio, 0.25, " ×", spread)
    # idemkit looks through all its keys at each claim, so the ratio depends on how many there are.
    yield _beside("in the first round, when idemkit has few keys", ours[0] / theirs[0], " ×")
    yield _beside("in the last round", ours[-1] / theirs[-1], " ×")


def _uncovered(results: Any) -> Iterator[Judged]:
    for framework, questions in results.items():
        costs = questions["uncovered"]["added"]
        yield _at_most(framework, statistics.median(costs), 2, " µs", sure(costs))


def _uncovered_instructions(counts: Any) -> Iterator[Judged]:
    for name, bare in counts.items():
        framework, _, kind = name.partition(", ")
        if kind == "bare, uncovered":
            yield _beside(f"{framework}: instructions added", counts[f"{framework}, ours, uncovered"] - bare)


def _sync(results: Any) -> Iterator[Judged]:
    deciles = results[BLOCKING]
    base = deciles[BASE]
    for name, most in (("boto3, everything", 1.15), ("lean, everything", 0.55)):
        own = deciles[name]
        yield _at_most(f"{name}, to {BASE}", own[4] / base[4], most, " ×")
        yield _beside("the same, of the first deciles", own[0] / base[0], " ×")


def _lean(results: Any) -> Iterator[Judged]:
    cells = results["new"]["1"]
    yield _compared(cells, "flask, ours, boto3", "flask, by hand, boto3", 1.15, "Flask, boto3, to the boto3 pair")
    yield _compared(cells, "flask, ours, lean", "flask, by hand, boto3", 0.55, "Flask, lean, to the boto3 pair")
    yield _compared(cells, "flask, ours, lean", "flask, powertools, boto3", 0.5, "Flask, lean, to Powertools")
    yield _compared(cells, "flask, ours, lean", "flask, idemkit, aioboto3", 0.4, "Flask, lean, to idemkit")
    yield _compared(cells, "starlette, ours, lean", "starlette, powertools, boto3", 0.5, "Starlette, to Powertools")
    yield _compared(cells, "starlette, ours, lean", "starlette, idemkit, aioboto3", 0.4, "Starlette, to idemkit")
    ratio, _ = _ratio(cells["flask, ours, lean"]["cpu_us"], cells["flask, by hand, signed POST"]["cpu_us"])
    yield _beside("Flask, lean, to a pair of raw signed POSTs", ratio, " ×")


def _served(results: Any) -> Iterator[Judged]:
    cells = results["new"]["64"]
    ours = "starlette, ours, lean"
    yield _compared(cells, ours, "starlette, idemkit, aioboto3", 0.35, "to idemkit on DynamoDB")
    yield _compared(cells, ours, "starlette, by hand, aiohttp", 1.7, "to the pair over aiohttp, botocore's signer")
    ratio, _ = _ratio(cells[ours]["cpu_us"], cells["starlette, by hand, our transport"]["cpu_us"])
    yield _beside("to the pair over our own transport, which keeps the signing key", ratio, " ×")


def _write_units(results: Any) -> Iterator[Judged]:
    cells = results["replay, 100 KB"]["1"]
    yield _at_most("write units", cells["starlette, ours, lean"]["write_units"], 1)
    for name in ("starlette, idemkit, aioboto3", "starlette, powertools, boto3"):
        yield _beside(name, cells[name]["write_units"])


def _cached(results: Any) -> Iterator[Judged]:
    cells = results["replay"]["1"]
    name = "starlette, ours, lean, local cache"
    costs = added(cells, name)
    yield _at_most("calls", cells[name]["calls"], 0)
    yield _at_most("over the bare application", statistics.median(costs), 60, " µs", sure(costs))


def _waiters(results: Any) -> Iterator[Judged]:
    rows = results["waiters"]
    most, alone = rows[max(rows, key=int)], rows["0"]
    calls = most["store calls when they arrived"] + most["store calls while they waited"]
    yield _at_most(f"{max(rows, key=int)} waiters: store calls", calls, 20)
    yield _at_most("timers", most["timers"], 1)
    yield _at_most("other requests' p99", most["others: p99, µs"] / alone["others: p99, µs"], 1.3, " ×")


def _leases(results: Any) -> Iterator[Judged]:
    rows = results["leases"]
    most = rows[max(rows, key=int)]
    yield _at_most(f"{max(rows, key=int)} leases: lapsed, with a brown-out of 5 s", most["lost"], 0)
    beyond = most["CPU, % of a core"] - most["of that the calls, %"]
    yield _at_most("CPU beyond the calls", beyond, 5, " % of a core")


def _keys(results: Any) -> Iterator[Judged]:
    ((few, first), *_, (many, last)) = sorted(results["keys"].items(), key=lambda row: int(row[0]))
    name = "MemoryStore: claim and completion, µs"
    yield _at_most(f"{int(many):,} keys, to {int(few):,}", last[name] / first[name], 1.5, " ×")


TARGETS = (
    Target("The middleware itself (MemoryStore, Starlette, new request, 200-byte JSON body)", "overhead", _itself),
    Target("The same, to what idemkit adds", "peers", _beside_idemkit),
    Target("An uncovered request (GET), in process, all frameworks", "overhead", _uncovered),
    Target("The same, in instructions", "instructions", _uncovered_instructions),
    Target("DynamoDB, new request, everything, sync, the same client; and with the lean transport", "clients", _sync),
    Target("The same in applications, beside the others", "peers", _lean),
    Target("Async, new request, 64 in flight, the server's CPU per request", "serving", _served),
    Target("Replay of 100 KB: write units", "peers", _write_units),
    Target("Replay from the local cache", "peers", _cached),
    Target("1,000 duplicates of one 5-second request in one process, waiting", "growth", _waiters),
    Target("Renewal of 10,000 leases at 4 ms per call", "growth", _leases),
    Target("MemoryStore: a claim among 10⁶ keys", "growth", _keys),
)


def lines() -> Iterator[str]:
    """Lines of Markdown."""
    yield f"# Targets, {today()}"
    yield ""
    yield f"- {hardware()}"
    yield "- `python -m benchmarks`, then `python -m benchmarks.targets`"
    yield "- Ratios are of CPU time in one interleaved run: the median over its rounds, and in brackets where its true"
    yield "  value lies 95 times in 100. Lines without a bound stand there to compare."
    yield ""
    yield "| what | figure | target | measured | met | results |"
    yield "|---|---|---:|---:|---|---|"
    for target in TARGETS:
        found = newest(target.part)
        if found is None:
            yield f"| {target.what} | | | `python -m benchmarks.{target.part} --save` | not measured | |"
            continue
        date, results = found
        what = target.what
        try:
            judged = list(target.judge(results))
        except KeyError as missing:  # a run with --only, or of other questions
            yield f"| {what} | | | the results lack {missing} | not measured | {date}-{target.part} |"
            continue
        for each in judged:
            met = {True: "yes", False: "**no**", None: ""}[each.met]
            yield f"| {what} | {each.what} | {each.bound} | {each.measured} | {met} | {date}-{target.part} |"
            what = ""


def main() -> None:
    """Print the table, and keep it."""
    told = list(lines())
    print("\n".join(told))
    save("targets", told)


if __name__ == "__main__":
    main()
