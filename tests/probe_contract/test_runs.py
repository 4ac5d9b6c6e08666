"""The log of executions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.probe.runs import RunLog
from tests.support.processes import Process


def append(log: RunLog, name: str) -> int:
    return log.append(name, method="POST", path=f"/probe/{name}", body_sha256="00")


def test_runs_count_from_one_under_each_name(tmp_path: Path) -> None:
    """Names do not disturb each other."""
    log = RunLog(tmp_path / "log")

    assert [append(log, name) for name in ("a", "b", "a", "a")] == [1, 1, 2, 3]
    assert (log.count("a"), log.count("b"), log.count("c")) == (3, 1, 0)


def test_a_line_tells_what_ran(tmp_path: Path) -> None:
    """The line is a JSON object with the members of the contract."""
    path = tmp_path / "log"
    RunLog(path).append("a", method="PUT", path="/probe/a", body_sha256="ab")

    record = json.loads(path.read_text())
    assert record.pop("pid") > 0
    assert record == {"name": "a", "run": 1, "method": "PUT", "path": "/probe/a", "body_sha256": "ab"}


def test_a_log_goes_on_where_a_restarted_process_left_it(tmp_path: Path) -> None:
    """The file is the memory, not the process."""
    append(RunLog(tmp_path / "log"), "a")

    assert append(RunLog(tmp_path / "log"), "a") == 2


def test_threads_get_each_number_once(tmp_path: Path) -> None:
    """Threads of one process share one log."""
    log = RunLog(tmp_path / "log")
    with ThreadPoolExecutor(16) as threads:
        numbers = list(threads.map(lambda _: append(log, "a"), range(200)))

    assert sorted(numbers) == list(range(1, 201))


@pytest.mark.processes
def test_processes_get_each_number_once(tmp_path: Path) -> None:
    """Workers share nothing but the file, and no number is given twice."""
    path = tmp_path / "log"
    children = [Process.module("tests.probe_contract.append_runs", str(path), "100") for _ in range(4)]
    try:
        assert [child.wait(within_seconds=60) for child in children] == [0] * 4, [c.errors for c in children]
    finally:
        for child in children:
            child.stop()

    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["run"] for record in records] == list(range(1, 401))
    assert len({record["pid"] for record in records}) == 4
