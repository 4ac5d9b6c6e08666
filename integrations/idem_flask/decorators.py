"""Per-view options in Flask's own idiom."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar, overload

from flask import Blueprint, Response, current_app, request
from flask.views import View

from idem_flask.exchange import EXCHANGE, NAME, Exchange
from idem_flask.marking import NOT_PROTECTED, Marker, checked, mark

__all__ = ["idempotent", "not_idempotent"]

T = TypeVar("T", bound=Callable[..., Any] | Blueprint)

logger = logging.getLogger("idem_middleware")


@overload
def idempotent(view: T, /) -> T: ...
@overload
def idempotent(view: T, /, **options: Any) -> T: ...
@overload
def idempotent(**options: Any) -> Callable[[T], T]: ...
def idempotent(view: Any = None, /, **options: Any) -> Any:
    """Protect a view here, inside of the decorators above it: `@idempotent` or `@idempotent(retention_seconds=3600)`.

    So a `login_required` above it is asked before any replay. On a class-based view it stands in `decorators`, on the
    class or on a method; on a blueprint it is `idempotent(blueprint, …)`. A blueprint's and a class's views claim where
    the application's do.

    Raises:
        ConfigurationError: wrong or unknown options, when it is applied.
    """
    if view is None:
        return lambda decorated: idempotent(decorated, **options)
    # On the view itself, too: written above `app.route`, only that one is called.
    mark(view, Marker(checked(options)))
    if isinstance(view, Blueprint) or (isinstance(view, type) and issubclass(view, View)):
        return view
    marker = Marker(options, claims_itself=True)
    if inspect.iscoroutinefunction(view):  # decorators above it may have to await it

        @functools.wraps(view)
        async def protected_coroutine(*args: Any, **values: Any) -> Any:
            answer = _claim(marker, view)
            return await view(*args, **values) if answer is None else answer

        mark(protected_coroutine, marker)
        return protected_coroutine

    @functools.wraps(view)
    def protected(*args: Any, **values: Any) -> Any:
        answer = _claim(marker, view)
        return current_app.ensure_sync(view)(*args, **values) if answer is None else answer

    mark(protected, marker)
    return protected


def not_idempotent(view: T) -> T:
    """Leave a view or a blueprint unprotected: nothing is read, compared or stored."""
    mark(view, NOT_PROTECTED)
    return view


def _claim(marker: Marker, view: Callable[..., Any]) -> Response | None:
    name = getattr(view, "__qualname__", repr(view))
    if NAME not in current_app.extensions:
        raise RuntimeError(
            f"{name} is marked idempotent, and this application has no Idempotency extension: "
            "add Idempotency(app, store=…)"
        )
    exchange: Exchange | None = request.environ.get(EXCHANGE)
    if exchange is None:
        return None
    if exchange.decided and marker.overrides:
        _warn_of_lost_options(name)
    return exchange.claim(marker)


@functools.cache
def _warn_of_lost_options(name: str) -> None:
    logger.warning(
        "idempotency: the options of %s have no effect, its request was decided on further out: by another protected "
        "view that calls it, or because a decorator above it hides it (it lacks functools.wraps)",
        name,
    )
