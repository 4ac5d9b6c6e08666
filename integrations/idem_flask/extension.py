"""The Flask extension: puts the protection around views, and keeps nothing of one application for another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flask import Flask, g, request
from flask.typing import ResponseReturnValue

from idem_middleware.blocking.engine import Engine
from idem_middleware.options import NEVER_COVERED, Options
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_middleware.wsgi.environ import tee_input
from idem_flask.exchange import EXCHANGE, Exchange
from idem_flask.marking import Marker, marker_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["Idempotency"]

_NAME = "idempotency"
_PREFIX = "IDEMPOTENCY_"
_STORE = "IDEMPOTENCY_STORE"


@dataclass(frozen=True, slots=True)
class _Protection:
    """What one application uses."""

    engine: Engine
    options: Options


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
        if _NAME in app.extensions:
            raise RuntimeError("idempotency is set up for this application already")
        store, engine = (store, engine) if store or engine else (self._store, self._engine)
        configured = app.config.get(_STORE)
        if store is None and engine is None:
            store = configured
        protection = _Protection(*build(store, engine, {**_from_config(app.config), **self._options, **options}))
        app.extensions[_NAME] = protection
        app.wsgi_app = _Input(app.wsgi_app, protection.options)  # type: ignore[method-assign]
        # The one place behind all `before_request` functions and around every view: a request that one of those
        # answers, to ask for a login for example, is never claimed.
        app.dispatch_request = _Dispatch(app, protection, app.dispatch_request)  # type: ignore[method-assign]
        app.teardown_request(_teardown)


def _from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options among an application's settings, by their own names."""
    return {
        name[len(_PREFIX) :]: value
        for name, value in config.items()
        if name.startswith(_PREFIX) and name != _STORE
    }


class _Input:
    """Around the application: makes the input one that can be read again, before anybody reads it."""

    def __init__(self, wsgi_app: WSGIApplication, options: Options) -> None:
        self._wsgi_app = wsgi_app
        self._options = options

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in NEVER_COVERED and self._options.mode != "off":
            tee = tee_input(environ)  # reads nothing by itself
            environ["wsgi.input"] = tee
            environ[EXCHANGE] = Exchange(tee)
        return self._wsgi_app(environ, start_response)


class _Dispatch:
    """Around the view that Flask is about to call."""

    def __init__(self, app: Flask, protection: _Protection, dispatch: Callable[..., ResponseReturnValue]) -> None:
        self._app = app
        self._protection = protection
        self._dispatch = dispatch

    def __call__(self, *args: Any) -> ResponseReturnValue:
        exchange: Exchange | None = request.environ.get(EXCHANGE)
        g.idempotency = None
        if exchange is None or request.routing_exception is not None:
            return self._dispatch(*args)
        marker = self._marker()
        if marker is not None and marker.claims_itself:
            return self._dispatch(*args)  # the decorator acts where it is written
        options = self._protection.options
        if marker is not None:
            if marker.overrides is None:
                exchange.pass_by()
                return self._dispatch(*args)
            options = marker.applied_to(options)
        answer = exchange.claim(self._protection.engine, options)
        return self._dispatch(*args) if answer is None else answer

    def _marker(self) -> Marker | None:
        """The view's own, else its innermost blueprint's."""
        assert request.url_rule is not None
        marker = marker_of(self._app.view_functions[request.url_rule.endpoint])
        for name in request.blueprints:
            marker = marker or marker_of(self._app.blueprints[name])
        return marker


def _teardown(error: BaseException | None) -> None:
    exchange: Exchange | None = request.environ.get(EXCHANGE)
    if exchange is not None:
        exchange.teardown(error)
