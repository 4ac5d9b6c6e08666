"""What is written on a view or a blueprint about its protection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from idem_middleware.options import Options

__all__ = ["NOT_PROTECTED", "Marker", "checked", "mark", "marker_of"]

_ATTRIBUTE = "__idempotency__"

# A view's options alone must not fail for what the application's own make right, such as a shorter lease.
_LENIENT = Options(lease_seconds=1.0, max_execution_seconds=10 * 365 * 86400.0, tombstone_seconds=1.0)


@dataclass(frozen=True, eq=False)
class Marker:
    """`overrides` is None for what is not protected. `claims_itself`: a decorator does it where it is written."""

    overrides: Mapping[str, Any] | None
    claims_itself: bool = False


NOT_PROTECTED = Marker(None)


def checked(overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a view.

    Raises:
        ConfigurationError: unknown names and wrong values, all at once.
    """
    _LENIENT.merge(overrides)
    return overrides


def mark(thing: Any, marker: Marker) -> None:
    """Write it on a view or a blueprint; `functools.wraps` carries it outwards."""
    setattr(getattr(thing, "__func__", thing), _ATTRIBUTE, marker)


def marker_of(thing: Any, method: str | None = None) -> Marker | None:
    """What is written on a blueprint or a view, or on the method or class that the view is made of."""
    found = getattr(thing, _ATTRIBUTE, None)
    view_class = getattr(thing, "view_class", None)
    if found is None and view_class is not None and method is not None:
        found = marker_of(getattr(view_class, method.lower(), None)) or marker_of(view_class)
    return found if isinstance(found, Marker) else None
