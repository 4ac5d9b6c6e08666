"""Idempotency for Flask."""

try:
    import flask as _flask  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("idem_flask needs Flask: pip install 'idem-middleware[flask]'") from error

from idem_flask.decorators import idempotent, not_idempotent
from idem_flask.extension import Idempotency

__all__ = ["Idempotency", "idempotent", "not_idempotent"]
