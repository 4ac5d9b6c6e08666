"""One request through Flask: the claim before its view, the record of what it answered."""

from __future__ import annotations

from typing import assert_never

from flask import Response as FlaskResponse
from flask import after_this_request, current_app, g, request
from werkzeug.exceptions import ClientDisconnected

from idem_middleware.blocking.engine import Engine
from idem_middleware.blocking.lease import Lease
from idem_middleware.blocking.streaming import RecordedStream
from idem_middleware.body import BodyTooLarge
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted, CallerUnknown, Passed
from idem_middleware.keeping import method_refused
from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.settling import Superseded
from idem_middleware.tee import TeeInput
from idem_middleware.wsgi.environ import check_declared_length, key_lines, to_request

__all__ = ["EXCHANGE", "Exchange"]

EXCHANGE = "idem_flask.exchange"
"""Where in its environment a covered request has this; `flask.g` may outlive a request in tests."""


class Exchange:
    """Nothing but translation; what to do is decided by the engine."""

    def __init__(self, tee: TeeInput) -> None:
        self._tee = tee
        self._acting = False
        self._lease: Lease | None = None
        self._options = Options()
        self._captured = False

    def pass_by(self) -> None:
        """The view is not protected."""
        self._tee.stop()

    def claim(self, engine: Engine, options: Options) -> FlaskResponse | None:
        """The answer to give instead of running the view, or None if it may run."""
        if self._acting:
            return None  # another one further out did
        self._acting = True
        self._options = options
        admission = engine.admit(options, request.method, request.path, key_lines(request.environ, options.header))
        match admission:
            case Passed():
                self.pass_by()
                return None
            case Refused(_, response):
                return _native(response)
            case Admitted():
                return self._admitted(engine, admission)
            case _:
                assert_never(admission)

    def _admitted(self, engine: Engine, admission: Admitted) -> FlaskResponse | None:
        options = admission.options
        try:
            check_declared_length(request.environ, options.max_request_bytes)
            body = self._tee.complete(options.max_request_bytes)
        except BodyTooLarge:
            return _native(engine.refuse(Problem(ProblemType.REQUEST_TOO_LARGE), options).response)
        except OSError as error:  # half a request: nothing is claimed on it
            raise ClientDisconnected from error
        native = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's documented way
        try:
            caller = engine.caller(admission, native)
        except CallerUnknown:
            return _native(engine.refuse(Problem(ProblemType.CALLER_UNKNOWN), options).response)
        outcome = engine.acquire(to_request(request.environ, body, native), admission, caller)
        match outcome:
            case Replayed(response) | Refused(_, response):
                return _native(response)
            case Unprotected(headers):
                if headers:
                    after_this_request(lambda response: _extended(response, headers))
                return None
            case Lease():
                self._lease = g.idempotency = outcome
                after_this_request(self._capture_last)
                return None
            case _:
                assert_never(outcome)

    def _capture_last(self, response: FlaskResponse) -> FlaskResponse:
        """After all that the view itself asked for by `after_this_request`, before what the application adds to every
        answer by `after_request`: a replay goes through that again."""
        after_this_request(self._capture)
        return response

    def _capture(self, response: FlaskResponse) -> FlaskResponse:
        lease = self._lease
        assert lease is not None
        if lease.settled:
            return response
        self._captured = True
        headers = tuple(response.headers.items())
        if response.is_streamed or response.direct_passthrough:
            self._stream(lease, response, headers)
            return response
        answer = Response(response.status_code, headers, response.get_data())
        refused = answer.status == 405 and method_refused(headers, request.method)
        settled = lease.settle(answer, from_view=not refused)
        if isinstance(settled, Superseded) and settled.response is not None:
            return _native(settled.response)
        return response

    def _stream(self, lease: Lease, response: FlaskResponse, headers: HeaderPairs) -> None:
        capture = Capture(response.status_code, headers, self._options.max_response_bytes)
        pieces = response.response if response.direct_passthrough else response.iter_encoded()
        close = getattr(response.response, "close", None) or _nothing
        response.response = RecordedStream(pieces, capture, lease, on_close=close)  # type: ignore[arg-type]

    def teardown(self, error: BaseException | None) -> None:
        """The request is over, or its body follows. Settles what no answer has settled."""
        lease = self._lease
        if lease is None or lease.settled or self._captured:
            return
        if error is None or isinstance(error, Exception):
            lease.settle_exception()
        else:
            lease.abandon()


def _native(response: Response) -> FlaskResponse:
    native = current_app.response_class(response.body, status=response.status)
    native.headers.clear()  # no default of Flask's that the first answer did not have
    for name, value in response.headers:
        native.headers.add(name, value)
    return native


def _extended(response: FlaskResponse, headers: HeaderPairs) -> FlaskResponse:
    for name, value in headers:
        response.headers.add(name, value)
    return response


def _nothing() -> None:
    """Closes what needs no closing."""
