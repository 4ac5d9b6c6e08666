"""Each kind of benchmark runs, small, in the environment of the tests, and its results can be judged and shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import benchmarks.__main__ as whole
import benchmarks.overhead
import benchmarks.peers.__main__ as peers
import benchmarks.peers.turns
import benchmarks.serving.__main__ as serving
from benchmarks import measuring, targets

pytestmark = pytest.mark.processes

SMALL = ("--requests", "2", "--rounds", "2", "--save")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of their own for results; ours run in this environment, where others are not installed."""
    monkeypatch.setattr(measuring, "RESULTS", tmp_path)
    for module in (peers, serving):
        monkeypatch.setattr(module, "interpreter", lambda _: sys.executable)
    monkeypatch.setattr(benchmarks.peers.turns, "installed", lambda name: name)
    return tmp_path


def saved(results: Path, name: str) -> Any:
    (found,) = results.glob(f"*-{name}.json")
    return json.loads(found.read_text(encoding="utf-8"))


def test_every_question_is_asked_and_its_calls_and_units_are_counted(results: Path) -> None:
    peers.main(
        [*SMALL, "--rounds", "1", "--in-flight", "2", "--only", "django wsgi, ours, lean", "starlette, ours, lean"]
    )
    found = saved(results, "peers")
    counted = {
        (question, variant): (cell["calls"], cell["write_units"], cell["read_units"])
        for question, by_width in found.items()
        for variant, cell in by_width["2"].items()
    }
    for variant in ("django wsgi, ours, lean", "starlette, ours, lean"):
        assert counted["new", variant] == (2, 2, 0)
        assert counted["replay", variant] == (1, 1, 0)
        assert counted["conflict", variant] == (1, 1, 0)
        assert counted["mismatch", variant] == (1, 1, 0)
        assert counted["uncovered", variant] == (0, 0, 0)
        calls, write_units, _ = counted["replay, 100 KB", variant]
        assert (calls, write_units) == (2, 1)
    assert found["replay"]["2"]["starlette, ours, lean, local cache"]["calls"] == 0
    unexpected = [cell["unexpected"] for by in found.values() for cells in by.values() for cell in cells.values()]
    assert not any(unexpected)


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process's peak anew")
def test_servers_are_measured_from_outside(results: Path) -> None:
    serving.main(
        [*SMALL, "--plain", "--in-flight", "2", "--only", "starlette, ours, mem", "flask, bare", "starlette, bare"]
    )
    cells = saved(results, "serving-plain")["conflict"]["2"]
    assert set(cells) == {"starlette, bare", "starlette, ours, memory", "flask, bare"}
    assert all(cell["cpu_us"] and cell["peak_mb"] and not cell["unexpected"] for cell in cells.values())


def test_the_middleware_itself_is_told_from_the_bare_application(results: Path) -> None:
    benchmarks.overhead.main([*SMALL, "--framework", "flask"])
    found = saved(results, "overhead")["flask"]
    assert {question: len(costs["added"]) for question, costs in found.items()} == dict.fromkeys(
        benchmarks.overhead.QUESTIONS, 2
    )


def test_a_target_without_results_says_how_they_are_made(results: Path) -> None:
    assert "`python -m benchmarks.growth --save` | not measured" in "\n".join(targets.lines())


def test_the_whole_run_names_modules_that_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert whole.main(["--list", "--quick"]) == 0
    for line in capsys.readouterr().out.splitlines():
        module = line.partition("-m ")[2].split()[0]
        assert whole.ROOT.joinpath(*module.split(".")).with_suffix(".py").exists() or (
            whole.ROOT.joinpath(*module.split("."), "__main__.py").exists()
        ), module
