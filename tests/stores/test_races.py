"""One key, many contenders, one winner. On Amazon's own program: moto lets several win now and then."""

from __future__ import annotations

import asyncio
from collections import Counter
from multiprocessing import get_context
from threading import Barrier

import pytest

from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import Found
from idem_middleware.stores.dynamodb.transport import TransportName
from tests.stores.racing import Wins, contend_in_process, contend_in_tasks, contend_in_threads
from tests.stores.records import new_pk, soon
from tests.support.patience import patient

# The same race through the whole engine has 200 rounds in each run (tests/servers/test_races.py).
ROUNDS = [
    pytest.param(60, id="60-rounds"),
    pytest.param(400, id="400-rounds", marks=pytest.mark.wear),
]
CONTENDERS = 64
PROCESSES = 4

pytestmark = [pytest.mark.dynamodb_local, pytest.mark.xdist_group("races"), pytest.mark.thorough]


@pytest.fixture
def store(dynamodb_local: str, transport: TransportName) -> DynamoDBStore:
    """A store with a table of its own and a connection for each thread."""
    store = DynamoDBStore(
        f"races-{new_pk()[:12]}",
        **patient(
            region="eu-central-1",
            endpoint=dynamodb_local,
            max_pool_connections=CONTENDERS,
            transport=transport,
        ),
    )
    store.create_table()
    return store


@pytest.fixture(params=ROUNDS)
def keys(request: pytest.FixtureRequest) -> list[str]:
    """A key for each round."""
    return [new_pk() for _ in range(request.param)]


def one_winner_each(keys: list[str]) -> Wins:
    """What must come out."""
    return Counter({(kind, pk): 1 for kind in ("create", "swap") for pk in keys})


def test_of_64_threads_one_wins_each_round(store: DynamoDBStore, keys: list[str]) -> None:
    """Every create and every take-over has exactly one winner, and the table agrees."""
    wins = contend_in_threads(store, keys, "thread", CONTENDERS, Barrier(CONTENDERS))
    assert wins == one_winner_each(keys)
    for pk in keys:
        found = store.load(pk, soon(store))
        assert isinstance(found, Found)
        assert (found.record.version, found.record.owner[-1]) == (2, "'")


@pytest.mark.parametrize("transport", ["lean"], indirect=True)
def test_of_64_tasks_one_wins_each_round(store: DynamoDBStore, keys: list[str]) -> None:
    """The same on an event loop, where boto3 would be threads again."""
    wins = asyncio.run(contend_in_tasks(store.to_async(), keys, "task", CONTENDERS))
    assert wins == one_winner_each(keys)


@pytest.mark.processes
def test_of_4_processes_one_wins_each_round(
    dynamodb_local: str, store: DynamoDBStore, transport: TransportName, keys: list[str]
) -> None:
    """The same between processes that share nothing but the table."""
    context = get_context("spawn")
    threads = CONTENDERS // PROCESSES
    meeting, results = context.Barrier(CONTENDERS), context.Queue()
    processes = [
        context.Process(
            target=contend_in_process,
            args=(dynamodb_local, store.table, transport, keys, f"process-{number}", threads, meeting, results),
        )
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    wins: Wins = Counter()
    for _ in processes:
        wins.update(results.get(timeout=600))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert wins == one_winner_each(keys)
