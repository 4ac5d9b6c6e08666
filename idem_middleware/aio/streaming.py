"""A streamed body that is recorded before its end is seen, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.capture import DRAIN_SECONDS, Capture
from idem_middleware.settling import Settled

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


async def settle_capture(lease: AsyncLease, capture: Capture, *, from_view: bool = True) -> Settled:
    """As the blocking one."""
    response = capture.outcome(lease._options, from_view=from_view)  # noqa: SLF001 - what the whole engine goes by
    capture.forget()
    if response is None:
        return await lease.omit(capture.location)
    return await lease.settle(response, from_view=from_view)


async def _drain(pieces: AsyncIterator[bytes], capture: Capture, lease: AsyncLease) -> None:
    limit = asyncio.timeout(DRAIN_SECONDS)
    try:
        async with limit:
            while capture.keeps_body and (piece := await anext(pieces, None)) is not None:
                capture.passing(piece)
    except Exception:  # noqa: BLE001 - there is nobody left to tell
        if not limit.expired():
            await lease.settle_exception()
            return
        capture.give_up()
    await settle_capture(lease, capture)
