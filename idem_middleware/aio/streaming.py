"""A streamed body that is recorded before its end is seen, on an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from time import monotonic

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.capture import DRAIN_SECONDS, Capture

__all__ = ["recorded_stream", "settle_capture"]


async def recorded_stream(pieces: AsyncIterable[bytes], capture: Capture, lease: AsyncLease) -> AsyncIterator[bytes]:
    """The pieces of one answer; see `RecordedStream`. Closing it early is how a server says that the client left."""
    iterator = pieces.__aiter__()
    try:
        async for piece in iterator:
            visible = capture.passing(piece)
            if visible or not piece:
                yield visible
    except GeneratorExit:
        await _drain(iterator, capture, lease)
        raise
    except Exception:
        await lease.settle_exception()
        raise
    except BaseException:  # cancelled
        lease.abandon()
        raise
    await settle_capture(lease, capture)
    last = capture.held_back()
    if last:
        yield last


async def settle_capture(lease: AsyncLease, capture: Capture) -> None:
    """As the blocking one."""
    response = capture.response()
    capture.forget()
    if response is not None:
        await lease.settle(response)
    elif capture.head.status >= 500:
        await lease.settle(capture.head)
    else:
        await lease.omit(capture.location)


async def _drain(pieces: AsyncIterator[bytes], capture: Capture, lease: AsyncLease) -> None:
    give_up_at = monotonic() + DRAIN_SECONDS
    try:
        while capture.keeps_body and monotonic() < give_up_at:
            piece = await anext(pieces, None)
            if piece is None:
                await settle_capture(lease, capture)
                return
            capture.passing(piece)
    except Exception:
        await lease.settle_exception()
        return
    await lease.omit(capture.location)
