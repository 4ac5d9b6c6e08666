"""What comes of each fault at each call of each kind of request: all of it is in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from tests.faults.scenes import CALLS, DRIVERS, FAULTS, Outcome, Scene, played, scenes
from tests.faults.table import TABLE, expected
from tests.faults.told import BEGINNING, END, markdown

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "faults.md"

# One that was applied, and one that was not.
SOME_FAULTS = frozenset({"reply lost", "throttled"})

Play = Callable[[Iterable[Scene], str], Mapping[Scene, Outcome]]


@pytest.fixture
def play(dynamodb_local: str) -> Play:
    """Play scenes, many at once, over one transport."""
    return lambda some, driver: played(dynamodb_local, driver, some)


def differences(
    some: Iterable[Scene], driver: str, outcomes: Mapping[Scene, Outcome]
) -> dict[Scene, tuple[Outcome, ...]]:
    """What was, and what the table says, where that is not the same."""
    return {
        scene: (outcomes[scene], expected(scene, driver))
        for scene in some
        if outcomes[scene] != expected(scene, driver)
    }


@pytest.mark.dynamodb_local
@pytest.mark.parametrize("driver", ["threads, boto3", "event loop, lean"])
def test_some_faults_at_every_call_end_as_the_table_says(play: Play, driver: str) -> None:
    """Once each, and until the client has its answer."""
    some = [s for s in scenes() if s.fault in SOME_FAULTS or (s.fault == "half an answer" and not s.lasting)]
    assert differences(some, driver, play(some, driver)) == {}


@pytest.mark.faults
@pytest.mark.dynamodb_local
@pytest.mark.parametrize("driver", DRIVERS)
def test_every_fault_at_every_call_ends_as_the_table_says(play: Play, driver: str) -> None:
    """All of the table."""
    every = list(scenes())
    assert differences(every, driver, play(every, driver)) == {}


def test_the_table_says_something_of_every_scene() -> None:
    """And of nothing else."""
    assert set(TABLE) == set(scenes())


def test_no_fault_runs_a_request_twice() -> None:
    """But one whose handler raises, and then it finds what it wrote. No success that a client has seen is forgotten."""
    outcomes = [expected(scene, driver) for scene in TABLE for driver in DRIVERS]
    assert all(outcome.all_runs <= 1 + (outcome.answer == "500") for outcome in outcomes)
    assert all(outcome.retry.endswith("replayed") for outcome in outcomes if outcome.answer.startswith("201"))


def test_the_table_is_in_the_documentation() -> None:
    """Word for word."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.partition(BEGINNING)[2].partition(END)[0].strip() == markdown(TABLE)


def test_the_documentation_explains_every_kind_of_request_and_fault() -> None:
    """By the names that the table has for them."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(BEGINNING)[0]
    assert [name for name in (*CALLS, *FAULTS) if f"**{name}**" not in text] == []
