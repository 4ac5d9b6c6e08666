"""The Flask extension: puts the protection around views, and keeps nothing of one application for another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flask import Flask, g, request
from flask.typing import ResponseReturnValue

from idem_flask.exchange import EXCHANGE, NAME, Exchange, Protection
from idem_flask.marking import Marker, marker_of
from idem_middleware.blocking.engine import Engine
from idem_middleware.errors import ConfigurationError
from idem_middleware.options import NEVER_COVERED, Options
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_middleware.wsgi.claiming import LEASE
from idem_middleware.wsgi.environ import tee_input

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["Idempotency"]

_PREFIX = "IDEMPOTENCY_"
_STORE = "IDEMPOTENCY_STORE"


class Idempotency:
    """Runs each covered request once: `Idempotency(app, store=…, **options)`, or `init_app` later.

    Options may also stand in `app.config`, as `IDEMPOTENCY_LEASE_SECONDS` and so on, the store as
    `IDEMPOTENCY_STORE`; what is given here wins. The view finds its lease at `flask.g.idempotency`.

    Raises:
        ConfigurationError: wrong or unknown options, or neither a store nor an engine.
    """

    def __init__(
        self,
        app: Flask | None = None,
        store: Store | str | None = None,
        *,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        self._store = store
        self._engine = engine
        self._options = options
        if app is not None:
            self.init_app(app)

    def init_app(
        self, app: Flask, store: Store | str | None = None, *, engine: Engine | None = None, **options: Any
    ) -> None:
        """Protect an application. An extension can protect several, each with options of its own."""
        if NAME in app.extensions:
            raise RuntimeError("idempotency is set up for this application already")
        if store is None and engine is None:
            store, engine = self._store, self._engine
        if store is None and engine is None:
            store = app.config.get(_STORE)
        protection = Protection(*_built(app.config, store, engine, {**self._options, **options}))
        app.extensions[NAME] = protection
        app.wsgi_app = _Around(app.wsgi_app, protection)  # type: ignore[method-assign]
        # The one place behind all `before_request` functions and around every view: a request that one of those
        # answers, to ask for a login for example, is never claimed.
        app.dispatch_request = _Dispatch(app, app.dispatch_request)  # type: ignore[method-assign]


def _built(
    config: Mapping[str, Any], store: Store | str | None, engine: Engine | None, options: Mapping[str, Any]
) -> tuple[Engine, Options]:
    """The engine and the options, from the application's settings and from what was given."""
    settings = {name: value for name, value in config.items() if name.startswith(_PREFIX) and name != _STORE}
    unknown = {name: value for name, value in settings.items() if name[len(_PREFIX) :].lower() not in Options.names()}
    known = {name[len(_PREFIX) :].lower(): value for name, value in settings.items() if name not in unknown}
    problems: list[str] = []
    try:
        Options.from_mapping(unknown, prefix=_PREFIX)
    except ConfigurationError as error:
        problems += error.problems
    try:
        built = build(store, engine, {**known, **options})
    except ConfigurationError as error:
        raise ConfigurationError([*problems, *error.problems]) from None
    if problems:
        raise ConfigurationError(problems)
    return built


class _Around:
    """Around the application: its input can be read again, and no claim outlives the request without a word."""

    def __init__(self, wsgi_app: WSGIApplication, protection: Protection) -> None:
        self._wsgi_app = wsgi_app
        self._protection = protection

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in NEVER_COVERED or LEASE in environ:  # another instance further out acts
            environ.pop(EXCHANGE, None)
            return self._wsgi_app(environ, start_response)
        environ["wsgi.input"] = tee = tee_input(environ)  # reads nothing by itself
        environ[EXCHANGE] = exchange = Exchange(self._protection, tee)
        try:
            answer = self._wsgi_app(environ, start_response)
        except BaseException as error:
            exchange.finish(error)
            raise
        exchange.finish(None)
        return answer


class _Dispatch:
    """Around the view that Flask is about to call."""

    def __init__(self, app: Flask, dispatch: Callable[..., ResponseReturnValue]) -> None:
        self._app = app
        self._dispatch = dispatch

    def __call__(self, *args: Any) -> ResponseReturnValue:
        environ = request.environ  # one way through the proxy
        g.idempotency = environ.get(LEASE)
        exchange: Exchange | None = environ.get(EXCHANGE)
        if exchange is not None and request.routing_exception is None:
            marker = self._marker()
            if marker is None or not marker.claims_itself:  # else the decorator acts where it is written
                answer = exchange.claim(marker)
                if answer is not None:
                    return answer
        return self._dispatch(*args)

    def _marker(self) -> Marker | None:
        """The view's own, else its innermost blueprint's."""
        marker = marker_of(self._app.view_functions.get(request.endpoint or ""), request.method)
        for name in request.blueprints:
            marker = marker or marker_of(self._app.blueprints[name])
        return marker
