"""One key, many workers at the same moment: one of them runs. On Amazon's own program, through the whole engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from multiprocessing import get_context
from threading import Barrier
from uuid import uuid4

import pytest

from tests.servers.racing import Entry, contend_in_process, contend_in_threads, racing_engine, replayed_by

ROUNDS = 200
CONTENDERS = 64
PROCESSES = 4

pytestmark = [pytest.mark.dynamodb_local]


@pytest.fixture
def table() -> str:
    """The name of a table of the test's own."""
    return f"races-{uuid4().hex}"


@pytest.fixture
def keys() -> list[str]:
    """A key for each round."""
    return [str(uuid4()) for _ in range(ROUNDS)]


def winners(log: Sequence[Entry]) -> list[str]:
    """Make sure that each round had one winner, whom all others heard of or met, and say who they were."""
    rounds: dict[int, list[Entry]] = defaultdict(list)
    for entry in log:
        rounds[entry.round].append(entry)
    assert sorted(rounds) == list(range(ROUNDS))
    names = []
    for number, entries in sorted(rounds.items()):
        assert len(entries) == CONTENDERS, number
        runs = [entry for entry in entries if entry.outcome == "ran"]
        assert len(runs) == 1, number
        (run,) = runs
        assert {entry.said for entry in entries if entry.outcome != "refused"} == {run.who}, number
        # Somebody lost while the winner was at it: not one after the other, but at the same time.
        assert any(entry.outcome == "refused" and entry.overlaps(run) for entry in entries), number
        names.append(run.who)
    return names


def test_of_64_threads_one_runs_each_round(dynamodb_local: str, table: str, keys: list[str]) -> None:
    """All the others are refused, or get its answer; and a retry after the race gets it, too."""
    engine = racing_engine(dynamodb_local, table, CONTENDERS)
    engine.store.create_table()  # type: ignore[attr-defined]  # it is a DynamoDBStore
    log = contend_in_threads(engine, keys, "thread", CONTENDERS, Barrier(CONTENDERS), bytearray(ROUNDS))
    names = winners(log)
    assert [replayed_by(engine, key) for key in keys] == names


@pytest.mark.processes
def test_of_4_processes_one_runs_each_round(dynamodb_local: str, table: str, keys: list[str]) -> None:
    """The same between processes that share nothing but the table."""
    threads = CONTENDERS // PROCESSES
    engine = racing_engine(dynamodb_local, table, threads)
    engine.store.create_table()  # type: ignore[attr-defined]  # it is a DynamoDBStore
    context = get_context("spawn")
    meeting, results = context.Barrier(CONTENDERS), context.Queue()
    refused = context.Array("b", ROUNDS, lock=False)
    processes = [
        context.Process(
            target=contend_in_process,
            args=(dynamodb_local, table, keys, f"process-{number}", threads, meeting, refused, results),
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    log = [entry for _ in processes for entry in results.get(timeout=600)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    names = winners(log)
    assert [replayed_by(engine, key) for key in keys] == names
