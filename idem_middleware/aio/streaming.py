"""A streamed body that is recorded before its end is seen, on an event loop."""

from __future__ import annotations

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.capture import Capture
from idem_middleware.settling import Settled

__all__ = ["settle_capture"]


async def settle_capture(lease: AsyncLease, capture: Capture, *, from_view: bool = True) -> Settled:
    """As the blocking one."""
    response = capture.outcome(lease._options, from_view=from_view)  # noqa: SLF001 - what the whole engine goes by
    capture.forget()
    if response is None:
        return await lease.omit(capture.location)
    return await lease.settle(response, from_view=from_view)
