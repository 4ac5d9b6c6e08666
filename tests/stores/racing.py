"""Many contenders for one key, round after round; each tells which rounds it won."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from idem_middleware.records import Record
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import AsyncStore, Found, Gone, Written
from idem_middleware.stores.dynamodb.transport import TransportName
from tests.stores.records import after, pending, soon
from tests.support.patience import patient

_PATIENCE_SECONDS = 300


class Meeting(Protocol):
    """Where contenders wait for each other: a barrier of threads or of processes."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all are there."""
        ...


Wins = Counter[tuple[str, str]]
"""(kind of write, key) to how often it was won."""


def contend(store: DynamoDBStore, keys: Sequence[str], owner: str, meeting: Meeting) -> Wins:
    """Try to create each key, then to take it over from whoever did, always at the same moment as everybody else."""
    wins: Wins = Counter()
    for pk in keys:
        mine = pending(pk, owner=owner)
        meeting.wait(_PATIENCE_SECONDS)
        outcome = store.create(mine, soon(store, _PATIENCE_SECONDS))
        standing = outcome.record if isinstance(outcome, Found) else mine
        wins[("create", pk)] += is_won(outcome, mine)
        meeting.wait(_PATIENCE_SECONDS)
        taken = after(standing, owner=owner + "'")
        wins[("swap", pk)] += is_won(store.swap(standing, taken, soon(store, _PATIENCE_SECONDS)), taken)
    return wins


def is_won(outcome: Written | Found | Gone, tried: Record) -> bool:
    """As `decide` sees it: written, or its own write met again after a lost reply."""
    return outcome in (Written(), Found(tried))


def contend_in_threads(store: DynamoDBStore, keys: Sequence[str], name: str, threads: int, meeting: Meeting) -> Wins:
    """Contend by so many threads of this process."""
    wins: Wins = Counter()
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(contend, store, keys, f"{name}-{n}", meeting) for n in range(threads)]:
            wins.update(future.result())
    return wins


async def contend_in_tasks(store: AsyncStore, keys: Sequence[str], name: str, tasks: int) -> Wins:
    """Contend by so many tasks of this event loop."""
    meeting = asyncio.Barrier(tasks)
    wins: Wins = Counter()

    async def contend(owner: str) -> None:
        for pk in keys:
            mine = pending(pk, owner=owner)
            await meeting.wait()
            outcome = await store.create(mine, store.clock.monotonic() + _PATIENCE_SECONDS)
            standing = outcome.record if isinstance(outcome, Found) else mine
            wins[("create", pk)] += is_won(outcome, mine)
            await meeting.wait()
            taken = after(standing, owner=owner + "'")
            outcome_of_swap = await store.swap(standing, taken, store.clock.monotonic() + _PATIENCE_SECONDS)
            wins[("swap", pk)] += is_won(outcome_of_swap, taken)

    await asyncio.gather(*[contend(f"{name}-{n}") for n in range(tasks)])
    return wins


def contend_in_process(
    endpoint: str,
    table: str,
    transport: TransportName,
    keys: Sequence[str],
    name: str,
    threads: int,
    meeting: Meeting,
    results: Any,
) -> None:
    """Contend by a process of its own, which puts its wins into the queue `results`."""
    store = DynamoDBStore(
        table,
        **patient(region="eu-central-1", endpoint=endpoint, max_pool_connections=threads, transport=transport),
    )
    results.put(contend_in_threads(store, keys, name, threads, meeting))
