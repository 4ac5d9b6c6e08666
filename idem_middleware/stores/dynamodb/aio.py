"""The store on DynamoDB for event loops, over a transport that does not block, or one whose calls run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from idem_middleware.records import Record
from idem_middleware.stores.base import Cancelled, Found, Gone, Written
from idem_middleware.stores.dynamodb.calls import Pause, Steps
from idem_middleware.stores.dynamodb.register import Register
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import AsyncTransport, Transport
from idem_middleware.stores.faces import Face
from idem_middleware.stores.threads import Threads
from idem_middleware.transactions import Transaction

if TYPE_CHECKING:
    from idem_middleware.stores.dynamodb.store import DynamoDBStore

__all__ = ["AsyncDynamoDBStore", "ThreadedTransport", "carry_out"]

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[object]]


async def carry_out(steps: Steps[T], transport: AsyncTransport, sleep: Sleep = asyncio.sleep) -> T:
    """Do what the steps say, as `calls.carry_out`.

    A cancellation ends it wherever it is: what was sent may be applied all the same.
    """
    try:
        return await _driven(steps, transport, sleep)
    finally:
        steps.close()  # now, and not when nobody looks at a traceback any longer


async def _driven(steps: Steps[T], transport: AsyncTransport, sleep: Sleep) -> T:
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                await sleep(step.seconds)
                step = steps.send(None)
                continue
            try:
                answer = await transport(step.operation, step.request)
            except Exception as exc:  # noqa: BLE001  # the steps judge it, and let go what they don't know
                step = steps.throw(exc)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


class ThreadedTransport:
    """A transport that blocks, in threads: one call holds one of them, and no pause between two tries does."""

    def __init__(self, transport: Transport, max_workers: int) -> None:
        self._transport = transport
        self.threads = Threads(max_workers)

    async def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        return await self.threads.run(partial(self._transport, operation, request))

    async def aclose(self) -> None:
        """Nothing of it belongs to a loop."""


class AsyncDynamoDBStore(Face["DynamoDBStore"]):
    """The records of a `DynamoDBStore`, for callers on event loops: on several at once, or one after the other.

    A loop that ends orderly (as under `asyncio.run`) closes its connections; `aclose` does so earlier.
    """

    def __init__(
        self, store: DynamoDBStore, register: Register, transport: AsyncTransport, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        super().__init__(store)
        self._register = register
        self._transport = transport
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"AsyncDynamoDBStore({self._store.table!r})"

    async def create(self, new: Record, deadline: float) -> Written | Found:
        """As `Store.create`."""
        return await carry_out(self._register.create(new, deadline), self._transport, self._sleep)

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `Store.swap`."""
        return await carry_out(self._register.swap(old, new, deadline), self._transport, self._sleep)

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `Store.load`."""
        return await carry_out(self._register.load(pk, deadline), self._transport, self._sleep)

    async def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """As `Store.transact`."""
        return await carry_out(self._register.transact(old, new, transaction, deadline), self._transport, self._sleep)

    async def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `Store.put_chunks`."""
        await carry_out(self._register.put_chunks(owner, chunks, deadline), self._transport, self._sleep)

    async def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `Store.get_chunks`."""
        return await carry_out(self._register.get_chunks(owner, count, deadline), self._transport, self._sleep)

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await self._transport.aclose()
