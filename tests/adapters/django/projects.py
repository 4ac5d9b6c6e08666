"""A Django project served without a network: requests go through Django's own WSGI and ASGI handlers."""

from __future__ import annotations

import asyncio
import functools
import io
import json
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from wsgiref.util import setup_testing_defaults

import django
import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, JsonResponse

from idem_middleware import Event
from tests.adapters.support.asgi import Connection

__all__ = [
    "IDEMPOTENCY",
    "MIDDLEWARE",
    "Answer",
    "Counter",
    "Exchange",
    "Project",
    "Urlconf",
    "multipart",
    "notices_leaving",
]

notices_leaving = pytest.mark.skipif(django.VERSION < (5, 0), reason="Django 4.2 does not notice that a client leaves")

IDEMPOTENCY = "idem_django.IdempotencyMiddleware"
MIDDLEWARE = ("django.middleware.common.CommonMiddleware", IDEMPOTENCY)
JSON = "application/json"


class Urlconf(ModuleType):
    """A module of URL patterns, made by code."""

    def __init__(self, routes: list[Any]) -> None:
        super().__init__("tests.urls")
        self.urlpatterns = routes


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The one value of a header."""
        values = self.all(name)
        assert len(values) < 2, (name, values)
        return values[0] if values else None

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

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Exchange:
    """One WSGI request, taken piece by piece, as a server does."""

    def __init__(self, environ: dict[str, Any], handler: WSGIHandler | None = None, *, unread: bool = False) -> None:
        self._result: Any = (handler or WSGIHandler())(environ, self._start)
        self._pieces = iter(() if unread else self._result)
        self.read: list[bytes] = []

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[..., None]:
        self.status, self.headers = int(status[:3]), headers
        return lambda piece: None

    def next(self) -> bytes:
        """One more piece."""
        piece: bytes = next(self._pieces)
        self.read.append(piece)
        return piece

    def close(self) -> None:
        """What a server calls at the end, or when the client is gone."""
        if hasattr(self._result, "close"):
            self._result.close()

    def finish(self) -> Answer:
        """Read all that is left."""
        self.read.extend(self._pieces)
        self.close()
        return Answer(self.status, self.headers, b"".join(self.read))


class ClosingHandler(ASGIHandler):
    """Django's, but for the request's temporary file: Django leaves it open when an exception comes out."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        opened: list[Any] = []
        _opened.set(opened)
        try:
            await super().__call__(scope, receive, send)
        finally:
            for file in opened:
                file.close()

    async def read_body(self, receive: Any) -> Any:
        """Read one request."""
        _opened.get().append(file := await super().read_body(receive))
        return file


_opened: ContextVar[list[Any]] = ContextVar("opened")


class Project:
    """The project whose settings are in force; `mode` says how it is served."""

    def __init__(self, mode: str, events: list[Event]) -> None:
        self.mode = mode
        self.events = events
        self._asgi: Any = None

    @property
    def kinds(self) -> list[str]:
        """The kinds of all events."""
        return [event.kind.value for event in self.events]

    def send(
        self,
        method: str,
        path: str,
        body: bytes = b"{}",
        *,
        key: str | None = "k",
        content_type: str | None = JSON,
        headers: Iterable[tuple[str, str]] = (),
        query: str = "",
        environ: Mapping[str, Any] | None = None,
    ) -> Answer:
        """One request and its whole answer; `environ` is what else a WSGI server tells."""
        lines = [*headers] if key is None else [("Idempotency-Key", key), *headers]
        if content_type is not None:
            lines.append(("Content-Type", content_type))
        if self.mode == "wsgi":
            return Exchange(self.environ(method, path, body, lines, query=query, **(environ or {}))).finish()
        return asyncio.run(self.over_asgi(method, path, body, lines, query=query))

    def post(self, path: str = "/", body: bytes = b"{}", **values: Any) -> Answer:
        """One POST."""
        return self.send("POST", path, body, **values)

    @staticmethod
    def environ(
        method: str, path: str, body: bytes, headers: Iterable[tuple[str, str]], *, query: str = "", **more: Any
    ) -> dict[str, Any]:
        """What a WSGI server gives."""
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        for name, value in headers:
            written = name.upper().replace("-", "_")
            environ[written if written in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{written}"] = value
        environ.update(more)
        setup_testing_defaults(environ)
        return environ

    async def over_asgi(
        self, method: str, path: str, body: bytes, headers: Iterable[tuple[str, str]], *, query: str = ""
    ) -> Answer:
        """The same, on a running loop."""
        connection = await self.connection(method, path, body, headers, query=query).run()
        return Answer(connection.status, connection.headers, connection.body)

    def connection(
        self, method: str, path: str, body: bytes, headers: Iterable[tuple[str, str]], *, query: str = ""
    ) -> Connection:
        """A client that can leave whenever it wants."""
        self._asgi = self._asgi or ClosingHandler()
        lines = [("content-length", str(len(body))), *headers]
        return Connection(
            self._asgi, method=method, path=path, query=query.encode(), key=None, headers=lines, pieces=[body]
        )


class Counter:
    """Counts how often its views ran."""

    def __init__(self) -> None:
        self.runs = 0

    def view(self, request: HttpRequest, **kwargs: Any) -> JsonResponse:
        """A synchronous view."""
        self.runs += 1
        return JsonResponse({"run": self.runs}, status=201)

    def view_for(self, mode: str) -> Any:
        """The kind of view that suits the way in which it is served."""
        if mode == "wsgi":
            return functools.partial(self.view)

        async def view(request: HttpRequest, **kwargs: Any) -> JsonResponse:
            return self.view(request, **kwargs)

        return view


def multipart(boundary: str, **parts: bytes) -> tuple[bytes, str]:
    """A form, and its content type; values are files named after their field."""
    lines = []
    for name, content in parts.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.bin"\r\n\r\n'
        lines.append(head.encode() + content + b"\r\n")
    return b"".join(lines) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
