"""Explore from the command line: `python -m tests.exploration --clients 3 --crashes 2`."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from collections.abc import Sequence

from tests.exploration.clients import driven
from tests.exploration.search import Broken, Explorer, Report, TooManyError
from tests.exploration.trace import shortest, told
from tests.exploration.worlds import LARGE, ROAMED, SMALL, Client, World

_NAMES = "ABCDEFGH"


def main(arguments: Sequence[str] | None = None) -> int:
    """Give 0 if every promise held, 1 if one was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("--world", action="append", help="a world by its name; all of them: small, large, roamed")
    parser.add_argument("--list", action="store_true", help="show the worlds that have names")
    parser.add_argument("--clients", type=int, default=2, help="how many, all alike")
    parser.add_argument("--asynchronous", action="store_true", help="the clients use the asynchronous driver")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds that a client waits for another's answer")
    parser.add_argument("--margin", type=float, default=1.0)
    parser.add_argument("--offsets", type=float, nargs="*", default=[], help="how far each client's clock is off")
    for name in ("crashes", "faults", "failures", "cuts", "delays", "stalls"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--tries", type=int, default=1)
    for name in ("on-abandoned", "on-error"):
        parser.add_argument(f"--{name}", default="retry")
    parser.add_argument("--retention", type=float, default=86400.0)
    parser.add_argument("--random", type=float, metavar="SECONDS", help="go through schedules at random for so long")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--most-states", type=int)
    parsed = parser.parse_args(arguments)
    named = {world.name: world for world in (*SMALL, *LARGE, *ROAMED)}
    if parsed.list:
        _print("\n".join(named))
        return 0
    groups = {"small": SMALL, "large": LARGE, "roamed": ROAMED}
    worlds = [world for name in parsed.world or () for world in groups.get(name) or (named[name],)] or [_world(parsed)]
    total = Report()
    status = max([_explore(world, parsed, total) for world in worlds])
    if len(worlds) > 1 and parsed.random is None:
        _print(f"{len(worlds)} worlds: {total.states:,} states, {total.steps:,} steps, {total.schedules:.3g} schedules")
    return status


def _world(parsed: argparse.Namespace) -> World:
    return World(
        name="of the command line",
        clients=tuple(
            Client(name=name, asynchronous=parsed.asynchronous, patience=parsed.patience)
            for name in _NAMES[: parsed.clients]
        ),
        options={
            "on_abandoned": parsed.on_abandoned,
            "on_error": parsed.on_error,
            "retention_seconds": parsed.retention,
        },
        offsets=tuple(parsed.offsets),
        margin=parsed.margin,
        tries=parsed.tries,
        crashes=parsed.crashes,
        faults=parsed.faults,
        failures=parsed.failures,
        cuts=parsed.cuts,
        delays=parsed.delays,
        stalls=parsed.stalls,
    )


def _explore(world: World, parsed: argparse.Namespace, total: Report) -> int:
    began_at = time.perf_counter()
    with driven():
        explorer = Explorer(world)
        try:
            if parsed.random is not None:
                return _wander(explorer, parsed)
            report = explorer.exhaust(most_states=parsed.most_states)
        except TooManyError as stopped:
            _add(total, stopped.report)
            _tell(world, stopped.report, began_at, "stopped")
            return 0
        except Broken as broken:
            _print(told(explorer, shortest(explorer, broken)))
            return 1
        finally:
            explorer.close()
    _add(total, report)
    _tell(world, report, began_at, "all of it")
    return 0


def _add(total: Report, report: Report) -> None:
    total.states += report.states
    total.steps += report.steps
    total.schedules += report.schedules


def _wander(explorer: Explorer, parsed: argparse.Namespace) -> int:
    """Through as many schedules as there is time for. A seed makes the same ones again."""
    seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
    _print(f"{explorer.world.name}: seed {seed}")
    chance = random.Random(seed)  # noqa: S311 - chosen at random, not secret
    give_up_at = time.perf_counter() + parsed.random
    schedules = steps = 0
    try:
        while time.perf_counter() < give_up_at:
            steps += explorer.wander(chance)
            schedules += 1
    except Broken as broken:
        _print(f"schedule {schedules + 1} of seed {seed}")
        _print(told(explorer, shortest(explorer, broken)))
        return 1
    _print(f"  {schedules} schedules, {steps} steps")
    return 0


def _tell(world: World, report: Report, began_at: float, how: str) -> None:
    seconds = time.perf_counter() - began_at
    _print(
        f"{world.name}: {how}; {report.states} states, {report.steps} steps, {report.schedules:.3g} schedules, "
        f"{report.processes} process histories, the longest schedule {report.deepest} steps, {seconds:.1f} s"
    )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
