"""WSGI applications of every kind that the specification allows, and some that it does not."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.util import FileWrapper

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["STREAMED", "WHOLE", "Answering", "Closable", "Counted"]

TEXT = ("Content-Type", "text/plain")


class Closable:
    """An iterable that counts how often it is closed, and says so in a journal."""

    def __init__(self, pieces: Iterable[bytes], journal: list[str] | None = None) -> None:
        self._pieces = pieces
        self._journal = [] if journal is None else journal
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        self.closed += 1
        self._journal.append("closed by the server")


class Counted:
    """Counts the runs of an application; each gets the environment."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self.environs: list[WSGIEnvironment] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.environs.append(environ)
        return self._app(environ, start_response)

    @property
    def runs(self) -> int:
        return len(self.environs)


class Answering:
    """Reads its input and answers always the same; an exception is raised instead."""

    def __init__(
        self,
        status: str = "201 Created",
        body: Iterable[bytes] = (b"done",),
        headers: Iterable[tuple[str, str]] = (TEXT,),
        error: BaseException | None = None,
    ) -> None:
        self._status = status
        self._body = body
        self._headers = list(headers)
        self._error = error
        self.inputs: list[bytes] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.inputs.append(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        if self._error is not None:
            raise self._error
        start_response(self._status, self._headers)
        return self._body

    @property
    def runs(self) -> int:
        return len(self.inputs)


def a_list(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("201 Created", [TEXT])
    return [b"ab", b"cd"]


def a_tuple(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("201 Created", [TEXT, ("Content-Length", "4")])
    return (b"ab", b"cd")


def one_piece_of_an_iterator(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """As Werkzeug gives even an answer that lies in memory."""
    start_response("201 Created", [TEXT, ("Content-Length", "4")])
    return Closable([b"abcd"])


def all_by_write(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    write = start_response("201 Created", [TEXT])
    write(b"ab")
    write(b"cd")
    return []


def write_and_return(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    write = start_response("201 Created", [TEXT])
    write(b"ab")
    return [b"cd"]


def an_error_page_instead(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Changes its mind before anything is sent (PEP 3333, "Error Handling")."""
    write = start_response("200 OK", [TEXT])
    write(b"half")
    try:
        int("changed my mind")
    except ValueError:
        start_response("201 Created", [TEXT], sys.exc_info())
    return [b"abcd"]


def a_stream(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("201 Created", [TEXT])
    return iter([b"ab", b"cd"])


def a_stream_of_declared_length(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("201 Created", [TEXT, ("Content-Length", "4")])
    return iter([b"ab", b"cd"])


def a_generator_that_starts_late(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    start_response("201 Created", [TEXT])
    yield b"ab"
    yield b"cd"


def a_flush_first(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    start_response("201 Created", [TEXT, ("Content-Length", "4")])
    yield b""
    yield b"ab"
    yield b"cd"


def a_file(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("201 Created", [TEXT])
    return FileWrapper(io.BytesIO(b"abcd"), 2)


def write_and_a_stream(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    write = start_response("201 Created", [TEXT])
    write(b"ab")
    return iter([b"cd"])


def write_within_the_stream(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    """Against the specification, and no reason to lose bytes."""
    write: Any = start_response("201 Created", [TEXT])
    yield b"a"
    write(b"b")
    yield b"c"
    write(b"d")


WHOLE = [a_list, a_tuple, one_piece_of_an_iterator, all_by_write, write_and_return, an_error_page_instead]
STREAMED = [
    a_stream,
    a_stream_of_declared_length,
    a_generator_that_starts_late,
    a_flush_first,
    a_file,
    write_and_a_stream,
    write_within_the_stream,
]
"""All answer 201 with abcd."""
