"""The request's body again, for an application that believes to read it first."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import anyio
from starlette.types import Message, Receive

from idem_middleware.body import RequestBody

__all__ = ["BodyReplay"]

_CHUNK_BYTES = 64 * 1024
_DRAIN_SECONDS = 30.0
"""How long a streamed answer may go on after its client left, so that it can be recorded whole."""


class BodyReplay:
    """Gives the body, then whatever the server reports.

    While a streamed answer is recorded, the client's leaving is reported late: the frameworks cancel a stream whose
    client is gone, and a torn answer can't be replayed.
    """

    def __init__(self, body: RequestBody, receive: Receive) -> None:
        self._body = body
        self._receive = receive
        self._chunks: Iterator[bytes] | None = body.chunks(_CHUNK_BYTES)
        self._next = next(self._chunks, b"")
        self._gone_at: float | None = None
        self.holds_back_disconnect = False

    async def __call__(self) -> Message:
        if self._chunks is not None:
            chunk, self._next = self._next, next(self._chunks, b"")
            if not self._next:
                self._chunks = None
            return {"type": "http.request", "body": chunk, "more_body": bool(self._next)}
        message: Message = {"type": "http.disconnect"} if self._gone_at is not None else await self._receive()
        if message["type"] == "http.disconnect":
            await self._hold_back()
        return message

    async def _hold_back(self) -> None:
        if self._gone_at is None:
            self._gone_at = monotonic()
        if self.holds_back_disconnect:
            await anyio.sleep(max(0.0, self._gone_at + _DRAIN_SECONDS - monotonic()))
