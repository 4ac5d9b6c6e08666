"""Starting, stopping and crashing probes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.support.polling import eventually
from tests.support.ports import free_port
from tests.support.probes import INSTALLED_FRAMEWORKS, RunningProbe, running_probe
from tests.support.processes import Process

pytestmark = [pytest.mark.thorough, pytest.mark.processes, pytest.mark.parametrize("framework", INSTALLED_FRAMEWORKS)]


def pid_that_answers(probe: RunningProbe) -> int | None:
    try:
        answer = httpx.get(f"{probe.url}/healthz", timeout=5)
    except httpx.HTTPError:
        return None
    pid: int = answer.json()["pid"]
    return pid


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_stops_a_probe_in_order(framework: str, workers: int, tmp_path: Path) -> None:
    """With exit status 0 and nothing more on standard output than the one ready line."""
    with running_probe(framework, tmp_path / "log", workers=workers, bare=True) as probe:
        assert httpx.get(f"{probe.url}/healthz").status_code == 200

        assert probe.process.stop() == 0
        assert probe.process.remaining_lines() == []


def test_an_open_connection_does_not_hold_a_probe_back(framework: str, tmp_path: Path) -> None:
    """A client that keeps its connection does not keep the process."""
    with (
        running_probe(framework, tmp_path / "log", bare=True) as probe,
        httpx.Client(base_url=probe.url) as client,
    ):
        client.get("/healthz")

        assert probe.process.stop() == 0


def test_a_planned_exit_leaves_its_line_in_the_log(framework: str, tmp_path: Path) -> None:
    """The handler ends its process at once, but not before the log has it."""
    with running_probe(framework, tmp_path / "log", bare=True) as probe:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{probe.url}/probe/a", headers={"X-Plan": '{"exit": true}'})

        assert probe.runs("a") == 1


def test_a_crashed_worker_is_replaced(framework: str, tmp_path: Path) -> None:
    """With several workers a supervisor starts another one, which goes on counting in the same log."""
    with running_probe(framework, tmp_path / "log", workers=2, bare=True) as probe:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{probe.url}/probe/a", headers={"X-Plan": '{"exit": true}'})
        (crashed,) = (record["pid"] for record in probe.records("a"))

        # Kill the other worker, too, once it answers: whoever answers afterwards must be new.
        other = eventually(lambda: pid_that_answers(probe), what="an answer of the other worker")
        os.kill(other, signal.SIGKILL)
        eventually(
            lambda: pid_that_answers(probe) not in (None, crashed, other),
            what="an answer of a new worker",
        )
        assert httpx.post(f"{probe.url}/probe/a").json() == {"run": 2, "name": "a"}


def test_a_taken_port_stops_the_start(framework: str, tmp_path: Path) -> None:
    """A probe that cannot serve does not say that it is ready."""
    with running_probe(framework, tmp_path / "log", bare=True) as probe:
        arguments = ["--framework", framework, "--port", str(probe.port), "--bare"]
        with Process.module("tests.probe", *arguments) as second:
            assert second.wait(within_seconds=30) != 0
            assert second.remaining_lines() == []


def test_an_unknown_argument_stops_the_start(framework: str) -> None:
    """With a message on standard error."""
    with Process.module("tests.probe", "--framework", framework, "--port", str(free_port()), "--nope") as child:
        assert child.wait(within_seconds=30) == 2
        assert "unrecognized arguments: --nope" in child.errors
