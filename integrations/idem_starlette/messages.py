"""Between ASGI's messages and the engine's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from idem_middleware.body import BodyTooLarge, RequestBody
from idem_middleware.messages import HeaderPairs, Request, Response

__all__ = ["WITHOUT_LENGTH", "ClientGone", "adding", "field_lines", "raw_headers", "read_body", "respond", "text_headers", "to_request"]

WITHOUT_LENGTH = frozenset({204, 304})  # RFC 9110 §8.6


class ClientGone(Exception):
    """The client left while it was sending: there is nobody to answer, and nothing to claim."""


def text_headers(raw: Iterable[tuple[bytes, bytes]]) -> HeaderPairs:
    """Latin-1 keeps every byte."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)


def raw_headers(headers: HeaderPairs) -> list[tuple[bytes, bytes]]:
    """The way back."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def field_lines(scope: Scope, name: bytes) -> list[str]:
    """The values of all lines of one header; `name` in lower case, as ASGI gives them."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


async def read_body(scope: Scope, receive: Receive, max_bytes: int | None) -> RequestBody:
    """The whole body, in memory or in a file.

    Raises:
        BodyTooLarge: by its declared or its real length.
        ClientGone: it is not whole.
    """
    if max_bytes is not None:
        declared = field_lines(scope, b"content-length")
        if declared and declared[0].isdigit() and int(declared[0]) > max_bytes:
            raise BodyTooLarge(max_bytes)
    body = RequestBody(max_bytes=max_bytes)
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body.write(message.get("body", b""))
            if not message.get("more_body", False):
                return body
    except BaseException:
        body.close()
        raise


def to_request(scope: Scope, body: RequestBody, native: Any) -> Request:
    """The request as the engine sees it; the path as it was sent, where the server tells it."""
    raw_path = scope.get("raw_path")
    path = raw_path.decode("latin-1").partition("?")[0] if raw_path else scope["path"]
    return Request(
        method=scope["method"],
        path=path,
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=text_headers(scope["headers"]),
        body=body,
        native=native,
    )


async def respond(send: Send, response: Response) -> None:
    """Send a whole answer, with a right Content-Length where one belongs."""
    headers = [pair for pair in raw_headers(response.headers) if pair[0].lower() != b"content-length"]
    if response.status not in WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(response.body)))
    start: Message = {"type": "http.response.start", "status": response.status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body})


def adding(headers: HeaderPairs, send: Send) -> Send:
    """A `send` that puts more headers into the answer."""
    if not headers:
        return send

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *raw_headers(headers)]}
        await send(message)

    return sender
