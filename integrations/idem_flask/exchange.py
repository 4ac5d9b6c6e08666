"""One request through Flask: the claim before its view, the record of what it answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, assert_never, cast

from flask import Response as FlaskResponse
from flask import after_this_request, current_app, g, request
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wsgi import ClosingIterator

from idem_flask.marking import Marker
from idem_middleware.blocking.engine import Engine
from idem_middleware.blocking.lease import Lease
from idem_middleware.blocking.streaming import RecordedStream
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted, Passed
from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.settling import Superseded
from idem_middleware.tee import TeeInput
from idem_middleware.wsgi.claiming import claim, is_from_view
from idem_middleware.wsgi.environ import key_lines

__all__ = ["EXCHANGE", "NAME", "Exchange", "Protection"]

NAME = "idempotency"
"""Where in an application's `extensions` its `Protection` is."""

EXCHANGE = "idem_flask.exchange"
"""Where in its environment a request has its `Exchange`; `flask.g` may outlive a request in tests."""


@dataclass(frozen=True, slots=True)
class Protection:
    """What one application uses."""

    engine: Engine
    options: Options
    _by_marker: dict[Marker, Options] = field(default_factory=dict, init=False, repr=False, compare=False)

    def options_for(self, marker: Marker | None) -> Options | None:
        """The options in force for a view with this marker; None where it is not protected.

        What is marked is meant, whatever `paths` say.
        """
        if marker is None:
            return self.options
        if marker.overrides is None:
            return None
        if marker not in self._by_marker:
            options = self.options.merge({"paths": (), "exempt_paths": (), **marker.overrides})
            self.engine.check(options)
            self._by_marker[marker] = options
        return self._by_marker[marker]


class Exchange:
    """Nothing but translation; what to do is decided by the engine."""

    def __init__(self, protection: Protection, tee: TeeInput) -> None:
        self._protection = protection
        self._tee = tee
        self._options = protection.options
        self._lease: Lease | None = None
        self._captured = False
        self.decided = False

    def claim(self, marker: Marker | None) -> FlaskResponse | None:
        """The answer to give instead of running the view, or None if it may run."""
        if self.decided:
            return None  # further out
        # What nothing is written on may still have a decorator inside that nobody can see from here.
        self.decided = marker is not None
        engine, options = self._protection.engine, self._protection.options_for(marker)
        if options is None:
            self._tee.stop()
            return None
        self._options = options
        admission = engine.admit(options, request.method, request.path, key_lines(request.environ, options.header))
        match admission:
            case Passed():
                self._tee.stop()
                return None
            case Refused(_, response):
                return _native(response)
            case Admitted():
                self.decided = True
                return self._admitted(admission)
            case _:
                assert_never(admission)

    def _admitted(self, admission: Admitted) -> FlaskResponse | None:
        native = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - Flask's documented way
        try:
            outcome = claim(self._protection.engine, admission, request.environ, self._tee, native)
        except OSError as error:
            raise ClientDisconnected from error
        match outcome:
            case Replayed(response) | Refused(_, response):
                return _native(response)
            case Unprotected(headers):
                if headers:
                    after_this_request(lambda response: _extended(response, headers))
                return None
            case Lease():
                outcome.translate_with(_translated)
                self._lease = g.idempotency = outcome
                after_this_request(self._capture_last)
                return None
            case _:
                assert_never(outcome)

    def _capture_last(self, response: FlaskResponse) -> FlaskResponse:
        """Capture after all that the view itself asked for by `after_this_request`.

        But before what the application adds to every answer by `after_request`: a replay goes through that again.
        """
        after_this_request(self._capture)
        return response

    def _capture(self, response: FlaskResponse) -> FlaskResponse:
        lease = self._lease
        if lease is None or lease.settled:
            return response
        self._captured = True
        _unroll(response)
        headers = tuple(response.get_wsgi_headers(request.environ).items())
        capture = Capture(response.status_code, headers, self._options.max_response_bytes)
        body = b""
        if not capture.complete_at_head:
            if response.is_streamed or response.direct_passthrough:
                _stream(response, capture, lease)
                return response
            response.make_sequence()
            body = b"".join(response.iter_encoded())
        answer = Response(response.status_code, headers, body)
        settled = lease.settle(answer, from_view=is_from_view(answer, request.method))
        if isinstance(settled, Superseded) and settled.response is not None:
            winners = _native(settled.response)
            winners.call_on_close(response.close)
            return winners
        return response

    def finish(self, error: BaseException | None) -> None:
        """The application has returned, its body may follow, or it raised this. Settles what no answer has settled."""
        lease = self._lease
        if lease is None or lease.settled or (error is None and self._captured):
            return
        if error is None or isinstance(error, Exception):
            lease.settle_exception()
        else:
            lease.abandon()


def _unroll(response: FlaskResponse) -> None:
    """Put an answer that lies in memory back into a list.

    That of an exception (or of any WSGI application that a view returns) comes as an iterator, whose first piece
    Werkzeug has already.
    """
    body = response.response
    if isinstance(body, ClosingIterator):
        first = next(body, b"")
        if response.content_length == len(first):
            response.response = [first, *body]
            response.call_on_close(body.close)
        else:
            response.response = ClosingIterator(chain((first,), body), body.close)


def _stream(response: FlaskResponse, capture: Capture, lease: Lease) -> None:
    body = response.response
    pieces = cast("Iterable[bytes]", body) if response.direct_passthrough else response.iter_encoded()
    response.response = RecordedStream(pieces, capture, lease, on_close=getattr(body, "close", None))


def _translated(answer: Any) -> Response:
    """Whatever a view may return, as the engine sees it.

    Raises:
        TypeError: it is nothing that a view may return, or its body comes only while it is sent.
    """
    native = current_app.make_response(answer)
    if native.is_streamed or native.direct_passthrough:
        raise TypeError("an answer that is kept in a transaction must be whole, not a stream")
    return Response(native.status_code, tuple(native.get_wsgi_headers(request.environ).items()), native.get_data())


def _native(response: Response) -> FlaskResponse:
    native = current_app.response_class(response.body, status=response.status)
    native.headers.clear()  # no default of Flask's that the first answer did not have
    return _extended(native, response.headers)


def _extended(response: FlaskResponse, headers: HeaderPairs) -> FlaskResponse:
    for name, value in headers:
        response.headers.add(name, value)
    return response
