"""A short wear: what grows with every request is seen after a few thousand of them, by counting, not by the clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.life import Sample, growth
from tests.support.probes import INSTALLED_FRAMEWORKS
from tests.support.processes import Process

# Each is a process of its own: what else this one holds is not its matter.
_WARM_UP = 1000
_REQUESTS = 1500
# Objects that caches, counters and the interpreter itself may still take; one for each request would be 1500.
_STRAY_OBJECTS = 150


@pytest.mark.processes
@pytest.mark.wear
@pytest.mark.parametrize("framework", INSTALLED_FRAMEWORKS)
def test_nothing_is_left_of_requests_that_have_ended(framework: str, tmp_path: Path) -> None:
    """No object, thread, file, connection or renewal more after 1500 requests than before them."""
    with Process.module("tests.chaos.worn", framework, str(_WARM_UP), str(_REQUESTS), str(tmp_path)) as process:
        warm, end = (
            Sample(**json.loads(process.wait_for_line("sample ").removeprefix("sample "))) for _ in ("warm", "end")
        )
        assert process.wait() == 0
    assert end.requests == _WARM_UP + _REQUESTS
    assert (end.unpooled, end.files, end.connections) == (warm.unpooled, warm.files, warm.connections)
    assert (end.renewals, end.upkeep_entries) == (0, 0)
    assert end.objects - warm.objects < _STRAY_OBJECTS


def taken(requests: int, **members: int) -> Sample:
    flat = {
        "resident_kib": 50_000,
        "objects": 40_000,
        "threads": 10,
        "pooled": 4,
        "files": 12,
        "connections": 4,
        "renewals": 0,
        "upkeep_entries": 0,
    }
    return Sample(requests=requests, **{**flat, **members})


def test_what_breathes_does_not_grow() -> None:
    """A little more memory, a thread less."""
    assert growth([taken(100), taken(200, objects=40_500), taken(300, resident_kib=50_500, threads=12, pooled=6)]) == []


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("threads", 11),
        ("pooled", 128),
        ("files", 13),
        ("connections", 5),
        ("renewals", 1),
        ("objects", 41_000),
        ("resident_kib", 53_000),
    ],
)
def test_what_grows_is_told(member: str, value: int) -> None:
    """Whatever it is."""
    (what,) = growth([taken(100), taken(200), taken(300, **{member: value})])
    assert str(value) in what or member in {"threads", "renewals"}
