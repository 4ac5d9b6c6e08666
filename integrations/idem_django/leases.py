"""One lease, seen by code that may block and by code on an event loop: Django mixes both in one request."""

from __future__ import annotations

from idem_middleware.aio.engine import AsyncEngine
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.lease import Lease

__all__ = ["as_async", "as_blocking"]


def as_blocking(lease: Lease | AsyncLease) -> Lease:
    """The lease for a thread."""
    return lease.blocking if isinstance(lease, AsyncLease) else lease


def as_async(lease: Lease | AsyncLease, engine: AsyncEngine) -> AsyncLease:
    """The lease for an event loop."""
    if isinstance(lease, AsyncLease):
        return lease
    return engine.lease_of(lease)
