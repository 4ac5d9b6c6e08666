"""The clients and their processes: the product's real engines, put together so that the scheduler owns every step."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from unittest.mock import patch

from botocore.exceptions import ClientError, ReadTimeoutError

from idem_middleware import Options, Request, Response, claims, locks, upkeep, waiting
from idem_middleware.aio.engine import AsyncEngine
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.engine import Engine
from idem_middleware.blocking.lease import Lease
from idem_middleware.body import RequestBody
from idem_middleware.claims import BaseLease
from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import LeaseLost, StoreUnavailable
from idem_middleware.events import Event
from idem_middleware.keys import record_pk
from idem_middleware.runtime import Runtime
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.aio import AsyncDynamoDBStore, ThreadedTransport
from idem_middleware.transactions import Put
from idem_middleware.upkeep import Upkeep
from tests.exploration.loop import Spawner, SteppedLoop
from tests.exploration.model import Table, pk_of
from tests.exploration.scheduler import Arrive, Fate, Interrupt, Pause, Process, Work
from tests.exploration.worlds import Client, World

__all__ = [
    "KEY",
    "LEDGER",
    "LONGEST_POLL",
    "PK",
    "START",
    "Answered",
    "Began",
    "Ended",
    "Generation",
    "Told",
    "begin",
    "driven",
]

KEY = "order-17"
LEDGER = "ledger"
"""The application's own table, which it writes to in transactions."""

PK = record_pk("", None, KEY)
START = 2.0**30
"""When everything begins. From here on a double of seconds is exact to a quarter of a microsecond."""

LONGEST_POLL = 3.0
"""Seconds between two looks of one who waits."""

_CREATED = 201
_GIVE_UP = 1e9
_RESCUE_TRIES = 30
_RETRIED = frozenset({"in-progress", "retry-later", "store-unavailable"})


@dataclass(frozen=True, slots=True)
class Generation:
    """What a process is begun for: these clients, each with the number of its next try.

    A rescue comes when all is over, for a client that has no answer yet, and asks until it has one.
    """

    place: int
    tries: tuple[tuple[int, int], ...]
    rescue: bool = False


# --- what a process tells ---


@dataclass(frozen=True, slots=True)
class Began:
    """A handler began to run."""

    owner: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A handler ended: it answered, failed, raised, or was cut."""

    owner: str
    how: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A client got this: an answer (its own or a replay), the name of a problem, or nothing at all.

    `final` says that asking again is of no use, `over` that it won't; `waited` is how many seconds it took.
    """

    client: int
    owner: str
    kind: str
    text: str
    final: bool
    over: bool
    waited: float


@dataclass(frozen=True, slots=True)
class Told:
    """An event of the product's, for traces."""

    kind: str
    reason: str | None = None


class _Client:
    """Stands where boto3's client does."""

    def __init__(self, process: Process, table: Table, *, dated: bool) -> None:
        self._process = process
        self._table = table
        self._dated = dated
        self.draw = 0.0

    def put_item(self, **request: Any) -> dict[str, Any]:
        return self._call("put_item", request)

    def update_item(self, **request: Any) -> dict[str, Any]:
        return self._call("update_item", request)

    def get_item(self, **request: Any) -> dict[str, Any]:
        return self._call("get_item", request)

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        return self._call("transact_write_items", request)

    def _call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        fate = self._process.wait(self._table.call(operation, request))
        assert isinstance(fate, Fate)
        # The store draws how long it pauses before the next try: longer than its deadline, or not at all.
        self.draw = 0.0 if fate.name == "again" else _GIVE_UP
        match fate.name:
            case "lost" | "again":
                raise ReadTimeoutError(endpoint_url="model")
            case "throttled":
                error: Any = {"Error": {"Code": "ProvisionedThroughputExceededException", "Message": ""}}
                raise ClientError(error, operation)
            case "cut":
                raise Interrupt
            case _:
                assert fate.reply is not None
                if pk_of(request) == PK:
                    self._process.show(fate.reply)
                return self._table.response(fate.reply, self._process.time if self._dated else None)


def begin(world: World, table: Table, generation: Generation) -> Process:
    """Start a process of the product, with a thread for each of its clients."""
    process = Process()
    offset = world.offset(generation.place)
    clock = CorrectedClock(
        wall=lambda: process.read_clock() + offset, monotonic=process.read_clock, margin_seconds=world.margin
    )
    client = _Client(process, table, dated=world.dated)
    store = DynamoDBStore(
        client=client,
        clock=clock,
        sleep=lambda seconds: None,
        random=lambda: client.draw,
    )
    if world.large:
        store.inline_bytes = 0
    process.upkeep = jobs = Upkeep(monotonic=lambda: process.time, threads=False)
    runtime = Runtime(
        store,
        _options(world, 0.0),
        upkeep=jobs,
        pause=process.pause,
        chance=lambda: 1.0,
        new_owner=lambda: process.owner,
        log=lambda event: _note(process, event),
    )
    for number, first_try in generation.tries:
        visitor = world.clients[number]
        options = _options(world, 0.0 if generation.rescue else visitor.patience)
        last_try = first_try + _RESCUE_TRIES if generation.rescue else world.tries
        visit = _visit_async if visitor.asynchronous else _visit
        run = _Visit(process, runtime, options, visitor, number, first_try, last_try, world.transacts)
        process.spawn(partial(visit, run), Arrive(number))
    return process


_made_options: dict[object, Options] = {}


def _options(world: World, patience: float) -> Options:
    """Checked once, since processes are begun by the thousand."""
    key = (tuple(world.settings.items()), patience)
    options = _made_options.get(key)
    if options is None:
        options = _made_options[key] = Options(**{**world.settings, "wait_seconds": patience})
    return options


def _note(process: Process, event: Event) -> None:
    process.tell(Told(event.kind.value, event.reason))


@dataclass(slots=True)
class _Visit:
    """What a client's thread needs."""

    process: Process
    runtime: Runtime
    options: Options
    client: Client
    number: int
    first_try: int
    last_try: int
    transacts: str = ""
    began_at: float = 0.0

    @property
    def request(self) -> Request:
        headers = (("idempotency-key", KEY), ("authorization", self.client.caller), ("content-type", "text/plain"))
        body = RequestBody.from_bytes(self.client.asks.encode())
        return Request(method="POST", path="/orders", headers=headers, body=body)

    def attempts(self) -> Iterator[str]:
        """The owner of each try."""
        for number in range(self.first_try, self.last_try + 1):
            self.began_at = self.process.time
            yield f"{self.client.name}{number}"

    def begin(self, owner: str, lease: BaseLease | None) -> Sequence[Put]:
        """The application begins its work; gives what it writes to its own table at once."""
        self.process.tell(Began(owner))
        is_done = lease is None or lease.checkpoint is not None
        return [] if self.transacts != "checkpoint" or is_done else [Put(LEDGER, {"id": owner})]

    def end(self, owner: str, response: Response) -> Sequence[Put]:
        """The application ends its work with this; gives what it writes to its own table together with it."""
        is_done = self.transacts == "completion" and response.status == _CREATED
        return [Put(LEDGER, {"id": owner})] if is_done else []

    def fails(self, owner: str, error: Exception) -> _HandlerError:
        """Its transaction was refused, or nobody knows what became of it: the application raises."""
        self.process.tell(Ended(owner, "raises"))
        return _HandlerError(str(error))

    def work(self, owner: str) -> Response:
        """What the application does."""
        how = self.process.wait(Work(owner))
        assert isinstance(how, str)
        self.process.tell(Ended(owner, how))
        text = f"{self.client.asks} of {self.client.caller} by {owner}"
        match how:
            case "fails":
                return Response(503, (), f"{text} failed".encode())
            case "raises":
                raise _HandlerError
            case "moved":
                return Response(307, (("location", "/elsewhere"),), b"moved")
            case "cut":
                raise Interrupt
            case _:
                return Response(_CREATED, (("content-type", "text/plain"),), text.encode())

    def answered(self, owner: str, response: Response | None) -> bool:
        """Tell what the client got; says whether it asks again."""
        kind, text, final = self._read(response)
        over = final or kind == "nothing" or owner == f"{self.client.name}{self.last_try}"
        self.process.tell(Answered(self.number, owner, kind, text, final, over, self.process.time - self.began_at))
        return not over

    def _read(self, response: Response | None) -> tuple[str, str, bool]:
        if response is None:
            return "nothing", "", False
        if response.header("content-type") == "application/problem+json":
            text = json.loads(response.body)["type"].rpartition(":")[2]
            return "problem", text, text not in _RETRIED
        text = response.body.decode()
        kind = "replay" if response.header(self.options.replay_header) else "own"
        if kind == "replay" and (response.status, response.header("content-type")) != _replayable(text):
            text += f" with another head: {response.status} {response.header('content-type')}"
        return kind, text, kind == "replay" or response.status == _CREATED

    def pause_seconds(self, response: Response | None) -> float:
        """How long a client waits that was told to come again."""
        value = None if response is None else response.header("retry-after")
        return 1.0 if value is None else float(value)


def _replayable(text: str) -> tuple[int, str | None]:
    """Status and type of the answer with this text."""
    return (503, None) if text.endswith(" failed") else (_CREATED, "text/plain")


class _HandlerError(Exception):
    """What the application raises."""


_REFUSED = (LeaseLost, StoreUnavailable)

AnyLease = TypeVar("AnyLease", Lease, AsyncLease)


def _of(lease: AnyLease | None) -> AnyLease:
    assert lease is not None
    return lease


def _visit(visit: _Visit) -> None:
    engine = Engine(visit.runtime.store, visit.options, runtime=visit.runtime)
    for owner in visit.attempts():
        response = _try(visit, engine, owner)
        if not visit.answered(owner, response):
            return
        visit.process.wait(Pause(visit.process.time + visit.pause_seconds(response)))


def _try(visit: _Visit, engine: Engine, owner: str) -> Response | None:
    def handler(lease: Lease | None) -> Response:
        try:
            if items := visit.begin(owner, lease):
                _of(lease).transact(items)
        except _REFUSED as error:
            raise visit.fails(owner, error) from error
        response = visit.work(owner)
        try:
            if items := visit.end(owner, response):
                _of(lease).complete_with(items, response)
        except _REFUSED as error:
            raise visit.fails(owner, error) from error
        return response

    visit.process.owner = owner
    try:
        return engine.run(visit.request, handler)
    except _HandlerError:
        return Response(500, (), b"raised")
    except Interrupt:
        return None


def _visit_async(visit: _Visit) -> None:
    SteppedLoop(visit.process).run(_visiting(visit))


async def _visiting(visit: _Visit) -> None:
    engine = AsyncEngine(visit.runtime.store, visit.options, runtime=visit.runtime)
    store = engine._async_store
    assert isinstance(store, AsyncDynamoDBStore)
    assert isinstance(store._transport, ThreadedTransport)
    store._transport.threads._executor = cast("Any", Spawner(visit.process))
    for owner in visit.attempts():
        response = await _try_async(visit, engine, owner)
        if not visit.answered(owner, response):
            return
        with suppress(asyncio.CancelledError):  # it is the client who waits here, not the server
            await asyncio.sleep(visit.pause_seconds(response))


async def _try_async(visit: _Visit, engine: AsyncEngine, owner: str) -> Response | None:
    async def handler(lease: AsyncLease | None) -> Response:
        try:
            if items := visit.begin(owner, lease):
                await _of(lease).transact(items)
        except _REFUSED as error:
            raise visit.fails(owner, error) from error
        try:
            response = visit.work(owner)
        except Interrupt as cut:
            raise asyncio.CancelledError from cut
        try:
            if items := visit.end(owner, response):
                await _of(lease).complete_with(items, response)
        except _REFUSED as error:
            raise visit.fails(owner, error) from error
        return response

    visit.process.owner = owner
    try:
        return await engine.run(visit.request, handler)
    except _HandlerError:
        return Response(500, (), b"raised")
    except asyncio.CancelledError:
        return None


# --- making the product's own waiting the scheduler's ---


class _SteppedEvent(threading.Event):
    """Waits for the scheduler, on the threads that it owns."""

    def wait(self, timeout: float | None = None) -> bool:
        process = Process.current
        return super().wait(timeout) if process is None else process.pause(self, timeout)


class _Loud:
    """Stands where the upkeep has a logger: what goes wrong in the background must not go unseen here."""

    def exception(self, message: str) -> None:
        raise  # noqa: PLE0704 - called while the exception is being handled


@contextmanager
def driven() -> Iterator[None]:
    """While this lasts, threads of the product wait for the scheduler where they would wait for one another."""
    with (
        patch.object(locks, "threading", SimpleNamespace(Event=_SteppedEvent, Lock=threading.Lock)),
        patch.object(upkeep, "logger", _Loud()),
        # Fewer instants to look at: what is done again and again is done in the rhythm of the renewals.
        patch.object(waiting, "_FIRST_PAUSE_SECONDS", LONGEST_POLL),
        patch.object(waiting, "_LONGEST_PAUSE_SECONDS", LONGEST_POLL),
        patch.object(claims, "_BACKOFF_SECONDS", (3.0, 12.0)),
    ):
        yield
