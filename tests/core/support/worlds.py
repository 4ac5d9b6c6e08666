"""One process with an engine, on a clock that is moved by hand; driven alike by threads' and by loops' driver."""

from __future__ import annotations

import asyncio
import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from idem_middleware import AsyncLease, Engine, Event, EventKind, Lease, MemoryStore, Options, Request, Response
from idem_middleware.aio import acquisition
from idem_middleware.aio.concurrency import Signal
from idem_middleware.body import RequestBody
from idem_middleware.identity import Admitted, Identity, Passed
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.records import Record
from idem_middleware.runtime import Runtime
from idem_middleware.settling import Settled
from idem_middleware.stores.base import Found
from idem_middleware.testing import FaultyStore, ManualClock
from idem_middleware.upkeep import Upkeep

__all__ = ["CREATED", "AsyncWorld", "SyncWorld", "World", "request"]

T = TypeVar("T")
AnyLease = Lease | AsyncLease
Outcome = AnyLease | Replayed | Refused | Unprotected
Handler = Callable[[AnyLease | None], Response]

CREATED = Response(201, (("location", "/orders/1"),), b"created")


def request(body: bytes = b"", *, key: str | None = "k", **changes: Any) -> Request:
    """One POST with this key."""
    headers = () if key is None else (("idempotency-key", key),)
    fields: dict[str, Any] = {"method": "POST", "path": "/orders", "headers": headers, **changes}
    return Request(body=RequestBody.from_bytes(body), **fields)


class World(ABC):
    """One process: what it does, what it tells, and how time passes for it."""

    def __init__(self, memory: MemoryStore | None = None, *, name: str = "w") -> None:
        self.memory = MemoryStore(clock=ManualClock(margin_seconds=2.0)) if memory is None else memory
        assert isinstance(self.memory.clock, ManualClock)
        self.clock = self.memory.clock
        self.store = FaultyStore(self.memory)
        self.upkeep = Upkeep(monotonic=self.clock.monotonic, threads=False)
        self.events: list[Event] = []
        self.outcomes: list[str] = []
        self.pauses: list[float] = []
        self._pk = ""
        self._meanwhile: deque[Callable[[], object]] = deque()
        self.options = Options()
        numbers = itertools.count(1)
        self.runtime = Runtime(
            self.store,
            self.options,
            upkeep=self.upkeep,
            pause=self._pause,
            chance=lambda: 1.0,
            new_owner=lambda: f"{name}{next(numbers)}",
            log=self.events.append,
        )
        self.engine = Engine(self.store, runtime=self.runtime)

    # --- to be said in each driver's way ---

    @abstractmethod
    def _acquire(self, sent: Request, admitted: Admitted) -> Outcome: ...

    @abstractmethod
    def _run(self, engine: Engine, sent: Request, handler: Handler) -> Response: ...

    @abstractmethod
    def _run_once(self, engine: Engine, key: str, payload: object, function: Callable[[AnyLease | None], T]) -> T: ...

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds."""

    @abstractmethod
    def do(self, lease: AnyLease, method: str, *args: Any, **kwargs: Any) -> Settled:
        """Call a method of the lease."""

    # --- what tests say ---

    def acquire(self, sent: Request | None = None, **options: Any) -> Outcome:
        """Try to get a lease."""
        sent = request() if sent is None else sent
        admitted = self.engine.admit(Options(**options), sent.method, sent.path, [v for _, v in sent.headers[:1]])
        assert isinstance(admitted, Admitted)
        outcome = self._acquire(sent, admitted)
        self.outcomes.append(summary(outcome))
        return outcome

    def lease(self, sent: Request | None = None, **options: Any) -> AnyLease:
        """Get a lease."""
        outcome = self.acquire(sent, **options)
        assert isinstance(outcome, AnyLease), outcome
        return outcome

    def problem(self, sent: Request | None = None, **options: Any) -> str:
        """Get refused; why."""
        outcome = self.acquire(sent, **options)
        assert isinstance(outcome, Refused), outcome
        assert outcome.response.status == outcome.problem.type.status
        return outcome.problem.type.slug

    def replay(self, sent: Request | None = None, **options: Any) -> Response:
        """Get the answer again, without its mark."""
        outcome = self.acquire(sent, **options)
        assert isinstance(outcome, Replayed), outcome
        *headers, mark = outcome.response.headers
        assert mark == ("Idempotent-Replayed", "true")
        return replace(outcome.response, headers=tuple(headers))

    def settle(self, lease: AnyLease, response: Response = CREATED, **more: Any) -> str:
        """Settle with an answer; how it went."""
        settled = self.do(lease, "settle", response, **more)
        self.outcomes.append(type(settled).__name__)
        return type(settled).__name__

    def run(self, handler: Handler, sent: Request | None = None, **options: Any) -> Response:
        """Run a handler."""
        engine = Engine(self.store, Options(**options), runtime=self.runtime)
        return self._run(engine, request() if sent is None else sent, handler)

    def run_once(
        self, function: Callable[[AnyLease | None], T], *, key: str = "k", payload: object = None, **options: Any
    ) -> T:
        """Run a function."""
        return self._run_once(Engine(self.store, Options(**options), runtime=self.runtime), key, payload, function)

    def another(self, name: str = "other") -> SyncWorld:
        """Another process with the same records and the same time."""
        return SyncWorld(self.memory, name=name)

    def pass_by(self, seconds: float, *, step: float = 1.0) -> None:
        """Let time pass, and the background work be done in it."""
        self.upkeep.run_due()
        while seconds > 0:
            self.clock.advance(min(step, seconds))
            seconds -= step
            self.upkeep.run_due()

    def freeze(self, seconds: float) -> None:
        """Let time pass while this process stands still."""
        self.clock.advance(seconds)

    def while_waiting(self, *actions: Callable[[], object]) -> None:
        """Do one of these in each pause of a waiter."""
        self._meanwhile.extend(actions)

    def kinds(self) -> list[str]:
        """The kinds of all events since this was asked last."""
        kinds = [event.kind.value for event in self.events]
        self.events.clear()
        return kinds

    def last(self, kind: EventKind) -> Event:
        """The last event of a kind."""
        return [event for event in self.events if event.kind is kind][-1]

    def calls(self) -> list[str]:
        """What the store was asked since this was asked last, in short."""
        calls: list[str] = [call.operation for call in self.store.calls]
        self._pk = self._last_pk()
        self.store.calls.clear()
        return calls

    def record(self) -> Record:
        """What stands under the key that was used last."""
        found = self.memory.load(self._last_pk(), 0)
        assert isinstance(found, Found)
        return found.record

    def _last_pk(self) -> str:
        return self.store.calls[-1].pk if self.store.calls else self._pk

    def _pause(self, event: threading.Event, seconds: float) -> bool:
        self.pauses.append(round(seconds, 6))
        self._act()
        if not event.is_set():
            self.clock.advance(seconds)
        return event.is_set()

    def _act(self) -> None:
        if self._meanwhile:
            self._meanwhile.popleft()()


class SyncWorld(World):
    """Driven by threads."""

    def close(self) -> None:
        """Nothing is held."""

    def _acquire(self, sent: Request, admitted: Admitted) -> Outcome:
        return self.engine.acquire(sent, admitted)

    def _run(self, engine: Engine, sent: Request, handler: Handler) -> Response:
        return engine.run(sent, handler)

    def _run_once(self, engine: Engine, key: str, payload: object, function: Callable[[AnyLease | None], T]) -> T:
        return engine.run_once(key, payload, function)

    def do(self, lease: AnyLease, method: str, *args: Any, **kwargs: Any) -> Settled:
        settled: Settled = getattr(lease, method)(*args, **kwargs)
        return settled


class AsyncWorld(World):
    """Driven by an event loop."""

    def __init__(self, memory: MemoryStore | None = None, *, name: str = "w") -> None:
        super().__init__(memory, name=name)
        self.runner = asyncio.Runner()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(acquisition, "pause", self._pause_async)

    def close(self) -> None:
        """Close the loop."""
        self._patch.undo()
        self.runner.close()

    async def _pause_async(self, signal: Signal, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self._act()
        await asyncio.sleep(0)  # what was set by it arrives
        if not signal.take():
            self.clock.advance(seconds)

    def _acquire(self, sent: Request, admitted: Admitted) -> Outcome:
        return self.runner.run(self.engine.asynchronous.acquire(sent, admitted))

    def _run(self, engine: Engine, sent: Request, handler: Handler) -> Response:
        async def handle(lease: AsyncLease | None) -> Response:
            return handler(lease)

        return self.runner.run(engine.asynchronous.run(sent, handle))

    def _run_once(self, engine: Engine, key: str, payload: object, function: Callable[[AnyLease | None], T]) -> T:
        async def run(lease: AsyncLease | None) -> T:
            return function(lease)

        return self.runner.run(engine.asynchronous.run_once(key, payload, run))

    def do(self, lease: AnyLease, method: str, *args: Any, **kwargs: Any) -> Settled:
        async def call() -> Settled:
            settled: Settled = await getattr(lease, method)(*args, **kwargs)
            return settled

        return self.runner.run(call())


def summary(outcome: Outcome | Passed | Identity) -> str:
    """An outcome in a few words."""
    match outcome:
        case Replayed(response):
            return f"replayed {response.status}"
        case Refused(problem, _):
            return f"refused {problem.type.slug} {problem.retry_after_seconds}"
        case Lease() | AsyncLease():
            return f"lease {outcome.attempt}"
        case _:
            return type(outcome).__name__
