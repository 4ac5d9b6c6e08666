"""Per-view options in Flask's own idiom."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from flask import Blueprint, current_app, g, request
from flask.views import View

from idem_middleware.options import Options
from idem_flask.exchange import EXCHANGE, Exchange
from idem_flask.marking import Marker, mark

__all__ = ["idempotent", "not_idempotent"]

V = TypeVar("V", bound=Callable[..., Any])
T = TypeVar("T", bound=Callable[..., Any] | Blueprint)


@overload
def idempotent(view: T, /) -> T: ...
@overload
def idempotent(view: T, /, **options: Any) -> T: ...
@overload
def idempotent(**options: Any) -> Callable[[T], T]: ...
def idempotent(view: Any = None, /, **options: Any) -> Any:
    """Protect a view here, inside of the decorators above it: `@idempotent` or `@idempotent(retention_seconds=3600)`.

    So a `login_required` above it is asked before any replay. On a class-based view it stands in `decorators`, on a
    blueprint it is `idempotent(blueprint, …)`; a blueprint's views claim where the application's do.

    Raises:
        ConfigurationError: wrong or unknown options, when it is applied.
    """
    if view is None:
        return lambda decorated: idempotent(decorated, **options)
    Options().merge(options)
    if isinstance(view, Blueprint) or (isinstance(view, type) and issubclass(view, View)):
        mark(view, Marker(options))
        return view
    marker = Marker(options, claims_itself=True)

    @functools.wraps(view)
    def protected(*args: Any, **values: Any) -> Any:
        protection = current_app.extensions.get("idempotency")
        if protection is None:
            raise RuntimeError(
                f"{view.__qualname__} is marked idempotent, and this application has no Idempotency extension: "
                "add Idempotency(app, store=…)"
            )
        exchange: Exchange | None = request.environ.get(EXCHANGE)
        if exchange is not None:
            answer = exchange.claim(protection.engine, marker.applied_to(protection.options))
            if answer is not None:
                return answer
        else:
            g.idempotency = None
        return current_app.ensure_sync(view)(*args, **values)

    mark(protected, marker)
    return protected


def not_idempotent(view: T) -> T:
    """Leave a view or a blueprint unprotected: nothing is read, compared or stored."""
    marker = Marker(None)
    if isinstance(view, Blueprint) or isinstance(view, type):
        mark(view, marker)
        return view

    @functools.wraps(view)
    def unprotected(*args: Any, **values: Any) -> Any:
        return current_app.ensure_sync(view)(*args, **values)

    mark(unprotected, marker)
    return unprotected  # type: ignore[return-value]
