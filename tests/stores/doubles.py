"""Time that stands still, and clients of DynamoDB that fail on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from typing import Any, Protocol, TypeVar

from botocore.exceptions import ClientError, ReadTimeoutError

from idem_middleware.clock import CorrectedClock
from idem_middleware.events import Event
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.dynamodb import DynamoDBStore, aio
from idem_middleware.stores.dynamodb.calls import Steps
from idem_middleware.testing import samples
from tests.stores.records import NOW


class ManualTime:
    """A wall clock, a monotonic clock and a sleep that moves both."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now
        self.ticks = 1000.0
        self.slept: list[float] = []

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.ticks

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.ticks += seconds

    def clock(self) -> CorrectedClock:
        return CorrectedClock(wall=self.wall, monotonic=self.monotonic)


def metadata(date: float | None = None, *, status: int = 200, sdk_retries: int = 0) -> dict[str, Any]:
    """What boto3 tells about an answer."""
    headers = {} if date is None else {"date": formatdate(date, usegmt=True)}
    return {"HTTPStatusCode": status, "RetryAttempts": sdk_retries, "HTTPHeaders": headers}


def answer(date: float | None = None, *, sdk_retries: int = 0, **body: Any) -> dict[str, Any]:
    """A successful answer."""
    return {**body, "ResponseMetadata": metadata(date, sdk_retries=sdk_retries)}


def error(
    code: str,
    message: str = "",
    *,
    status: int = 400,
    item: Mapping[str, Any] | None = None,
    date: float | None = None,
    operation: str = "PutItem",
) -> ClientError:
    """An answer that is an error, as boto3 raises it."""
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": metadata(date, status=status),
    }
    if item is not None:
        response["Item"] = item
    return ClientError(response, operation)  # type: ignore[arg-type]


def condition_failed(item: Mapping[str, Any] | None = None) -> ClientError:
    """The answer to a write whose condition did not hold."""
    return error("ConditionalCheckFailedException", "The conditional request failed", item=item)


def read_timeout() -> ReadTimeoutError:
    """No answer."""
    return ReadTimeoutError(endpoint_url="http://dynamodb")


Step = BaseException | Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class ScriptedClient:
    """Answers calls from a list, and keeps what was asked."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Callable[..., Mapping[str, Any]]:
        if operation.startswith("_") or operation == "meta":
            raise AttributeError(operation)

        def call(**request: Any) -> Mapping[str, Any]:
            self.calls.append((operation, request))
            step = self._steps.pop(0)
            if isinstance(step, BaseException):
                raise step
            return step() if callable(step) else step

        return call

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.calls]


class WatchedClient:
    """A real client, with a look at every call before and after it."""

    def __init__(
        self,
        client: Any,
        *,
        before: Callable[[str, dict[str, Any]], None] | None = None,
        then: Callable[[str, Any], Any] | None = None,
    ) -> None:
        self._client = client
        self._before = before
        self._then = then
        self.operations: list[str] = []

    def __getattr__(self, operation: str) -> Any:
        real = getattr(self._client, operation)
        if operation in ("meta", "exceptions"):
            return real

        def call(**request: Any) -> Any:
            self.operations.append(operation)
            if self._before is not None:
                self._before(operation, request)
            outcome = real(**request)
            return outcome if self._then is None else self._then(operation, outcome)

        return call


class LostReplies:
    """Lets the first reply of each kind of call get lost after the call was applied."""

    def __init__(self) -> None:
        self._lost: set[str] = set()

    def __call__(self, operation: str, outcome: Any) -> Any:
        if operation not in self._lost:
            self._lost.add(operation)
            raise read_timeout()
        return outcome


T = TypeVar("T")


class StoreDrivenByALoop(DynamoDBStore):
    """A store whose steps are carried out on an event loop, by a transport that only looks asynchronous."""

    def _carry_out(self, steps: Steps[T]) -> T:
        async def sleep(seconds: float) -> None:
            self._sleep(seconds)

        async def carry_out() -> T:
            return await aio.carry_out(steps, AsyncClientTransport(self._transport), sleep)

        return asyncio.run(carry_out())


class AsyncClientTransport:
    """Blocks, which no test minds."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    async def __call__(self, operation: str, request: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._transport(operation, request)
        return answer

    async def aclose(self) -> None:
        pass


class Scripted(Protocol):
    """As `scripted_store`, for one of the ways to carry out steps."""

    def __call__(
        self, time: ManualTime, *steps: Step, **settings: Any
    ) -> tuple[DynamoDBStore, ScriptedClient, list[Event]]: ...


def scripted_store(
    time: ManualTime, *steps: Step, kind: type[DynamoDBStore] = DynamoDBStore, **settings: Any
) -> tuple[DynamoDBStore, ScriptedClient, list[Event]]:
    """A store on a scripted client, without jitter, and the events that it tells of."""
    client = ScriptedClient(*steps)
    settings.setdefault("random", lambda: 1.0)
    store = kind("keys", client=client, clock=time.clock(), sleep=time.sleep, **settings)
    events: list[Event] = []
    store.subscribe(events.append)
    return store, client, events


def shown(outcomes: Iterable[Written | Found | Gone]) -> list[str]:
    """The kinds of some outcomes."""
    return [type(outcome).__name__ for outcome in outcomes]


soon = samples.soon
