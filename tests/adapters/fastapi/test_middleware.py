"""The middleware around a FastAPI application."""

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio


class Charge(BaseModel):
    """What is to be paid."""

    amount: int


def application(world: World, **settings: Any) -> FastAPI:
    """An application with one endpoint, that counts."""
    app = FastAPI(**settings)
    app.add_middleware(IdempotencyMiddleware, engine=world.engine)
    runs: list[int] = []

    @app.post("/")
    async def pay(charge: Charge) -> int:
        runs.append(charge.amount)
        if charge.amount == 0:
            raise HTTPException(422, "nothing to pay")
        return len(runs)

    return app


def charge(amount: str) -> dict[str, Any]:
    """A request's body."""
    return {"headers": [("content-type", "application/json")], "pieces": [b'{"amount": %s}' % amount.encode()]}


async def test_an_endpoint_runs_once(world: World) -> None:
    """As everywhere."""
    app = application(world)
    assert [(await Connection(app, **charge("5")).run()).body for _ in range(2)] == [b"1", b"1"]


async def test_a_failed_validation_leaves_the_key_free(world: World) -> None:
    """The endpoint did not run; the client mends its request, and sends it under the same key."""
    app = application(world)
    wrong = [await Connection(app, **charge('"much"')).run() for _ in range(2)]

    assert [(sent.status, sent.is_replay) for sent in wrong] == [(422, False)] * 2
    assert (await Connection(app, **charge("5")).run()).body == b"1"


async def test_a_failed_validation_leaves_the_key_free_whatever_answer_it_gets(world: World) -> None:
    """Many teams make a 400 of it."""
    app = application(world)

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": "wrong"}, 400)

    assert (await Connection(app, **charge('"much"')).run()).status == 400
    assert (await Connection(app, **charge("5")).run()).body == b"1"


async def test_a_422_of_the_endpoint_is_its_answer(world: World) -> None:
    """It ran, and has something against the request."""
    app = application(world)
    await Connection(app, **charge("0")).run()

    assert (await Connection(app, **charge("0")).run()).is_replay


async def test_an_unknown_path_of_an_included_router_leaves_the_key_free(world: World) -> None:
    """Nor does one of a mounted application claim it."""
    outer = FastAPI()
    outer.add_middleware(IdempotencyMiddleware, engine=world.engine)
    outer.mount("/sub", FastAPI())
    for path in ("/unknown", "/sub/unknown"):
        assert (await Connection(outer, path=path, key=path[1:]).run()).status == 404
        assert world.kinds[-1] == "released"


async def test_a_dependency_that_refuses_is_asked_again(world: World) -> None:
    """401 and 403 are of the moment.

    Source: margince/margince#5315.
    """
    app = FastAPI()
    app.add_middleware(IdempotencyMiddleware, engine=world.engine, caller="shared")

    def user(x_user: Annotated[str, Header()]) -> str:
        if x_user != "ann":
            raise HTTPException(403)
        return x_user

    @app.post("/")
    async def pay(name: Annotated[str, Depends(user)]) -> str:
        return name

    assert (await Connection(app, headers=[("x-user", "bob")]).run()).status == 403
    assert (await Connection(app, headers=[("x-user", "ann")]).run()).status == 200
