"""The lightest client that still speaks HTTP: requests made before, connections kept, one request on each at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import cast

from benchmarks.peers.questions import Sent

__all__ = ["Clients", "wire"]

_PATIENCE_SECONDS = 120.0
_END, _LAST_CHUNK = b"\r\n\r\n", b"0\r\n\r\n"
Reply = tuple[int, bytes, float]
"""Status, body, and microseconds."""


def wire(sent: Sent) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{sent.method} {sent.path} HTTP/1.1", "Host: localhost"]
    if sent.method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(sent.body)}"]
    if sent.key is not None:
        lines.append(f'Idempotency-Key: "{sent.key}"')
    return "\r\n".join([*lines, "", ""]).encode() + sent.body


class _Connection(asyncio.Protocol):
    """Sends one request after the other, as they come from an iterator that it shares with others."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server has closed the connection"))

    def start(self, requests: Iterator[bytes], replies: list[Reply]) -> asyncio.Future[None]:
        """Begin; what it gives is done when there are no more."""
        self._requests, self._replies = requests, replies
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done = done
        self._send()
        return done

    def close(self) -> None:
        """No more will be sent."""
        self._transport.abort()

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            assert self._done is not None
            self._done.set_result(None)
            return
        self._received, self._wanted, self._began = b"", 0, time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._wanted:
            end = self._received.find(_END)
            if end < 0:
                return
            _, has_length, rest = self._received[:end].lower().partition(b"\r\ncontent-length:")
            # Without a length it comes in chunks: no answer here has that line break in it.
            self._wanted = end + 4 + int(rest.partition(b"\r\n")[0]) if has_length else -1
        received = self._received
        if len(received) < self._wanted or (self._wanted < 0 and not received.endswith(_LAST_CHUNK)):
            return
        taken = (time.perf_counter() - self._began) * 1e6
        self._replies.append((int(received[9:12]), received.partition(_END)[2], taken))
        self._send()


class Clients:
    """Connections to one server, which are opened when so many are first needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[_Connection] = []
        self._spare: _Connection | None = None

    async def send(self, requests: list[bytes], in_flight: int) -> list[Reply]:
        """Send all of them, so many at a time."""
        while len(self._connections) < in_flight:
            self._connections.append(await self._connected())
        replies: list[Reply] = []
        waiting = iter(requests)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await asyncio.gather(*[each.start(waiting, replies) for each in self._connections[:in_flight]])
        return replies

    async def send_aside(self, request: bytes) -> Reply:
        """Send one over a connection that nothing else uses; meant for a request that is held."""
        self._spare = self._spare or await self._connected()
        replies: list[Reply] = []
        await self._spare.start(iter([request]), replies)
        return replies[0]

    async def aclose(self) -> None:
        """Close all connections."""
        for each in (*self._connections, *filter(None, [self._spare])):
            each.close()
        await asyncio.sleep(0)

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._port)
        return connection
