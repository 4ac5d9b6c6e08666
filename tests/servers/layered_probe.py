"""A probe with two common middlewares around it: answers for other origins, and compression.

They stand further outside than the product, as they do in applications. They are the tests' own, since there is none
that all frameworks have: what matters is that they see a replay as they see any answer.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterable
from typing import Any

from tests.probe import server
from tests.probe.__main__ import main
from tests.probe.settings import ASGI_FRAMEWORKS, Settings

Headers = list[tuple[str, str]]


def dressed(headers: Headers, body: bytes, *, origin: str | None, accepted: str) -> tuple[Headers, bytes]:
    """Give an answer as the two middlewares send it on."""
    if origin is not None:
        headers = [*headers, ("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
    if "gzip" in accepted and body:
        body = gzip.compress(body)
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"), ("Content-Length", str(len(body)))]
    return headers, body


class WsgiLayers:
    """Around a WSGI app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        """Let the app answer, then send that on."""
        started: list[Any] = []
        pieces = self._app(environ, lambda *start: started.append(start))
        try:
            body = b"".join(pieces)
        finally:
            getattr(pieces, "close", lambda: None)()
        status, headers = started[-1][:2]
        headers, body = dressed(
            list(headers),
            body,
            origin=environ.get("HTTP_ORIGIN"),
            accepted=environ.get("HTTP_ACCEPT_ENCODING", ""),
        )
        start_response(status, headers)
        return [body]


class AsgiLayers:
    """Around an ASGI app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let the app answer, then send that on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        start: dict[str, Any] = {}
        body = b""

        async def collect(message: Any) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if not message.get("more_body", False):
                headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
                headers, whole = dressed(
                    headers, body, origin=asked.get("origin"), accepted=asked.get("accept-encoding", "")
                )
                sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
                await send({**start, "headers": sent})
                await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, collect)


def with_layers(build: Callable[[Settings], Any]) -> Callable[[Settings], Any]:
    """Build the app as before, and put the layers around it."""

    def build_with_layers(settings: Settings) -> Any:
        layers = AsgiLayers if settings.framework in ASGI_FRAMEWORKS else WsgiLayers
        return layers(build(settings))

    return build_with_layers


# Where this module is imported by a worker that was spawned, too.
server.build_app = with_layers(server.build_app)  # type: ignore[assignment]  # mypy wants the very function

if __name__ == "__main__":
    sys.exit(main())
