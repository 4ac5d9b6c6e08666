"""Between ASGI's messages and the engine's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.responses import Response as NativeResponse
from starlette.types import Scope, Send

from idem_middleware.body import RequestBody
from idem_middleware.messages import HeaderPairs, Request, Response
from idem_middleware.options import Options

__all__ = [
    "adding",
    "app_path",
    "declared_length",
    "field_lines",
    "framed_headers",
    "in_lower_case",
    "respond",
    "text_headers",
    "to_request",
    "to_response",
]

_WITHOUT_LENGTH = frozenset({204, 304})  # RFC 9110 §8.6
_LENGTH_DIGITS = 18  # more bytes than any machine has; int() refuses thousands of digits


def text_headers(raw: Iterable[tuple[bytes, bytes]]) -> HeaderPairs:
    """Latin-1 keeps every byte."""
    return tuple([(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw])


def raw_headers(headers: HeaderPairs) -> list[tuple[bytes, bytes]]:
    """The way back."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def in_lower_case(options: Options) -> Options:
    """The same, but for the name of the mark that we put into replays: ASGI wants names of headers in lower case."""
    return options.merge({"replay_header": options.replay_header.lower()})


def framed_headers(response: Response) -> list[tuple[bytes, bytes]]:
    """The headers of a whole answer, with a right Content-Length where one belongs."""
    headers = [pair for pair in raw_headers(response.headers) if pair[0].lower() != b"content-length"]
    if response.status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(response.body)))
    return headers


def field_lines(scope: Scope, name: bytes) -> list[str]:
    """The values of all lines of one header; `name` in lower case, as ASGI gives them."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def declared_length(scope: Scope) -> int | None:
    """What Content-Length says, or None if it says nothing. Servers check it, but not all."""
    for value in field_lines(scope, b"content-length"):
        if value.isascii() and value.isdigit():
            return int(value[-_LENGTH_DIGITS:]) if len(value.lstrip("0")) <= _LENGTH_DIGITS else 10**_LENGTH_DIGITS
    return None


def app_path(scope: Scope) -> str:
    """The path as the application's own routes see it: without what a server, or a `Mount`, puts before them."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


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


def to_response(native: Any) -> Response:
    """A whole answer of Starlette's, as the engine sees it.

    Raises:
        TypeError: it is none, or its body comes only while it is sent.
    """
    body = getattr(native, "body", None) if isinstance(native, NativeResponse) else None
    if not isinstance(body, (bytes, memoryview)):
        raise TypeError(f"an answer that is kept in a transaction must be whole, not a {type(native).__name__}")
    return Response(native.status_code, text_headers(native.raw_headers), bytes(body))


async def respond(send: Send, response: Response) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": response.status, "headers": framed_headers(response)})
    await send({"type": "http.response.body", "body": response.body})


def adding(headers: HeaderPairs, send: Send) -> Send:
    """A `send` that puts more headers into the answer."""
    if not headers:
        return send
    own = [(name.lower(), value) for name, value in raw_headers(headers)]

    async def sender(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return sender
