"""Endpoints of a route class keep FastAPI's answers in the transaction of their items."""

from __future__ import annotations

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from idem_middleware.testing import ManualClock
from idem_middleware.transactions import Put
from idem_starlette.fastapi import Idempotency
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World
from tests.core.support.stores import LedgerStore

pytestmark = pytest.mark.anyio


async def test_an_answer_of_fastapis_is_kept_with_the_items() -> None:
    """And given again as it was."""
    world = World(LedgerStore(clock=ManualClock(margin_seconds=2.0)))
    router = APIRouter(route_class=Idempotency(engine=world.engine).route_class)

    @router.post("/")
    async def order(request: Request) -> Response:
        answer = JSONResponse({"order": "o-1"}, 201)
        items = [Put("orders", {"id": "o-1"}, condition="attribute_not_exists(id)")]
        await request.state.idempotency.complete_with(items, answer)
        return answer

    app = FastAPI()
    app.include_router(router)
    first, replay = [await Connection(app).run() for _ in range(2)]
    assert (first.status, first.body) == (replay.status, replay.body) == (201, b'{"order":"o-1"}')
    assert replay.is_replay
    assert world.calls == ["create", "transact", "create"]
