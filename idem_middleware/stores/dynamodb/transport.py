"""The seam under the store: what carries one request to DynamoDB and its answer back.

A request is a dictionary in the low-level attribute format, an answer another, with `ResponseMetadata` as boto3 gives
it (the `Date` header teaches the clock). A failure is an exception of botocore's whoever carries it, so that `faults`
judges all transports alike: a `ClientError` for an answer that is one, another for an answer that never came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from idem_middleware.stores.dynamodb.requests import Request

__all__ = [
    "TRANSPORTS",
    "AsyncTransport",
    "ClientTransport",
    "PooledTransport",
    "Transport",
    "TransportName",
    "keep_from_closing",
]

TransportName = Literal["boto3", "lean"]
TRANSPORTS: tuple[TransportName, ...] = ("boto3", "lean")


class Transport(Protocol):
    """Carries one request, once. Safe under threads."""

    def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        """Do it. `operation` is the name of boto3's method: put_item."""
        ...


class PooledTransport(Transport, Protocol):
    """One that has connections of its own."""

    def sibling(self, max_pool_connections: int) -> PooledTransport:
        """The same settings with a pool of its own, which the callers of this one can't use up."""
        ...

    def asynchronous(self) -> AsyncTransport | None:
        """The same for event loops; None where blocking in threads is all that can be had."""
        ...


class AsyncTransport(Protocol):
    """The same for event loops, several of them in one process."""

    async def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        """As `Transport.__call__`."""
        ...

    async def aclose(self) -> None:
        """Close the connections of the running loop; they are made anew if need be."""
        ...


class ClientTransport:
    """A low-level client of boto3 that somebody else has made."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, operation: str, request: Request) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = getattr(self._client, operation)(**request)
        return answer


_inherited: list[object] = []


def keep_from_closing(connections: object) -> None:
    """Keep what came over a fork, for the rest of the process, neither used nor closed.

    Closing it takes locks that a thread of the parent may have held, and says goodbye on connections that the parent
    still uses.
    """
    _inherited.append(connections)
