"""Idempotency for Django and Django REST framework.

Settings may name `"idem_django.IdempotencyMiddleware"`; views import the decorators from here. Nothing here needs
configured settings to be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import django as _django  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("idem_django needs Django: pip install 'idem-middleware[django]'") from error

if TYPE_CHECKING:
    from idem_django.decorators import idempotent, not_idempotent
    from idem_django.middleware import IdempotencyMiddleware

__all__ = ["IdempotencyMiddleware", "idempotent", "not_idempotent"]

_HOMES = {
    "IdempotencyMiddleware": "middleware",
    "idempotent": "decorators",
    "not_idempotent": "decorators",
}


def __getattr__(name: str) -> object:
    """Import on first use: Django imports this package while it still reads its settings."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - needed by nobody who has all names

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
