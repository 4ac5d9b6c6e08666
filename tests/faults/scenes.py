"""One fault at one call of one request, over a real transport, and all that can be seen of it afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch
from uuid import uuid4

from botocore.config import Config

from idem_middleware import (
    AsyncLease,
    DynamoDBStore,
    Engine,
    Lease,
    Options,
    Request,
    Response,
    StoreUnavailable,
    claims,
)
from idem_middleware.body import RequestBody
from idem_middleware.keys import record_pk
from idem_middleware.transactions import Put
from idem_middleware.upkeep import Upkeep
from tests.servers.table import REGION, Table
from tests.support.fault_proxy import (
    HALF,
    HANGING,
    LOST_REPLY,
    MALFORMED,
    REFUSED,
    UNREACHABLE,
    Fault,
    FaultProxy,
    answering,
    delayed,
    running_fault_proxy,
)
from tests.support.polling import eventually

__all__ = ["CALLS", "DRIVERS", "FAULTS", "Outcome", "Scene", "played", "scenes"]

READ_SECONDS = 1.0
# Where a fault strikes once, another try must succeed, however busy the machine is; where it lasts, none will.
DEADLINES_SECONDS = {False: 20.0, True: 2.0}
LATE_SECONDS = READ_SECONDS + 0.2
_LANDING_SECONDS = 2 * LATE_SECONDS  # how long the product waits for a write that may still be on its way

FAULTS: dict[str, Fault] = {
    "reply lost": LOST_REPLY,
    "request lost": HANGING,
    "delayed beyond the time-out": delayed(LATE_SECONDS),
    "500": answering(500, "InternalServerError"),
    "500, applied": answering(500, "InternalServerError", applied=True),
    "503": answering(503, "ServiceUnavailable"),
    "throttled": answering(400, "ProvisionedThroughputExceededException"),
    "malformed answer": MALFORMED,
    "half an answer": HALF,
    "connection reset": REFUSED,
    "unreachable": UNREACHABLE,
}
"""By the names that the table has for them."""

CALLS: dict[str, tuple[str, ...]] = {
    "new": ("claim", "completion"),
    "replay": ("claim",),
    "takeover": ("claim", "takeover", "completion"),
    "transaction": ("claim", "transaction", "completion"),
    "large body": ("claim", "piece of the body", "completion"),
    "replay of a large body": ("claim", "reading the body"),
}
"""The kinds of requests, and their calls in order."""

_OPERATIONS = {
    "claim": "PutItem",
    "completion": "UpdateItem",
    "takeover": "UpdateItem",
    "transaction": "TransactWriteItems",
    "piece of the body": "PutItem",
    "reading the body": "GetItem",
}
_OF_PIECES = frozenset({"piece of the body", "reading the body"})
_STATUS = {"completion": "COMPLETED", "takeover": "PENDING"}

DRIVERS = ("threads, boto3", "threads, lean", "event loop, lean")

LEASE_SECONDS = 60.0
_AT_ONCE = 24


@dataclass(frozen=True, slots=True, order=True)
class Scene:
    """Which request, which of its calls, which fault; it strikes once, or lasts until the client has its answer."""

    kind: str
    call: str
    fault: str
    lasting: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the client got, how often the handler had run by then, and what stood there once all was quiet.

    Then the client sends the same again: what it gets, and how often the handler has run in the end.
    """

    answer: str
    runs: int
    record: str
    retry: str
    all_runs: int


def scenes() -> Iterator[Scene]:
    """All of them. What is unreachable is so until the end."""
    for kind, calls in CALLS.items():
        for call in calls:
            for fault in FAULTS:
                for lasting in (False, True):
                    if lasting or fault != "unreachable":
                        yield Scene(kind, call, fault, lasting)


@dataclass(slots=True)
class _Handled:
    """A handler: how often it ran, and under which leases. In a transaction it writes `item`, if that is given."""

    size: int
    item: Put | None = None
    runs: int = 0
    leases: list[Lease | AsyncLease] = field(default_factory=list)

    def __call__(self, lease: Lease | None) -> Response:
        assert lease is not None
        items = self._begin(lease)
        if items:
            lease.transact(items)
        return self._answer()

    async def on_a_loop(self, lease: AsyncLease | None) -> Response:
        """The same for an event loop."""
        assert lease is not None
        items = self._begin(lease)
        if items:
            await lease.transact(items)
        return self._answer()

    def _begin(self, lease: Lease | AsyncLease) -> list[Put]:
        self.runs += 1
        self.leases.append(lease)
        return [] if self.item is None or lease.checkpoint is not None else [self.item]

    def _answer(self) -> Response:
        chance = random.Random(self.runs)  # noqa: S311 - what can't be compressed
        return Response(201, (("content-type", "text/plain"),), chance.randbytes(self.size))


class Site:
    """A table, a proxy before it, and engines on that; play scenes here, many at once."""

    def __init__(self, local: str, proxy: FaultProxy, driver: str) -> None:
        self._local = local
        self._proxy = proxy
        self._how, _, transport = driver.partition(", ")
        self._transport: Literal["boto3", "lean"] = "lean" if transport == "lean" else "boto3"
        self.table = Table(f"faults-{uuid4().hex}", local)
        self.ledger = Table(f"ledger-{uuid4().hex}", local)
        self._loop = asyncio.new_event_loop()
        self._loop_thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._loop_thread.start()
        self._upkeep = Upkeep()
        self._engines = {lasting: self._new_engine(proxy.url, lasting=lasting) for lasting in DEADLINES_SECONDS}
        self._store(local, self.table).create_table()
        self._store(local, self.ledger).create_table()
        for engine in self._engines.values():  # what the first call takes longer is no fault
            engine.run(_request(uuid4().hex), _Handled(0))

    def close(self) -> None:
        """Close the connections."""
        self.table.close()
        self.ledger.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())  # which ends the connections of the store
        self._loop.close()

    def _store(self, endpoint: str, table: Table, *, lasting: bool = False) -> DynamoDBStore:
        return DynamoDBStore(
            table.name,
            region=REGION,
            endpoint=endpoint,
            transport=self._transport,
            deadline_seconds=DEADLINES_SECONDS[lasting],
            client_config=Config(connect_timeout=READ_SECONDS, read_timeout=READ_SECONDS),
        )

    def _new_engine(self, endpoint: str, *, lasting: bool) -> Engine:
        store = self._store(endpoint, self.table, lasting=lasting)
        engine = Engine(store, Options(lease_seconds=LEASE_SECONDS, caller="shared"))
        engine.runtime._upkeep = self._upkeep
        return engine

    def play(self, scene: Scene) -> Outcome:
        """Let it happen."""
        if FAULTS[scene.fault].gone:  # from its proxy everybody is gone
            with running_fault_proxy(self._local) as proxy:
                engine = self._new_engine(proxy.url, lasting=True)
                try:
                    return self._play(scene, proxy, engine)
                finally:
                    self._let_go_of(engine)
        return self._play(scene, self._proxy, self._engines[scene.lasting])

    def _let_go_of(self, engine: Engine) -> None:
        """Close what it has opened on the loop, which goes on without it."""
        store: Any = engine.asynchronous._async_store
        asyncio.run_coroutine_threadsafe(store.aclose(), self._loop).result(60)

    def _play(self, scene: Scene, proxy: FaultProxy, engine: Engine) -> Outcome:
        key = uuid4().hex
        pk = record_pk("", None, key)
        handler = _Handled(20_000 if "large" in scene.kind else 100)
        if scene.kind == "transaction":
            handler.item = Put(self.ledger.name, {"pk": key, "runs": 1}, condition="attribute_not_exists(pk)")
        self._set_up(self._engines[False], scene, key, pk)
        with proxy.failing(
            FAULTS[scene.fault],
            pk=pk,
            chunks=True,
            times=None if scene.lasting else 1,
            matching=_from_there_on(scene, pk),
        ) as failing:
            answer = self._send(engine, key, handler)
        assert failing.struck, f"the fault of {scene} has not struck"
        runs = handler.runs
        eventually(lambda: self._is_quiet(engine, pk, handler), what=f"quiet after {scene}", within_seconds=60)
        record = self._record(pk)
        if scene.kind == "transaction":
            record += ", written" if self.ledger.item(key) else ", not written"
        retry = self._send(self._engines[False], key, handler)
        return Outcome(answer, runs, record, retry, handler.runs)

    def _set_up(self, engine: Engine, scene: Scene, key: str, pk: str) -> None:
        """What was there before."""
        first = _Handled(20_000 if "large" in scene.kind else 100)
        if scene.kind.startswith("replay"):
            assert self._send(engine, key, first) == "201"
        if scene.kind == "takeover":
            abandoned = engine.acquire(_request(key), _admitted(engine, key))
            assert isinstance(abandoned, Lease)
            abandoned.abandon()
            self.table.let_pass(pk, LEASE_SECONDS + 10)

    def _send(self, engine: Engine, key: str, handler: _Handled) -> str:
        try:
            if self._how == "threads":
                response = engine.run(_request(key), handler)
            else:
                running = engine.asynchronous.run(_request(key), handler.on_a_loop)
                response = asyncio.run_coroutine_threadsafe(running, self._loop).result(60)
        except StoreUnavailable:  # the handler's own transaction, whose outcome it does not know
            return "500"
        if response.header("content-type") == "application/problem+json":
            return f"{response.status} {json.loads(response.body)['type'].rpartition(':')[2]}"
        return f"{response.status} replayed" if response.header("idempotent-replayed") else str(response.status)

    @staticmethod
    def _is_quiet(engine: Engine, pk: str, handler: _Handled) -> bool:
        """Whether nothing goes on in the background any more for this key."""
        return pk not in engine.runtime.undos and all(lease._claim.settled for lease in handler.leases)

    def _record(self, pk: str) -> str:
        record = self.table.record(pk)
        return "none" if record is None else f"{record['status']}, attempt {record['attempt']}"


def _from_there_on(scene: Scene, pk: str) -> Callable[[Any], bool]:
    """Tell the call of a scene; where the fault lasts, also all that come after it."""
    begun = threading.Event()

    def matches(call: Any) -> bool:
        of_piece = call.pk != pk
        here = call.operation == _OPERATIONS[scene.call] and of_piece == (scene.call in _OF_PIECES)
        if here and call.operation == "UpdateItem":
            here = call.writes("status") == _STATUS[scene.call]
        if here:
            begun.set()
        return here or (scene.lasting and begun.is_set())

    return matches


def _request(key: str) -> Request:
    headers = (("idempotency-key", key), ("content-type", "text/plain"))
    return Request(method="POST", path="/orders", headers=headers, body=RequestBody.from_bytes(b"pay"))


def _admitted(engine: Engine, key: str) -> Any:
    return engine.admit(engine.options, "POST", "/orders", [key])


def played(local: str, driver: str, some: Iterable[Scene]) -> dict[Scene, Outcome]:
    """Play these, many at once: they mostly wait. Late writes are waited for no longer than they can take."""
    some = list(some)
    with (
        patch.object(claims, "_LANDING_SECONDS", _LANDING_SECONDS),
        running_fault_proxy(local) as proxy,
        closing(Site(local, proxy, driver)) as site,
        ThreadPoolExecutor(_AT_ONCE) as threads,
    ):
        return dict(zip(some, threads.map(site.play, some), strict=True))
