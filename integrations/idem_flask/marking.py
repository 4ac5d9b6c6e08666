"""What is written on a view or a blueprint about its protection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from idem_middleware.options import Options

__all__ = ["Marker", "mark", "marker_of"]

_ATTRIBUTE = "__idempotency__"


@dataclass(frozen=True)
class Marker:
    """`overrides` is None for what is not protected. `claims_itself`: a decorator does it where it is written."""

    overrides: Mapping[str, Any] | None
    claims_itself: bool = False
    _applied: dict[int, tuple[Options, Options]] = field(default_factory=dict, repr=False, compare=False)

    def applied_to(self, options: Options) -> Options:
        """An application's options with these on top. What is marked is meant, whatever `paths` say."""
        known = self._applied.get(id(options))
        if known is None or known[0] is not options:
            merged = options.merge({"paths": (), "exempt_paths": (), **(self.overrides or {})})
            known = self._applied[id(options)] = (options, merged)
        return known[1]


def mark(thing: Any, marker: Marker) -> None:
    """Write it on a view or a blueprint; `functools.wraps` carries it outwards."""
    setattr(thing, _ATTRIBUTE, marker)


def marker_of(thing: Any) -> Marker | None:
    """What is written on a view, on the class that it was made of, or on a blueprint."""
    marker = getattr(thing, _ATTRIBUTE, None) or getattr(getattr(thing, "view_class", None), _ATTRIBUTE, None)
    return marker if isinstance(marker, Marker) else None
