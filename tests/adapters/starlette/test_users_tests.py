"""`assert_idempotent` with Starlette's client."""

from __future__ import annotations

import itertools
import warnings

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from idem_middleware.testing import assert_idempotent
from idem_starlette import IdempotencyMiddleware


def test_a_users_application_is_tested() -> None:
    """Twice and at once."""
    numbers = itertools.count(1)

    async def order(request: Request) -> JSONResponse:
        return JSONResponse({"id": next(numbers), **await request.json()}, 201)

    app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, store="memory://", caller="shared")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a newer Starlette prefers another client than the one that we test with
        from starlette.testclient import TestClient  # noqa: PLC0415

    sent = assert_idempotent(TestClient(app), {"path": "/orders", "json": {"amount": 12}})
    assert sent.replay.body == b'{"id":1,"amount":12}'
    assert next(numbers) == 3
