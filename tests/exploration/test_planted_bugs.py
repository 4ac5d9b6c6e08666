"""The explorer can fail: every bug of the catalogue is found, once it is planted into the product."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.exploration.invariants import NO_DEAD_END, PROMISES
from tests.exploration.planted import PLANTED, Bug
from tests.exploration.search import Broken, Explorer
from tests.exploration.trace import shortest, told
from tests.exploration.worlds import SMALL


def find(bug: Bug) -> str | None:
    """The story of how it shows; None if it does not."""
    with bug.plant(), closing(Explorer(next(world for world in SMALL if world.name == bug.world))) as explorer:
        try:
            explorer.exhaust()
        except Broken as broken:
            return told(explorer, shortest(explorer, broken))
    return None


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """In the world that it is made for, breaking the promise that it breaks, in a story short enough to be read."""
    story = find(bug)
    assert story is not None
    first, *lines = story.splitlines()
    assert first == f'world "{bug.world}" breaks "{bug.promise}"'
    assert len(lines) <= 100


def test_the_catalogue_breaks_every_promise() -> None:
    """No promise is one that nothing can break."""
    assert {bug.promise for bug in PLANTED} == {*PROMISES, NO_DEAD_END}
