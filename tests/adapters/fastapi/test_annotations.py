"""Endpoints whose annotations are strings, as `from __future__ import annotations` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Request
from pydantic import BaseModel

from idem_starlette.fastapi import Idempotency
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers

pytestmark = pytest.mark.anyio


class Charge(BaseModel):
    """What is to be paid; FastAPI has to find this class by its name."""

    amount: int


def user(x_user: Annotated[str, Header()]) -> str:
    """Who pays."""
    return x_user


async def pay(charge: Charge, name: Annotated[str, Depends(user)], request: Request, *, dry: bool = False) -> Charge:
    """Pay, in a coroutine."""
    assert (name, dry, request.method) == ("ann", True, "POST")
    return charge


def pay_on_a_thread(charge: Charge, name: Annotated[str, Depends(user)], *, dry: bool = False) -> Charge:
    """Pay, in a function."""
    assert (name, dry) == ("ann", True)
    return charge


@pytest.mark.parametrize("endpoint", [pay, pay_on_a_thread])
async def test_annotations_are_resolved_where_the_endpoint_stands(world: World, endpoint: Any) -> None:
    """Body, header, query and answer get their types from there."""
    router = APIRouter(route_class=Idempotency(engine=world.engine).route_class)
    router.post("/")(endpoint)
    app = FastAPI()
    app.include_router(router)
    headers = [("content-type", "application/json"), ("x-user", "ann")]

    async def send(content: bytes, key: str = "k") -> Connection:
        return await Connection(app, query=b"dry=true", headers=headers, pieces=[content], key=key).run()

    first, replay, wrong = await send(b'{"amount": 5}'), await send(b'{"amount": 5}'), await send(b"[]", "other")

    assert (first.status, first.body) == (200, b'{"amount":5}')
    assert (replay.body, replay.is_replay) == (first.body, True)
    assert wrong.status == 422
    operation = app.openapi()["paths"]["/"]["post"]
    assert {p["name"] for p in operation["parameters"]} == {"dry", "x-user", "Idempotency-Key"}
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Charge")


def test_a_name_that_only_type_checkers_know_is_fastapis_to_complain_about(world: World) -> None:
    """Just as it does without us."""

    async def unknown(amount: OnlyForTypeCheckers) -> None: ...

    def outcome(router: APIRouter) -> str:
        try:
            router.post("/")(unknown)
        except Exception as error:  # noqa: BLE001 - whatever this FastAPI raises
            return type(error).__name__
        return "no complaint"

    ours = APIRouter(route_class=Idempotency(engine=world.engine).route_class)
    assert outcome(ours) == outcome(APIRouter())
