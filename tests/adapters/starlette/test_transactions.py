"""Handlers write other items with their claim, and keep Starlette's own answers in the same transaction."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from idem_middleware import TransactionRefused
from idem_middleware.testing import ManualClock
from idem_middleware.transactions import Put
from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World
from tests.core.support.stores import LedgerStore

pytestmark = pytest.mark.anyio

ORDER = Put("orders", {"id": "o-1"}, condition="attribute_not_exists(id)")


@pytest.fixture
def world() -> World:
    """One process whose store has tables beside its records."""
    return World(LedgerStore(clock=ManualClock(margin_seconds=2.0)))


def serving(world: World, handler: object) -> Starlette:
    """An application with that handler."""
    return Starlette(
        routes=[Route("/", handler, methods=["POST"])],  # type: ignore[arg-type]
        middleware=[Middleware(IdempotencyMiddleware, engine=world.engine)],
    )


async def test_an_answer_of_starlettes_is_kept_with_the_items(world: World) -> None:
    """And given again as it was."""

    async def order(request: Request) -> Response:
        answer = JSONResponse({"order": "o-1"}, 201, {"Location": "/orders/o-1"})
        await request.state.idempotency.complete_with([ORDER], answer)
        return answer

    app = serving(world, order)
    first, replay = [await Connection(app).run() for _ in range(2)]
    assert (first.status, first.body) == (replay.status, replay.body) == (201, b'{"order":"o-1"}')
    assert ("location", "/orders/o-1") in replay.headers
    assert replay.is_replay
    assert world.calls == ["create", "transact", "create"]


async def test_a_refused_transaction_is_the_handlers_to_answer(world: World) -> None:
    """Its answer is kept like any other."""

    async def order(request: Request) -> Response:
        try:
            await request.state.idempotency.transact([ORDER])
        except TransactionRefused as refused:
            return JSONResponse({"index": refused.index}, 409)
        return JSONResponse({}, 201)

    app = serving(world, order)
    assert [(await Connection(app, key=key).run()).status for key in ("a", "b", "b")] == [201, 409, 409]


async def test_a_stream_is_no_answer_to_keep_in_a_transaction(world: World) -> None:
    """Nothing is written, and the attempt has failed."""

    async def order(request: Request) -> Response:
        await request.state.idempotency.complete_with([ORDER], StreamingResponse(iter([b"x"])))
        raise AssertionError

    with pytest.raises(TypeError, match="must be whole, not a StreamingResponse"):
        await Connection(serving(world, order)).run()
    assert world.kinds == ["claimed", "failed"]


async def test_a_blocking_handler_transacts_on_its_thread(world: World) -> None:
    """By the blocking side of its lease."""

    def order(request: Request) -> Response:
        answer = Response(b"done", 201)
        request.state.idempotency.blocking.complete_with([ORDER], answer)
        return answer

    app = serving(world, order)
    first, replay = [await Connection(app).run() for _ in range(2)]
    assert (first.status, first.body) == (replay.status, replay.body) == (201, b"done")
    assert replay.is_replay
