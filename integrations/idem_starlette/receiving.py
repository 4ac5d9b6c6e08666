"""What a protected application receives: its request's body as if nobody had read it, then what the server reports."""

from __future__ import annotations

import math
from time import monotonic
from typing import BinaryIO

import anyio
from starlette.types import Message, Receive

from idem_middleware.body import RequestBody
from idem_middleware.capture import DRAIN_SECONDS

__all__ = ["ClientGone", "Departure", "Incoming"]

_CHUNK_BYTES = 64 * 1024
_GRACE_SECONDS = 1.0
"""How much later than the server says so somebody hears that the client left who waits for just that."""


class ClientGone(Exception):
    """The client left while it was sending: there is nobody to answer, and nothing to claim."""


class Departure:
    """The news that the client left: who may hear it, and when.

    Frameworks stop in the middle of an answer when they hear it, and a torn answer can't be replayed. So while an
    answer is recorded nobody hears it, within bounds. Before the answer has begun, who asks without waiting
    (`Request.is_disconnected`) is told at once. Who waits for it is told a little later: a response that is streamed
    begins to listen just before it begins to speak.
    """

    def __init__(self) -> None:
        self.told = False
        """Whether it was heard by somebody who may have stopped the answer for it."""
        self._at: float | None = None
        self._answering = False
        self._recording = False
        self._changed: anyio.Event | None = None

    @property
    def happened(self) -> bool:
        """Whether the client is known to have left."""
        return self._at is not None

    @property
    def is_long_ago(self) -> bool:
        """Whether the answer has had its time to end by itself."""
        return self._at is not None and monotonic() >= self._at + DRAIN_SECONDS

    def note(self) -> None:
        """The client left."""
        if self._at is None:
            self._at = monotonic()

    def answering(self, *, recording: bool) -> None:
        """The answer has begun; whether it is (still) recorded."""
        if self._answering and self._recording == recording:
            return
        self._answering, self._recording = True, recording
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def may_be_told(self) -> None:
        """Return when whoever waits for this may hear the news."""
        if not self._answering:
            if anyio.current_effective_deadline() == -math.inf:  # cancelled already: it asks, and does not wait
                return
            await self._change(_GRACE_SECONDS)
        while self._recording and await self._change(DRAIN_SECONDS):
            pass
        self.told = True

    async def _change(self, patience_seconds: float) -> bool:
        """Wait for something to change; False if it has not by so many seconds after the client left."""
        left = (self._at or 0.0) + patience_seconds - monotonic()
        if left <= 0:
            return False
        changed = self._changed = self._changed or anyio.Event()
        with anyio.move_on_after(left):
            await changed.wait()
            return True
        return False


class Incoming:
    """The `receive` of one protected request.

    The body is read when it is needed first: by the application, which gets it as it comes, or for the claim.
    """

    def __init__(self, receive: Receive, *, max_bytes: int | None = None) -> None:
        self.body = RequestBody(max_bytes=max_bytes)
        self.departure = Departure()
        self._receive = receive
        self._complete = False
        self._file: BinaryIO | None = None
        self._given_bytes = 0
        self._all_given = False

    async def complete(self) -> RequestBody:
        """Have the whole body.

        Raises:
            BodyTooLarge: it is larger than `max_bytes`.
            ClientGone: it is not whole.
        """
        while not self._complete:
            message = await self._pull()
            if message["type"] == "http.disconnect":
                raise ClientGone
        return self.body

    async def __call__(self) -> Message:
        if not self._all_given:
            return await self._next()
        if not self.departure.happened:
            message = await self._receive()
            if message["type"] != "http.disconnect":
                return message
            self.departure.note()
        await self.departure.may_be_told()
        return {"type": "http.disconnect"}

    def again(self) -> Receive:
        """Another reader of the whole body, for functions that look into the request before the application does."""
        chunks = self.body.chunks(_CHUNK_BYTES)

        async def receive() -> Message:
            chunk = next(chunks, b"")
            return {"type": "http.request", "body": chunk, "more_body": bool(chunk)}

        return receive

    async def _next(self) -> Message:
        if not self._complete:
            message = await self._pull()
            self._given_bytes = self.body.size
            self._all_given = self._complete
            return message
        if self._file is None:
            if self._given_bytes == 0 and self.body.size <= _CHUNK_BYTES:
                self._all_given = True
                return {"type": "http.request", "body": self.body.in_memory() or b"", "more_body": False}
            self._file = self.body.open()
            self._file.seek(self._given_bytes)
        chunk = self._file.read(_CHUNK_BYTES)
        self._given_bytes += len(chunk)
        self._all_given = self._given_bytes == self.body.size
        return {"type": "http.request", "body": chunk, "more_body": not self._all_given}

    async def _pull(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.body.write(message.get("body", b""))
            self._complete = not message.get("more_body", False)
        elif message["type"] == "http.disconnect":
            self.departure.note()
        return message
