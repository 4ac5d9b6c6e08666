"""The table as the documentation has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.faults.scenes import CALLS, FAULTS, Outcome, Scene

__all__ = ["BEGINNING", "END", "markdown"]

BEGINNING = "<!-- faults: made by `python -m tests.faults --write`; a test compares -->"
END = "<!-- /faults -->"

_HEAD = (
    "| request | at the call | fault | the client gets | runs | the record afterwards | a retry gets | runs in all |",
    "|---|---|---|---|---|---|---|---|",
)


def markdown(table: Mapping[Scene, Outcome]) -> str:
    """One row for all faults at one call that come to the same."""
    return "\n".join((*_HEAD, *(_row(*group) for group in _groups(table))))


def _groups(table: Mapping[Scene, Outcome]) -> Iterable[tuple[Scene, list[str], Outcome]]:
    order = [(kind, call, lasting) for kind, calls in CALLS.items() for call in calls for lasting in (False, True)]
    for kind, call, lasting in order:
        here = [scene for scene in table if (scene.kind, scene.call, scene.lasting) == (kind, call, lasting)]
        outcomes = {table[scene]: None for scene in here}
        for outcome in outcomes:
            faults = [scene.fault for scene in here if table[scene] == outcome]
            yield Scene(kind, call, faults[0], lasting), faults, outcome


def _row(scene: Scene, faults: list[str], outcome: Outcome) -> str:
    how = "lasting" if scene.lasting else "once"
    every = [fault for fault in FAULTS if scene.lasting or fault != "unreachable"]
    named = f"any, {how}" if len(faults) == len(every) else f"{', '.join(faults)}; {how}"
    cells = (
        scene.kind,
        scene.call,
        named,
        outcome.answer,
        outcome.runs,
        outcome.record,
        outcome.retry,
        outcome.all_runs,
    )
    return f"| {' | '.join(map(str, cells))} |"
