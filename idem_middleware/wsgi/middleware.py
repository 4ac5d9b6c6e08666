"""The WSGI middleware, for applications without an adapter of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, assert_never

from idem_middleware.blocking.engine import Engine
from idem_middleware.blocking.lease import Lease
from idem_middleware.blocking.streaming import RecordedStream
from idem_middleware.body import BodyTooLarge
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted, CallerUnknown, Passed
from idem_middleware.keeping import method_refused
from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.settling import Superseded
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_middleware.wsgi.environ import (
    check_declared_length,
    key_lines,
    path_of,
    status_line,
    tee_input,
    to_request,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["LEASE", "IdempotencyMiddleware"]

LEASE = "idem_middleware.lease"
"""Where in its environment an application finds its lease; also how an inner instance knows of an outer one."""

_WITHOUT_LENGTH = frozenset({204, 304})
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
        if environ["REQUEST_METHOD"] not in self.options.methods or LEASE in environ:
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
        tee = tee_input(environ)
        try:
            check_declared_length(environ, self.options.max_request_bytes)
            body = tee.complete(self.options.max_request_bytes)
        except BodyTooLarge:
            return self._refuse(ProblemType.REQUEST_TOO_LARGE, start_response)
        except OSError:  # half a request: nothing is claimed on it, and nobody may be there to read this
            return respond(start_response, Response(400))
        environ["wsgi.input"] = tee
        environ["wsgi.input_terminated"] = True
        try:
            caller = self.engine.caller(admission, environ)
        except CallerUnknown:
            return self._refuse(ProblemType.CALLER_UNKNOWN, start_response)
        outcome = self.engine.acquire(to_request(environ, body, environ), admission, caller)
        match outcome:
            case Replayed(response) | Refused(_, response):
                return respond(start_response, response)
            case Unprotected(headers):
                environ[LEASE] = None
                return self.app(environ, _adding(headers, start_response))
            case Lease():
                environ[LEASE] = outcome
                return self._run(outcome, environ, start_response)
            case _:
                assert_never(outcome)

    def _run(self, lease: Lease, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start = _Start()
        close: Callable[[], None] | None = None
        try:
            produced = self.app(environ, start)
            close = getattr(produced, "close", None)
            pieces = iter(produced)
            # The head may come as late as with the first piece.
            first = list(produced) if isinstance(produced, Sized) else [next(pieces, b"")]
            head = start.head()
        except BaseException as error:
            lease.settle_exception() if isinstance(error, Exception) else lease.abandon()
            if close is not None:
                close()
            raise
        first[:0] = start.written
        if isinstance(produced, Sized):
            whole = Response(head.status, head.headers, b"".join(first))
            return self._whole(lease, whole, start.line, close, environ, start_response)
        capture = Capture(head.status, head.headers, self.options.max_response_bytes)
        start_response(start.line, list(head.headers))
        return RecordedStream(chain(first, pieces), capture, lease, on_close=close or _nothing)

    def _whole(
        self,
        lease: Lease,
        response: Response,
        line: str,
        close: Callable[[], None] | None,
        environ: WSGIEnvironment,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        refused = response.status == 405 and method_refused(response.headers, environ["REQUEST_METHOD"])
        try:
            settled = lease.settle(response, from_view=not refused)
        finally:
            if close is not None:
                close()
        if isinstance(settled, Superseded) and settled.response is not None:
            return respond(start_response, settled.response)
        start_response(line, list(response.headers))
        return [response.body]

    def _refuse(self, kind: ProblemType, start_response: StartResponse) -> Iterable[bytes]:
        return respond(start_response, self.engine.refuse(Problem(kind), self.options).response)


class _Start:
    """The application's `start_response`: remembers the head, and what was written the old way, by `write`."""

    def __init__(self) -> None:
        self.line = ""
        self.written: list[bytes] = []
        self._headers: list[tuple[str, str]] = []

    def __call__(
        self, status: str, headers: list[tuple[str, str]], exc_info: _ExcInfo | tuple[None, None, None] | None = None, /
    ) -> Callable[[bytes], object]:
        if self.line and exc_info is None:
            raise AssertionError("start_response was called twice without exc_info")
        # Nothing has been sent yet, so an error page may still take the answer's place.
        self.line = status
        self._headers = list(headers)
        if exc_info is not None:
            self.written.clear()
        return self.written.append

    def head(self) -> Response:
        """Status and headers."""
        if not self.line:
            raise AssertionError("the application gave its answer without start_response")
        return Response(int(self.line[:3]), tuple(self._headers))


def respond(start_response: StartResponse, response: Response) -> list[bytes]:
    """A whole answer, with a right Content-Length where one belongs."""
    headers = [pair for pair in response.headers if pair[0].lower() != "content-length"]
    if response.status not in _WITHOUT_LENGTH:
        headers.append(("Content-Length", str(len(response.body))))
    start_response(status_line(response.status), headers)
    return [response.body]


def _adding(headers: HeaderPairs, start_response: StartResponse) -> StartResponse:
    if not headers:
        return start_response

    def starting(status: str, own: list[tuple[str, str]], *rest: Any) -> Callable[[bytes], object]:
        return start_response(status, [*own, *headers], *rest)

    return starting


def _nothing() -> None:
    """Closes what needs no closing."""
