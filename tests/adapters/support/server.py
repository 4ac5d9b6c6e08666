"""A WSGI server in a few lines, that does what PEP 3333 asks of one and writes down what its client sees."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

__all__ = ["Seen", "Server", "environ_of"]

_NO_BODY = (204, 304)


@dataclass
class Seen:
    """What the client of one request saw."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for header, value in self.headers if header.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The first value of a header."""
        return next(iter(self.all(name)), None)

    @property
    def replayed(self) -> bool:
        """Whether it is marked as a replay."""
        return self.header("Idempotent-Replayed") == "true"


def environ_of(
    method: str = "POST",
    path: str = "/orders",
    *,
    body: bytes | None = b"",
    key: str | None = "k",
    chunked: bool = False,
    **more: Any,
) -> WSGIEnvironment:
    """The environment of one request; `more` are entries of it."""
    environ: WSGIEnvironment = {"REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    if body is not None:
        environ["wsgi.input"] = io.BytesIO(body)
        if chunked:
            environ["HTTP_TRANSFER_ENCODING"] = "chunked"
            environ["wsgi.input_terminated"] = True
        else:
            environ["CONTENT_LENGTH"] = str(len(body))
    if key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = key
    environ.update(more)
    return environ


class Server:
    """Calls an application. What its clients see goes into the journal, in order.

    `complete` is when a client has a complete answer: with all bytes that were declared, or with the end.
    """

    def __init__(self, app: WSGIApplication, journal: list[str] | None = None) -> None:
        self._app = app
        self.journal: list[str] = [] if journal is None else journal

    def post(self, path: str = "/orders", *, leave_after: int | None = None, **request: Any) -> Seen:
        """One POST; its client leaves after so many pieces."""
        return self.serve(environ_of("POST", path, **request), leave_after=leave_after)

    def serve(self, environ: WSGIEnvironment, *, leave_after: int | None = None) -> Seen:
        """One request."""
        connection = _Connection(self.journal)
        result = self._app(environ, connection.start_response)
        try:
            self._send(result, connection, leave_after)
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                self.journal.append("close")
                close()
        return connection.seen

    def _send(self, result: Iterable[bytes], connection: _Connection, leave_after: int | None) -> None:
        if leave_after == 0:
            self.journal.append("gone")
            return
        for number, piece in enumerate(result, start=1):
            if piece:
                connection.write(piece)
            if number == leave_after:
                self.journal.append("gone")
                return
        connection.end()


class _Connection:
    def __init__(self, journal: list[str]) -> None:
        self.seen = Seen()
        self._journal = journal
        self._head: tuple[str, list[tuple[str, str]]] | None = None
        self._complete = False

    def start_response(
        self,
        status: str,
        headers: list[tuple[str, str]],
        exc_info: tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None] | None = None,
        /,
    ) -> Callable[[bytes], object]:
        if exc_info is not None and exc_info[1] is not None:
            if self.seen.status:
                raise exc_info[1]
        elif self._head is not None:
            raise AssertionError("start_response twice")
        self._head = (status, headers)
        return self.write

    def write(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        if not self.seen.status:
            self._send_head()
        if data:
            self._journal.append(f"sent {data.decode('latin-1')[:20]}")
        self.seen.body += data
        declared = self.seen.header("Content-Length")
        if self.seen.status in _NO_BODY or (declared is not None and len(self.seen.body) >= int(declared)):
            self._done()

    def end(self) -> None:
        self.write(b"")
        self._done()

    def _send_head(self) -> None:
        assert self._head is not None, "no start_response"
        status, headers = self._head
        self.seen.status = int(status.split()[0])
        self.seen.headers = headers
        self._journal.append(f"head {self.seen.status}")

    def _done(self) -> None:
        if not self._complete:
            self._complete = True
            self._journal.append("complete")
