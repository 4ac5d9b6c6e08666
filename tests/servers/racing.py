"""Many workers for one key, round after round, through the whole engine; and a log of who did what when."""

from __future__ import annotations

import time
from collections.abc import MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from idem_middleware import DynamoDBStore, Engine, Lease, Options, Request, Response
from idem_middleware.body import RequestBody
from tests.servers.client import MARK
from tests.servers.table import REGION
from tests.support.patience import patient
from tests.support.polling import eventually

_PATIENCE_SECONDS = 300

Outcome = Literal["ran", "refused", "replayed"]


class Meeting(Protocol):
    """Where workers wait for each other: a barrier of threads or of processes."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all are there."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """What one worker met in one round, from when until when: of the machine's monotonic clock, for all processes.

    `said` is who ran, by what the answer says.
    """

    round: int
    who: str
    outcome: Outcome
    said: str
    began: float
    ended: float

    def overlaps(self, other: Entry) -> bool:
        """Whether both were at it at some moment."""
        return self.began < other.ended and other.began < self.ended


def contend(
    engine: Engine, keys: Sequence[str], who: str, meeting: Meeting, refused: MutableSequence[Any]
) -> list[Entry]:
    """Send the same request as everybody else at the same moment, once for each key.

    The handler goes on until somebody was refused meanwhile: `refused` has a place for each round.
    """
    log: list[Entry] = []
    ran: list[int] = []
    for number, key in enumerate(keys):

        def handler(lease: Lease | None, number: int = number) -> Response:
            ran.append(number)
            eventually(lambda: refused[number], what="a refusal", every_seconds=0.001, within_seconds=60)
            return Response(201, (), who.encode())

        meeting.wait(_PATIENCE_SECONDS)
        began = time.monotonic()
        answer = engine.run(_request(key), handler)
        ended = time.monotonic()
        outcome: Outcome = "refused" if answer.status == 409 else "replayed" if answer.header(MARK) else "ran"
        if outcome == "refused":
            refused[number] = 1
        # What ran is known by the handler itself, whatever its client was told.
        assert (outcome == "ran") == (ran[-1:] == [number])
        said = "" if outcome == "refused" else answer.body.decode()
        log.append(Entry(number, who, outcome, said, began, ended))
    return log


def contend_in_threads(
    engine: Engine, keys: Sequence[str], name: str, threads: int, meeting: Meeting, refused: MutableSequence[Any]
) -> list[Entry]:
    """Contend by so many threads of this process."""
    with ThreadPoolExecutor(threads) as pool:
        contending = [
            pool.submit(contend, engine, keys, f"{name}-{number}", meeting, refused) for number in range(threads)
        ]
        return [entry for future in contending for entry in future.result()]


def contend_in_process(
    endpoint: str,
    table: str,
    keys: Sequence[str],
    name: str,
    threads: int,
    meeting: Meeting,
    refused: MutableSequence[Any],
    results: Any,
) -> None:
    """Contend by a process of its own, which puts its log into the queue `results`."""
    results.put(contend_in_threads(racing_engine(endpoint, table, threads), keys, name, threads, meeting, refused))


def racing_engine(endpoint: str, table: str, threads: int) -> Engine:
    """Make an engine with a connection for each thread."""
    store = DynamoDBStore(table, **patient(region=REGION, endpoint=endpoint, max_pool_connections=threads))
    return Engine(store, Options(caller="shared"))


def replayed_by(engine: Engine, key: str) -> str:
    """Say who ran, as a later retry is told."""

    def must_not_run(lease: Lease | None) -> Response:
        raise AssertionError("it ran again")

    return engine.run(_request(key), must_not_run).body.decode()


def _request(key: str) -> Request:
    headers = (("idempotency-key", key),)
    return Request(method="POST", path="/orders", headers=headers, body=RequestBody.from_bytes(b"{}"))
