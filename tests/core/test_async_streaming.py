"""A streamed answer whose client leaves in the middle, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from idem_middleware import AsyncLease, Engine, MemoryStore, Options, Request
from idem_middleware.aio import streaming
from idem_middleware.aio.streaming import recorded_stream
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted
from idem_middleware.outcomes import Refused, Replayed


async def whole() -> AsyncIterator[bytes]:
    """Ends by itself."""
    yield b"first, "
    yield b"last"


async def stuck() -> AsyncIterator[bytes]:
    """Never ends."""
    yield b"first, "
    await asyncio.Event().wait()


async def slow() -> AsyncIterator[bytes]:
    """Has a time-out of its own."""
    yield b"first, "
    raise TimeoutError


async def large() -> AsyncIterator[bytes]:
    """More than is kept."""
    while True:
        yield b"first, "


def fate(pieces: Callable[[], AsyncIterator[bytes]]) -> str:
    """What a retry gets of an answer that was left after its first piece."""
    engine = Engine(MemoryStore(), Options(caller="shared")).asynchronous
    request = Request(method="POST", path="/", headers=(("idempotency-key", "k"),))
    admitted = engine.admit_request(request)
    assert isinstance(admitted, Admitted)

    async def leave() -> str:
        lease = await engine.acquire(request, admitted)
        assert isinstance(lease, AsyncLease)
        stream = recorded_stream(pieces(), Capture(201, (), 100), lease)
        assert await anext(stream) == b"first, "
        await stream.aclose()  # type: ignore[attr-defined]
        match await engine.acquire(request, admitted):
            case Replayed(response):
                return response.body.decode()
            case Refused(problem, _):
                return problem.type.slug
            case _:
                return "runs again"

    return asyncio.run(leave())


@pytest.mark.parametrize(
    ("pieces", "expected"), [(whole, "first, last"), (large, "response-not-stored"), (slow, "runs again")]
)
def test_the_rest_is_produced_and_recorded(pieces: Callable[[], AsyncIterator[bytes]], expected: str) -> None:
    """Neither a second run of what was done nor a torn replay; a failure stays one."""
    assert fate(pieces) == expected


def test_a_rest_that_does_not_come_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done as far as anybody knows, and its answer is not kept."""
    monkeypatch.setattr(streaming, "DRAIN_SECONDS", 0.001)

    assert fate(stuck) == "response-not-stored"
