"""Idempotency for every application that speaks WSGI (PEP 3333)."""

from idem_middleware.wsgi.middleware import IdempotencyMiddleware

__all__ = ["IdempotencyMiddleware"]
