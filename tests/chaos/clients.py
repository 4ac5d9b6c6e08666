"""Clients as they are: they retry with the same key and body, wait longer each time, lose connections, and leave."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.history import Outcome, Try
from tests.chaos.workload import Flow, Work
from tests.support.ports import LOOPBACK

_PATIENCE_SECONDS = 10.0
_IMPATIENT_SECONDS = (0.002, 0.08)
_MOST_TRIES = 12
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.5
_QUIET_PAUSE_SECONDS = 0.25
# A connection is used again by most requests; the others come anew and perhaps to another worker.
_REUSE = 0.7

_TEMPORARY_PROBLEMS = frozenset({"in-progress", "retry-later", "store-unavailable"})


class Clients:
    """A number of clients of one fleet, and all that they have seen."""

    def __init__(self, ports: Sequence[int], *, threads: int) -> None:
        self._ports = ports
        self._threads = threads
        self._local = threading.local()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.tries: list[Try] = []
        self.stopped = threading.Event()

    def storm(self, flows: Iterator[Flow], *, requests: int, until: float) -> list[Work]:
        """Send flow after flow until there are so many requests, or it is late; gives what was begun."""
        begun: list[Work] = []

        def client() -> None:
            while len(self.tries) < requests and time.monotonic() < until and not self.stopped.is_set():
                with self._lock:
                    flow = next(flows)
                    begun.append(flow.work)
                self._follow(flow, until)

        self._all(client)
        return begun

    def settle(self, works: Iterable[Work], *, within_seconds: float) -> None:
        """Ask for everything once more when all is quiet, each until its answer is final or it is late."""
        waiting = iter({(work.caller, work.key, work.body, work.credentials): work for work in works}.values())

        def client() -> None:
            while not self.stopped.is_set():
                with self._lock:
                    work = next(waiting, None)
                if work is None:
                    return
                chance = random.Random(work.seed)  # noqa: S311  # made up, not secret
                until = time.monotonic() + within_seconds
                while not is_final(self._try(work, _MOST_TRIES, chance, _PATIENCE_SECONDS, quiet=True)):
                    if time.monotonic() > until:
                        break
                    self.stopped.wait(_QUIET_PAUSE_SECONDS)

        self._all(client)

    def _all(self, client: Callable[[], None]) -> None:
        def then_hang_up() -> None:
            try:
                client()
            finally:
                for connection in self._connections().values():
                    connection.close()

        with ThreadPoolExecutor(self._threads) as pool:
            for future in [pool.submit(then_hang_up) for _ in range(self._threads)]:
                future.result()

    def _connections(self) -> dict[int, http.client.HTTPConnection]:
        """Those of this thread, by machine."""
        connections: dict[int, http.client.HTTPConnection] = self._local.__dict__.setdefault("connections", {})
        return connections

    def _follow(self, flow: Flow, until: float) -> None:
        chance = random.Random(flow.seed)  # noqa: S311  # made up, not secret
        pause = _FIRST_PAUSE_SECONDS
        for number in range(_MOST_TRIES):
            patience = _PATIENCE_SECONDS
            if chance.random() < flow.impatience:
                patience = chance.uniform(*_IMPATIENT_SECONDS)
            if is_final(self._try(flow.work, number, chance, patience)) or time.monotonic() > until:
                break
            self.stopped.wait(pause * chance.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        for _ in range(flow.again):
            self._try(flow.work, _MOST_TRIES, chance, _PATIENCE_SECONDS)

    def _try(self, work: Work, number: int, chance: random.Random, patience: float, *, quiet: bool = False) -> Try:
        """Send one request."""
        identity = f"t{next(self._numbers)}"
        machine = chance.randrange(len(self._ports))
        impatient = patience != _PATIENCE_SECONDS
        outcome: Outcome = "answered"
        answer: tuple[int, http.client.HTTPMessage, bytes] | None = None
        sent_at = time.monotonic()
        try:
            answer = self._exchange(work, work.headers(identity, number), machine, chance, patience)
        except (OSError, http.client.HTTPException):
            outcome = "left" if impatient else "lost"
        seen = _seen(
            work,
            identity,
            answer,
            fails=work.fails(number),
            quiet=quiet,
            machine=machine,
            outcome=outcome,
            sent_at=sent_at,
        )
        self.tries.append(seen)
        return seen

    def _exchange(
        self, work: Work, headers: dict[str, str], machine: int, chance: random.Random, patience: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connections = self._connections()
        connection = connections.pop(machine, None)
        if connection is not None and chance.random() >= _REUSE:
            connection.close()
            connection = None
        if connection is None:
            connection = http.client.HTTPConnection(LOOPBACK, self._ports[machine], timeout=patience)
        elif connection.sock is not None:
            connection.sock.settimeout(patience)
        connection.timeout = patience
        try:
            connection.request("POST", work.path, work.body, headers)
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            connection.close()
            raise
        connections[machine] = connection
        return response.status, response.headers, body


def is_final(seen: Try) -> bool:
    """Whether a client has no reason to try again."""
    if seen.outcome != "answered" or seen.problem in _TEMPORARY_PROBLEMS:
        return False
    return seen.problem is not None or (seen.status is not None and seen.status < 500)


def _seen(
    work: Work,
    identity: str,
    answer: tuple[int, http.client.HTTPMessage, bytes] | None,
    *,
    fails: bool,
    quiet: bool,
    machine: int,
    outcome: Outcome,
    sent_at: float,
) -> Try:
    status, headers, body = answer or (None, http.client.HTTPMessage(), b"")
    problem = None
    if headers.get("Content-Type") == "application/problem+json":
        problem = str(json.loads(body)["type"]).rpartition("/")[2].rpartition(":")[2]
    return Try(
        id=identity,
        name=work.name,
        key=work.key,
        caller=work.caller,
        credentials=work.credentials,
        body=work.body_sha256,
        digest=work.digest,
        fails=fails,
        streams=work.streams,
        delay=work.delay,
        quiet=quiet,
        machine=machine,
        sent_at=sent_at,
        ended_at=time.monotonic(),
        outcome=outcome,
        status=status,
        problem=problem,
        replayed=headers.get("Idempotent-Replayed") == "true",
        answer_of=headers.get("X-Answer-Of"),
        answer=hashlib.sha256(body).hexdigest() if answer is not None and problem is None else None,
    )
