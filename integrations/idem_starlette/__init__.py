"""Idempotency for Starlette, FastAPI and every other ASGI application."""

try:
    import starlette as _starlette  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("idem_starlette needs Starlette: pip install 'idem-middleware[starlette]'") from error

from idem_starlette.middleware import IdempotencyMiddleware

__all__ = ["IdempotencyMiddleware"]
