"""What was captured of a streamed answer, settled on an event loop."""

from __future__ import annotations

import asyncio

import pytest

from idem_middleware import AsyncLease, Engine, MemoryStore, Options, Request
from idem_middleware.aio.streaming import settle_capture
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted
from idem_middleware.outcomes import Refused, Replayed

LIMIT = 100


def fate(capture: Capture, *, from_view: bool = True) -> str:
    """What a retry gets of an answer of which so much was captured."""
    engine = Engine(MemoryStore(), Options(caller="shared", max_response_bytes=LIMIT)).asynchronous
    request = Request(method="POST", path="/", headers=(("idempotency-key", "k"),))
    admitted = engine.admit_request(request)
    assert isinstance(admitted, Admitted)

    async def settle() -> str:
        lease = await engine.acquire(request, admitted)
        assert isinstance(lease, AsyncLease)
        await settle_capture(lease, capture, from_view=from_view)
        match await engine.acquire(request, admitted):
            case Replayed(response):
                return response.body.decode()
            case Refused(problem, _):
                return f"{problem.type.slug} {problem.location}"
            case _:
                return "runs again"

    return asyncio.run(settle())


def captured(size: int = 1, status: int = 201) -> Capture:
    """An answer of so many pieces."""
    capture = Capture(status, (("location", "/orders/1"),), LIMIT)
    for _ in range(size):
        capture.passing(b"0123456789")
    return capture


def test_what_was_captured_whole_is_replayed() -> None:
    """All its pieces, as one."""
    assert fate(captured(2)) == "01234567890123456789"


def test_of_what_was_too_large_a_retry_learns_where_it_is() -> None:
    """The work is done, and neither run again nor answered by a torn piece."""
    assert fate(captured(11)) == "response-not-stored /orders/1"


def test_what_was_given_up_is_done_all_the_same() -> None:
    """The client left, and nobody knows the rest."""
    capture = captured(1)
    capture.give_up()
    assert fate(capture) == "response-not-stored /orders/1"


@pytest.mark.parametrize(("status", "from_view"), [(503, True), (401, False)])
def test_a_failure_and_an_answer_from_before_the_view_run_again(status: int, *, from_view: bool) -> None:
    """As those that are not streamed do."""
    assert fate(captured(1, status), from_view=from_view) == "runs again"
