"""The answer on its way out: what may pass at once, what is held back until the record is durable."""

from __future__ import annotations

import sys

from starlette.types import Message, Scope, Send

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.capture import Capture
from idem_middleware.keeping import method_refused
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.settling import Superseded
from idem_starlette.messages import respond, text_headers
from idem_starlette.receiving import BodyReplay

__all__ = ["Recorder", "without_zero_copy"]


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
        self._start: Message = {}
        self._capture: Capture | None = None
        self._started = False  # the client has the head
        self._waiting = b""
        self._client_gone = False
        self._from_view = True

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._begin(message)
        elif kind == "http.response.body" and self._capture is not None:
            await self._body(self._capture, message.get("body", b""), more=message.get("more_body", False))
        else:  # early hints, server push, debugging aids: no part of the answer
            await self._send(message)

    async def close(self, error: BaseException | None) -> None:
        """The application has returned, or raised this. Settles what is not settled yet."""
        if self._lease.settled:
            return
        if error is None and self._capture is not None:
            # It stopped in the middle of its answer without an error: frameworks do so when the client leaves.
            await self._lease.omit(self._capture.location)
        elif error is None or isinstance(error, Exception):
            await self._lease.settle_exception()
        else:
            self._lease.abandon()

    def _begin(self, message: Message) -> None:
        self._start = message
        headers = text_headers(message.get("headers", ()))
        self._capture = Capture(message["status"], headers, self._options.max_response_bytes)
        self._receive.holds_back_disconnect = self._capture.keeps_body
        self._from_view = not self._answered_before_view(self._capture.head)

    async def _body(self, capture: Capture, piece: bytes, *, more: bool) -> None:
        visible = capture.passing(piece)
        if more:
            await self._pass_on(capture, visible, flush=not piece)
            return
        visible, self._waiting = self._waiting + visible, b""
        winner = await self._settle(capture)
        if winner is not None and not self._started:
            await respond(self._forward, winner)
        else:
            await self._pass(visible + capture.held_back(), more=False)
        self._receive.holds_back_disconnect = False

    async def _pass_on(self, capture: Capture, visible: bytes, *, flush: bool) -> None:
        """More may come; what has come may be seen, unless it is the whole answer in one piece."""
        if not self._started and (capture.complete_at_head or capture.is_whole):
            self._waiting += visible
        elif visible or (flush and not self._started):
            await self._pass(visible)

    async def _settle(self, capture: Capture) -> Response | None:
        """Record the answer; gives another attempt's, if that one owns the key by now."""
        response = capture.response()
        capture.forget()
        if response is None and capture.head.status >= 500:
            response = capture.head
        if response is None:
            settled = await self._lease.omit(capture.location)
        else:
            settled = await self._lease.settle(response, from_view=self._from_view)
        return settled.response if isinstance(settled, Superseded) else None

    def _answered_before_view(self, head: Response) -> bool:
        if "router" in self._scope and "endpoint" not in self._scope:
            return True  # Starlette's router found no route, or redirects to another slash
        if head.status == 405:
            return method_refused(head.headers, self._scope["method"])
        if head.status == 422:
            # FastAPI answers a failed validation from within its handler for this exception.
            error = sys.exception()
            return error is not None and type(error).__name__ == "RequestValidationError"
        return False

    async def _pass(self, body: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await self._forward(self._start)
        await self._forward({"type": "http.response.body", "body": body, "more_body": more})

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
    extensions = scope.get("extensions") or {}
    for name in ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"):
        extensions.pop(name, None)
