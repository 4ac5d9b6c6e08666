"""The answer on its way out: what may pass at once, what is held back until the record is durable."""

from __future__ import annotations

from starlette.types import Message, Scope, Send

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.aio.streaming import settle_capture
from idem_middleware.capture import Capture
from idem_middleware.options import Options
from idem_middleware.settling import Superseded
from idem_starlette.messages import respond, text_headers
from idem_starlette.receiving import Departure
from idem_starlette.views import answered_by_view

__all__ = ["Recorder", "withdraw_offers"]


class Recorder:
    """The `send` of one protected request.

    An answer that comes in one piece is held whole, its start included. One that is streamed flows as it comes; what
    is held back is the byte that makes it complete (with a declared length) or its end (without one). So nobody has
    a complete answer that a retry would not get.
    """

    def __init__(self, scope: Scope, send: Send, departure: Departure, lease: AsyncLease, options: Options) -> None:
        self._scope = scope
        self._send = send
        self._departure = departure
        self._lease = lease
        self._options = options
        self._start: Message = {}
        self._capture: Capture | None = None
        self._from_view = True
        self._waiting = b""  # complete, so not even the head may be seen yet
        self._started = False  # the client has the head
        self._ended = False
        self._refused: OSError | None = None  # the server takes no more: the client left (ASGI 2.4)
        self._stopped = False  # the application was told so

    async def __call__(self, message: Message) -> None:
        capture = self._capture
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body" and capture is not None and not self._ended:
            piece = bytes(message.get("body", b""))  # its owner may write into it again, if it can be written
            if message.get("more_body", False):
                await self._go_on(capture, piece)
            else:
                await self._end(capture, piece)
        else:  # early hints, debugging aids: no part of the answer
            await self._forward(message)

    async def close(self, error: BaseException | None) -> None:
        """The application has returned, or raised this. Settles what is not settled yet."""
        if self._lease.settled:
            return
        capture, heard = self._capture, self._stopped or self._departure.told
        if error is None or isinstance(error, Exception):
            if capture is not None and (heard or error is None):
                await self._torn(capture)
            elif heard and error is None:
                self._lease.abandon()  # it gave up half-way, for a client that left
            else:
                await self._lease.settle_exception()
        elif capture is not None and self._departure.happened:
            await self._torn(capture)  # some servers cancel what their client does not wait for
        else:
            self._lease.abandon()

    def _begin(self, message: Message) -> None:
        if self._capture is not None:
            raise RuntimeError("the application began its answer twice")
        self._start = message
        headers = text_headers(message.get("headers", ()))
        self._capture = Capture(message["status"], headers, self._options.max_response_bytes)
        self._from_view = answered_by_view(self._scope, self._capture.head)
        self._departure.answering(recording=self._capture.keeps_body)

    async def _go_on(self, capture: Capture, piece: bytes) -> None:
        """More may come; what has come may be seen, unless it is the whole answer."""
        visible = capture.passing(piece)
        self._departure.answering(recording=capture.keeps_body)
        if not self._started and (capture.complete_at_head or capture.is_whole):
            self._waiting += visible
        elif visible or not (piece or self._started):  # an empty first piece asks for the head to be sent
            await self._show(visible, more=True)

    async def _end(self, capture: Capture, piece: bytes) -> None:
        rest = self._waiting + capture.ending(piece)
        self._ended = True
        if self._departure.told and not capture.is_whole:
            capture.give_up()  # this end may be an early one, and only a declared length could tell
        settled = await settle_capture(self._lease, capture, from_view=self._from_view)
        if isinstance(settled, Superseded) and settled.response is not None and not self._started:
            await respond(self._forward, settled.response)
        else:
            await self._show(rest, more=False)
        self._departure.answering(recording=False)

    async def _torn(self, capture: Capture) -> None:
        capture.give_up()
        await settle_capture(self._lease, capture, from_view=self._from_view)

    async def _show(self, body: bytes, *, more: bool) -> None:
        if not self._started:
            self._started = True
            await self._forward(self._start)
        await self._forward({"type": "http.response.body", "body": body, "more_body": more})

    async def _forward(self, message: Message) -> None:
        """To the client, while there is one; without it the answer goes on as long as that is of any use."""
        if self._refused is None:
            try:
                await self._send(message)
            except OSError as error:
                self._refused = error
                self._departure.note()
            else:
                return
        if self._capture is not None and not self._ended and self._is_useless(self._capture):
            self._stopped = True
            raise self._refused

    def _is_useless(self, capture: Capture) -> bool:
        return not capture.keeps_body or self._departure.is_long_ago


def withdraw_offers(scope: Scope) -> None:
    """Take back the server's offers by which a body, or a part of the answer, would bypass the recorder."""
    offers = scope.get("extensions")
    if offers:
        bypasses = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")
        # A new dictionary: the server may have one for all requests.
        scope["extensions"] = {name: offer for name, offer in offers.items() if name not in bypasses}
