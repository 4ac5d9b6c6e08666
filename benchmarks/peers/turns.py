"""Variants that live side by side and take turns at each question, so that whatever else happens hits all alike."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol
from urllib.request import urlopen

from benchmarks.dynamodb.local import dynamodb_local
from benchmarks.measuring import add_run_options, hardware, stub, today
from benchmarks.peers.environments import installed
from benchmarks.peers.questions import QUESTIONS
from benchmarks.peers.results import COUNTED, Cell, Results, tables
from benchmarks.peers.variants import VARIANTS, Variant

__all__ = ["Player", "add_options", "chosen", "counts", "dynamodb", "measure", "report"]

IN_FLIGHT = (1, 16, 64)
Cost = dict[str, Any]
"""What a round cost for each request (`cpu_us`, `wall_us`), `peak_mb`, and each one's `latencies_us`."""


class Player(Protocol):
    """One variant, running."""

    @property
    def variant(self) -> Variant:
        """Which one."""
        ...

    def prepare(self, question: str, requests: int) -> None:
        """Make so many requests, and send the one that they presuppose."""

    def measure(self, in_flight: int) -> Cost:
        """Send them, so many at a time."""
        ...

    def put_away(self) -> None:
        """Let go whoever was held."""


def add_options(parser: argparse.ArgumentParser, *, requests: int, rounds: int) -> None:
    """The options of a comparison."""
    add_run_options(parser, requests=requests, rounds=rounds)
    parser.add_argument("--in-flight", type=int, nargs="+", default=list(IN_FLIGHT), help="at a time (1 16 64)")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="variants whose name has this in it")
    parser.add_argument("--questions", nargs="+", default=list(QUESTIONS), choices=QUESTIONS, metavar="QUESTION")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="how long the stub takes for an answer")
    parser.add_argument("--dynamodb-local", action="store_true", help="instead of the stub")


def chosen(only: Sequence[str]) -> list[Variant]:
    """The variants whose name has one of these texts in it."""
    return [variant for variant in VARIANTS.values() if not only or any(text in variant.name for text in only)]


def dynamodb(given: argparse.Namespace, stack: ExitStack) -> tuple[str, str | None]:
    """Start what was asked for: its URL, and the same again if it counts what it is asked."""
    if given.dynamodb_local:
        return stack.enter_context(dynamodb_local()), None
    url = stack.enter_context(stub("--delay-ms", f"{given.delay_ms:g}", "--remember"))
    return url, url


def counts(url: str | None) -> dict[str, int]:
    """What the stub was asked so far; nothing of a DynamoDB that does not tell."""
    if url is None:
        return {}
    with urlopen(f"{url}/counts") as answer:  # noqa: S310  # loopback
        found: dict[str, Any] = json.load(answer)
    return {name: found[name] for name in COUNTED}


def measure(players: Sequence[Player], given: argparse.Namespace, counted: str | None) -> Results:
    """Let them take turns at each question; the order changes from round to round."""
    cells: dict[tuple[str, int, str], Cell] = {}
    for number in range(-1, given.rounds):  # the first is to warm up
        for question in map(QUESTIONS.__getitem__, given.questions):
            able = [player for player in players if question.name in player.variant.questions]
            first = number % max(1, len(able))
            for width in given.in_flight:
                asked = max(width, given.requests // question.share)
                for player in (*able[first:], *able[:first]):
                    cost, taken = _turn(player, question.name, asked, width, counted)
                    if number >= 0:
                        cells.setdefault((question.name, width, player.variant.name), Cell()).note(cost, asked, taken)
    results: Results = {}
    for (asked_for, width, variant), cell in cells.items():
        results.setdefault(asked_for, {}).setdefault(str(width), {})[variant] = cell.as_json()
    return results


def _turn(
    player: Player, question: str, requests: int, in_flight: int, counted: str | None
) -> tuple[Cost, dict[str, int]]:
    url = counted if player.variant.on_table else None
    player.prepare(question, requests)
    before = counts(url)
    cost = player.measure(in_flight)
    after = counts(url)
    player.put_away()
    return cost, {name: after[name] - before[name] for name in after}


def report(title: str, began: str, given: argparse.Namespace, module: str, results: Results) -> Iterator[str]:
    """Lines of Markdown."""
    options = f"--requests {given.requests} --rounds {given.rounds} --delay-ms {given.delay_ms:g}"
    options += f" --in-flight {' '.join(map(str, given.in_flight))}" + " --dynamodb-local" * given.dynamodb_local
    options += f" --only {shlex.join(given.only)}" * bool(given.only)
    yield f"# {title}, {today()}"
    yield ""
    yield f"- {hardware()}; {began}"
    for name in sorted({variant.environment for variant in chosen(given.only)}):
        yield f"- in the environment *{name}*: {installed(name)}"
    yield f"- `python -m {module} {options}`"
    if not given.dynamodb_local:
        yield "- Calls and capacity units are per request, from the stub: reckoned from the sizes of items, those of"
        yield "  failed writes by what stands there, as Amazon bills them."
    yield from tables(results, VARIANTS)
