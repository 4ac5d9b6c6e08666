"""The answer on its way out: what may pass at once, what is held back until the record is durable."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from starlette.types import Message, Scope, Send

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.keeping import method_refused
from idem_middleware.messages import Response, header_values
from idem_middleware.options import Options
from idem_middleware.settling import Superseded
from idem_starlette.messages import respond, text_headers
from idem_starlette.receiving import BodyReplay

__all__ = ["Recorder"]

logger = logging.getLogger("idem_middleware")


class Recorder:
    """The `send` of one protected request.

    An answer that comes in one piece is held whole, its start included. One that is streamed flows as it comes; what
    is held back is the byte that makes it complete (with a declared length) or its end (without one). So nobody has
    a complete answer that a retry would not get.
    """

    def __init__(self, scope: Scope, send: Send, receive: BodyReplay, lease: AsyncLease, options: Options) -> None:
        self._scope = scope
        self._send = send
        self._receive = receive
        self._lease = lease
        self._options = options
        self._start: Message | None = None
        self._started = False  # the client has the head
        self._client_gone = False
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._passed_bytes = 0
        self._keeps_body = True
        self._length: int | None = None
        self._held = b""
        self._from_view = True

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._begin(message)
        elif kind == "http.response.body":
            await self._body(message.get("body", b""), more=message.get("more_body", False))
        else:  # early hints, server push, debugging aids: no part of the answer
            await self._send(message)

    async def close(self, error: BaseException | None) -> None:
        """The application has returned, or raised this. Settles what is not settled yet."""
        if self._lease.settled:
            return
        if error is None and self._start is not None:
            # It stopped in the middle of its answer without an error: frameworks do so when the client leaves.
            await self._lease.omit(self._location())
        elif error is None or isinstance(error, Exception):
            await self._lease.settle_exception()
        else:
            self._lease.abandon()

    def _begin(self, message: Message) -> None:
        self._start = message
        headers = text_headers(message.get("headers", ()))
        declared = header_values(headers, "content-length")
        if declared and declared[0].isdigit():
            self._length = int(declared[0])
        media_type = (header_values(headers, "content-type") or [""])[0].partition(";")[0].strip().lower()
        if media_type == "text/event-stream":
            self._keeps_body = False  # an event stream tells what happens now; there is nothing to give again
        else:
            self._receive.holds_back_disconnect = True
        self._from_view = not self._answered_before_view(message["status"])

    async def _body(self, body: bytes, *, more: bool) -> None:
        self._keep(body)
        if not more:
            await self._finish(body)
        elif self._length is None:
            await self._pass(body)
        else:
            await self._pass_all_but_last(body, self._length)

    def _keep(self, body: bytes) -> None:
        self._size_bytes += len(body)
        if self._size_bytes > self._options.max_response_bytes:
            self._keeps_body = False
        if self._keeps_body:
            self._parts.append(body)
        else:
            self._parts.clear()

    async def _pass_all_but_last(self, body: bytes, length: int) -> None:
        """Hold back the byte that would make the answer complete; all of it, if it has come in one piece."""
        body = self._held + body
        complete = self._passed_bytes + len(body) >= length
        if complete and not self._started:
            self._held = body
        elif complete:
            self._held = body[-1:]
            await self._pass(body[:-1])
        else:
            self._held = b""
            await self._pass(body)

    async def _pass(self, body: bytes) -> None:
        if self._no_body_follows() or not (body or self._length is None):
            return
        if not self._started:
            await self._send_start()
        self._passed_bytes += len(body)
        await self._forward({"type": "http.response.body", "body": body, "more_body": True})

    def _no_body_follows(self) -> bool:
        """Whether this answer is complete at its headers, so that even they must wait."""
        assert self._start is not None
        return self._start["status"] in (204, 304) or self._length == 0

    async def _finish(self, body: bytes) -> None:
        winner = await self._settle()
        if winner is not None and not self._started:
            await respond(self._forward, winner)
            return
        if not self._started:
            await self._send_start()
        await self._forward({"type": "http.response.body", "body": self._held + body, "more_body": False})

    async def _settle(self) -> Response | None:
        """Record the answer; gives another attempt's, if that one owns the key by now."""
        assert self._start is not None
        if not self._keeps_body and self._start["status"] < 500:
            settled = await self._lease.omit(self._location())
        else:
            headers = text_headers(self._start.get("headers", ()))
            response = Response(self._start["status"], headers, b"".join(self._parts))
            settled = await self._lease.settle(response, from_view=self._from_view)
        self._parts.clear()
        return settled.response if isinstance(settled, Superseded) else None

    def _location(self) -> str | None:
        headers = text_headers(self._start.get("headers", ())) if self._start is not None else ()
        return next(iter(header_values(headers, "location")), None)

    def _answered_before_view(self, status: int) -> bool:
        if "router" in self._scope and "endpoint" not in self._scope:
            return True  # Starlette's router found no route, or redirects to another slash
        assert self._start is not None
        if status == 405:
            return method_refused(text_headers(self._start.get("headers", ())), self._scope["method"])
        if status == 422:
            # FastAPI answers a failed validation from within its handler for this exception.
            error = sys.exception()
            return error is not None and type(error).__name__ == "RequestValidationError"
        return False

    async def _send_start(self) -> None:
        assert self._start is not None
        self._started = True
        await self._forward(self._start)

    async def _forward(self, message: Message) -> None:
        """To the client, while there is one; the work and its record go on without."""
        if self._client_gone:
            return
        try:
            await self._send(message)
        except OSError:  # ASGI 2.4: how a server says that the client left
            self._client_gone = True


def without_zero_copy(scope: Scope) -> None:
    """Withdraw the server's offers by which a body, or a part of the answer, would bypass the recorder."""
    extensions = scope.get("extensions")
    if extensions:
        for name in ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"):
            with suppress(KeyError):
                del extensions[name]
