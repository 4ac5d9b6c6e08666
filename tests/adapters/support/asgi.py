"""A server and its client in one: every message that an ASGI application gets is scripted, all it sends is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Self

import anyio

__all__ = ["Connection", "Gone", "app_of", "body", "start"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_PATIENCE_SECONDS = 20
_WITHOUT_BODY = (204, 304)
_LONGEST_LENGTH = 20


class Gone(OSError):
    """What a server of ASGI 2.4 raises from `send` when its client left."""


class Connection:
    """One request. `pieces` are the messages in which its body comes; None stands for the client leaving there."""

    def __init__(
        self,
        app: App,
        *,
        method: str = "POST",
        path: str = "/",
        query: bytes = b"",
        key: str | None = "k",
        headers: Iterable[tuple[str, str]] = (),
        pieces: Iterable[bytes | None] = (b"",),
        spec_version: str = "2.3",
        **scope: Any,
    ) -> None:
        lines = [*headers] if key is None else [("idempotency-key", key), *headers]
        self.app = app
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": spec_version},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in lines],
            "client": ("127.0.0.1", 1),
            "server": ("testserver", 80),
            **scope,
        }
        self.sent: list[Message] = []
        self.on_send: Callable[[Message], None] | None = None
        self.received = 0
        self._pieces = [*pieces]
        self._raises_when_gone = spec_version >= "2.4"
        self._gone = anyio.Event()
        self._progress = anyio.Event()

    # --- the server ---

    async def receive(self) -> Message:
        """The next piece of the body; after it, the client's leaving."""
        self.received += 1
        if self._pieces:
            piece = self._pieces.pop(0)
            if piece is not None:
                return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
            self.leave()
        if not self.has_left:  # no turn of the loop where there is news: some only ask, and do not wait
            await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a message, as long as there is a client."""
        await anyio.lowlevel.checkpoint()
        if self.has_left:
            if self._raises_when_gone:
                raise Gone("the client left")
            return
        if self.on_send is not None:
            self.on_send(message)
        self.sent.append(message)
        progress, self._progress = self._progress, anyio.Event()
        progress.set()

    async def run(self) -> Self:
        """Call the application, and be there until it returns."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            await self.app(self.scope, self.receive, self.send)
        return self

    # --- the client ---

    @property
    def has_left(self) -> bool:
        """Whether the client is gone."""
        return self._gone.is_set()

    def leave(self) -> None:
        """Go, whatever comes."""
        self._gone.set()

    async def until(self, seen: Callable[[Connection], object]) -> None:
        """Wait for something to be seen of the answer."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            while not seen(self):
                await self._progress.wait()

    def begun_in(self, group: asyncio.TaskGroup) -> Self:
        """Send the request, and go on."""
        group.create_task(self.run())
        return self

    # --- the answer, as far as it came ---

    @property
    def kinds(self) -> list[str]:
        """What was sent, in short: `start`, `more`, `end`, and other types by their last word."""
        return [self._kind(message) for message in self.sent]

    @property
    def has_head(self) -> bool:
        """Whether status and headers came."""
        return any(message["type"] == "http.response.start" for message in self.sent)

    @property
    def is_complete(self) -> bool:
        """Whether a client can take the answer for a whole one."""
        if not self.has_head:
            return False
        if "end" in self.kinds or self.status in _WITHOUT_BODY:
            return True
        length = self.header("content-length") or ""
        return length.isdecimal() and len(length) < _LONGEST_LENGTH and len(self.body) >= int(length)

    @property
    def status(self) -> int:
        """The answer's status."""
        status: int = self._head["status"]
        return status

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The answer's headers, in order."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._head.get("headers", ())]

    def header(self, name: str) -> str | None:
        """The one value of a header."""
        values = [value for key, value in self.headers if key.lower() == name]
        assert len(values) < 2, (name, values)
        return values[0] if values else None

    @property
    def body(self) -> bytes:
        """The answer's body."""
        return b"".join(m.get("body", b"") for m in self.sent if m["type"] == "http.response.body")

    @property
    def is_replay(self) -> bool:
        """Whether it says that it was given before."""
        return self.header("idempotent-replayed") == "true"

    @property
    def problem(self) -> str | None:
        """The end of a problem's type; None where the answer is no problem."""
        if self.header("content-type") != "application/problem+json":
            return None
        kind: str = json.loads(self.body)["type"]
        return kind.rpartition(":")[2]

    @property
    def _head(self) -> Message:
        return next(message for message in self.sent if message["type"] == "http.response.start")

    @staticmethod
    def _kind(message: Message) -> str:
        kind: str = message["type"].rpartition(".")[2]
        if kind != "body":
            return kind
        return "more" if message.get("more_body", False) else "end"


def start(status: int = 200, *headers: tuple[str, str]) -> Message:
    """The head of an answer."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": raw}


def body(piece: bytes = b"", *, more: bool = False) -> Message:
    """A piece of an answer."""
    return {"type": "http.response.body", "body": piece, "more_body": more}


def app_of(*messages: Message) -> App:
    """An application that reads its request and sends these."""

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body", False):
            pass
        for message in messages:
            await send(message)

    return app
