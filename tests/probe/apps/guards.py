"""The decorators that Django and Flask views are protected with, or their stand-ins of a bare probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from tests.probe.routes import OWN_OPTIONS

View: TypeAlias = Callable[..., Any]


class Guard(Protocol):
    """What the packages `idem_django` and `idem_flask` both offer."""

    def idempotent(self, **options: Any) -> Callable[[View], View]:
        """Protect a view, with options of its own, where the decorator is written."""
        ...

    def not_idempotent(self, view: View, /) -> View:
        """Leave a view alone."""
        ...


class NoGuard:
    """Decorators that do nothing."""

    def idempotent(self, **options: Any) -> Callable[[View], View]:
        """Give a decorator that leaves the view as it is."""
        return lambda view: view

    def not_idempotent(self, view: View, /) -> View:
        """Leave the view as it is."""
        return view


def guarded_views(make_view: Callable[[], View], guard: Guard) -> dict[str, View]:
    """Give the views of the routes that differ in their protection, by route.

    `make_view` makes a new view each time: a decorator may leave its mark on the function that it gets.
    """
    protected = {route: guard.idempotent(**options)(make_view()) for route, options in OWN_OPTIONS.items()}
    return {"exempt": guard.not_idempotent(make_view()), **protected}
