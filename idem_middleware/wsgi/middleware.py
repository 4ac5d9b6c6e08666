"""The WSGI middleware, for applications without an adapter of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, assert_never

from idem_middleware.blocking.engine import Engine
from idem_middleware.blocking.lease import Lease
from idem_middleware.blocking.streaming import RecordedStream
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted, Passed
from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.settling import Superseded
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_middleware.wsgi.claiming import LEASE, claim, is_from_view
from idem_middleware.wsgi.environ import key_lines, path_of, status_line, tee_input

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["LEASE", "IdempotencyMiddleware"]

_WITHOUT_BODY = frozenset({204, 304})
_HALF_A_REQUEST = Response(400, (("Content-Type", "text/plain"),))
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType]


class IdempotencyMiddleware:
    """Runs each covered request once: `application = IdempotencyMiddleware(application, store=…, **options)`.

    A `caller` function gets the environment. `engine` shares one engine between several instances.

    Raises:
        ConfigurationError: wrong or unknown options, or neither a store nor an engine.
    """

    def __init__(
        self,
        app: WSGIApplication,
        store: Store | str | None = None,
        *,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        self.app = app
        self.engine, self.options = build(store, engine, options)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if LEASE in environ:
            return self.app(environ, start_response)
        options = self.options
        admission = self.engine.admit(
            options, environ["REQUEST_METHOD"], path_of(environ), key_lines(environ, options.header)
        )
        match admission:
            case Passed():
                return self.app(environ, start_response)
            case Refused(_, response):
                return respond(start_response, response)
            case Admitted():
                return self._admitted(admission, environ, start_response)
            case _:
                assert_never(admission)

    def _admitted(
        self, admission: Admitted, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        environ["wsgi.input"] = tee = tee_input(environ)
        try:
            outcome = claim(self.engine, admission, environ, tee, environ)
        except OSError:  # nobody may be there any more to read this
            return respond(start_response, _HALF_A_REQUEST)
        tee.rewind()  # a function of the options may have read it
        environ["wsgi.input_terminated"] = True
        match outcome:
            case Replayed(response) | Refused(_, response):
                return respond(start_response, response)
            case Unprotected(headers):
                return self.app(environ, _adding(headers, start_response))
            case Lease():
                return self._run(outcome, environ, start_response)
            case _:
                assert_never(outcome)

    def _run(self, lease: Lease, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start = _Start()
        produced: Iterable[bytes] = ()
        try:
            produced = self.app(environ, start)
            pieces = start.pieces(produced)
            first = next(pieces, b"")  # the head may come as late as with this
            head = start.head()
            if isinstance(produced, Sized) or _is_whole(head, first):
                body = b"".join((first, *pieces))
                whole = Response(head.status, head.headers, b"" if head.status in _WITHOUT_BODY else body)
                return _Closing(_recorded(lease, whole, start.line, environ, start_response), produced)
            start_response(start.line, list(head.headers))
            start.passed_on = True
        except BaseException as error:
            lease.settle_exception() if isinstance(error, Exception) else lease.abandon()
            with suppress(Exception):  # what the application raised before is what matters
                _close(produced)
            raise
        capture = Capture(head.status, head.headers, self.options.max_response_bytes)
        return RecordedStream(chain((first,), pieces), capture, lease, on_close=lambda: _close(produced))


class _Start:
    """The application's `start_response`: remembers the head, and what was written the old way, by `write`."""

    def __init__(self) -> None:
        self.line = ""
        self.passed_on = False
        self._headers: list[tuple[str, str]] = []
        self._written: list[bytes] = []

    def __call__(
        self, status: str, headers: list[tuple[str, str]], exc_info: _ExcInfo | tuple[None, None, None] | None = None, /
    ) -> Callable[[bytes], object]:
        error = exc_info and exc_info[1]
        if error is not None and self.passed_on:
            raise error  # too late for another answer (PEP 3333)
        if error is None and self.line:
            raise AssertionError("start_response was called twice without exc_info")
        self.line, self._headers = status, list(headers)
        self._written.clear()
        return self._written.append

    def head(self) -> Response:
        """Status and headers."""
        if not self.line:
            raise AssertionError("the application gave its answer without start_response")
        return Response(int(self.line[:3]), tuple(self._headers))

    def pieces(self, produced: Iterable[bytes]) -> Iterator[bytes]:
        """What was written and what is produced, in the order in which it comes."""
        for piece in produced:
            yield from self._taken()
            yield piece
        yield from self._taken()

    def _taken(self) -> list[bytes]:
        taken = self._written[:]
        self._written.clear()
        return taken


class _Closing:
    """A whole answer; its producer is closed when the server has sent it."""

    def __init__(self, pieces: Iterable[bytes], produced: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._produced = produced

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        """The server needs it no longer."""
        _close(self._produced)


def respond(start_response: StartResponse, response: Response) -> list[bytes]:
    """A whole answer, with a right Content-Length where one belongs."""
    headers = [pair for pair in response.headers if pair[0].lower() != "content-length"]
    if response.status not in _WITHOUT_BODY:
        headers.append(("Content-Length", str(len(response.body))))
    start_response(status_line(response.status), headers)
    return [response.body]


def _is_whole(head: Response, first: bytes) -> bool:
    """Whether an answer with this first piece is complete, though more pieces could come."""
    return head.status in _WITHOUT_BODY or head.header("content-length") in ("0", str(len(first)))


def _recorded(
    lease: Lease, response: Response, line: str, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    settled = lease.settle(response, from_view=is_from_view(response, environ["REQUEST_METHOD"]))
    if isinstance(settled, Superseded) and settled.response is not None:
        return respond(start_response, settled.response)
    start_response(line, list(response.headers))
    return [response.body]


def _adding(headers: HeaderPairs, start_response: StartResponse) -> StartResponse:
    if not headers:
        return start_response

    def starting(status: str, own: list[tuple[str, str]], *rest: Any) -> Callable[[bytes], object]:
        return start_response(status, [*own, *headers], *rest)

    return starting


def _close(produced: Iterable[bytes]) -> None:
    close = getattr(produced, "close", None)
    if close is not None:
        close()
