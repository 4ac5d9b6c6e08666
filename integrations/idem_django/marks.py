"""What decorators leave on views, and how the middleware finds it again, however the view is wrapped."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from idem_middleware.options import Options

__all__ = [
    "ATTRIBUTE",
    "DEFAULT_ATTRIBUTE",
    "EXEMPT",
    "PLAIN",
    "Mark",
    "View",
    "checked_mark",
    "handler_mark",
    "mark_of",
]

View = Callable[..., Any]

ATTRIBUTE = "__idempotency__"
DEFAULT_ATTRIBUTE = "__idempotency_default__"
"""Where a list of routes marks its views: what is written nearer to a view wins."""

_DEPTH = 4  # wrappers without functools.wraps on top of each other; more than anybody was seen to write

# Overrides alone must not fail for what the settings may make right: a lease longer than the default's maximum.
_LENIENT = Options(lease_seconds=1.0, max_execution_seconds=10 * 365 * 86400.0, tombstone_seconds=1.0)


@dataclass(frozen=True, eq=False, slots=True)
class Mark:
    """One use of a decorator. Its identity says which wrapper has to claim."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    exempt: bool = False


PLAIN = Mark()
EXEMPT = Mark(exempt=True)


def checked_mark(overrides: Mapping[str, Any]) -> Mark:
    """A mark with these options.

    Raises:
        ConfigurationError: unknown names and wrong values, all at once.
    """
    if not overrides:
        return PLAIN
    Options.from_mapping(overrides, base=_LENIENT)
    return Mark(dict(overrides))


def mark_of(view: View, method: str) -> Mark | None:
    """The mark that decides for this view and method.

    A wrapper around the whole view comes first, then its method's or action's own mark, then its class's, then that of
    the routes that it stands among.
    """
    return _own_mark(view, method) or _mark_on(view, DEFAULT_ATTRIBUTE)


def _own_mark(view: View, method: str) -> Mark | None:
    cls = getattr(view, "cls", None) or getattr(view, "view_class", None)
    if cls is None:
        return _mark_on(view) or _hidden_mark(view, _DEPTH)
    on_class = _mark_on(getattr(cls, "dispatch", None)) or _mark_on(cls)
    on_view = _mark_on(view)
    if on_view is not None and on_view is not on_class:
        return on_view
    return handler_mark(view, cls, method) or on_class


def handler_mark(view: View, cls: type, method: str) -> Mark | None:
    """The mark on the method or action of this class that handles a request of the view."""
    name = (getattr(view, "actions", None) or {}).get(method.lower(), method.lower())
    handler = getattr(cls, name, None)
    return _mark_on(handler) or _hidden_mark(handler, _DEPTH)


def _mark_on(target: object, attribute: str = ATTRIBUTE) -> Mark | None:
    mark = getattr(target, attribute, None)
    return mark if isinstance(mark, Mark) else None


def _hidden_mark(function: object, depth: int) -> Mark | None:
    """The mark below a wrapper that doesn't say what it wraps, such as REST framework's `api_view`."""
    if isinstance(function, functools.partial):
        return _mark_on(function.func) or _hidden_mark(function.func, depth)
    if depth == 0 or not inspect.isfunction(function):
        return None
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if inspect.isfunction(inner) or isinstance(inner, functools.partial):
            mark = _mark_on(inner) or _hidden_mark(inner, depth - 1)
            if mark is not None:
                return mark
    return None
