"""What a protected route says of itself in OpenAPI."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel

from idem_starlette.fastapi import Idempotency
from tests.adapters.support.worlds import World

OURS = {"400", "409", "422", "503"}


class Charge(BaseModel):
    """What is to be paid."""

    amount: int


def described(world: World, *, nested: bool = False, options: Any = None, **settings: Any) -> dict[str, Any]:
    """The whole document of an application with one route."""
    router = APIRouter(route_class=Idempotency(engine=world.engine, **(options or {})).route_class)

    async def pay(charge: Charge) -> None:
        """Pay."""

    router.post("/pay", **settings)(pay)
    app = FastAPI()
    if nested:
        middle = APIRouter()
        middle.include_router(router, prefix="/v1")
        app.include_router(middle)
    else:
        app.include_router(router)
    document: dict[str, Any] = app.openapi()
    return document


def operation(document: dict[str, Any]) -> dict[str, Any]:
    """The one that is protected."""
    (methods,) = document["paths"].values()
    found: dict[str, Any] = methods["post"]
    return found


@pytest.mark.parametrize("nested", [False, True])
def test_the_header_and_the_refusals_are_described(world: World, *, nested: bool) -> None:
    """Each once, however deep the router is included."""
    described_ = operation(described(world, nested=nested))

    (parameter,) = described_["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("Idempotency-Key", "header", True)
    assert set(described_["responses"]) >= OURS
    for status in OURS:
        assert "application/problem+json" in described_["responses"][status]["content"]
        assert described_["responses"][status]["description"]
    assert "in-progress" in described_["responses"]["409"]["description"]


def test_the_answer_to_a_failed_validation_stays_beside_ours(world: World) -> None:
    """With its schema."""
    document = described(world)
    content = operation(document)["responses"]["422"]["content"]

    assert set(content) == {"application/json", "application/problem+json"}
    assert content["application/json"]["schema"]["$ref"].endswith("/HTTPValidationError")
    assert "HTTPValidationError" in document["components"]["schemas"]


def test_what_the_author_wrote_wins(world: World) -> None:
    """His descriptions, schemas and parameters; ours are added."""
    own_parameter = {"name": "idempotency-key", "in": "header", "description": "My own words."}
    described_ = operation(
        described(
            world,
            responses={409: {"description": "Sold out", "model": Charge}},
            openapi_extra={
                "parameters": [own_parameter],
                "responses": {"503": {"description": "Closed for lunch"}},
                "x-mine": True,
            },
        )
    )
    assert described_["parameters"] == [own_parameter]
    assert described_["responses"]["409"]["description"] == "Sold out"
    assert set(described_["responses"]["409"]["content"]) == {"application/json", "application/problem+json"}
    assert described_["responses"]["503"]["description"] == "Closed for lunch"
    assert described_["x-mine"] is True


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"require_key": False}, [("Idempotency-Key", False)]),
        ({"header": "X-Request-Key"}, [("X-Request-Key", True)]),
        ({"key": "detail.orderId"}, []),
    ],
)
def test_the_header_is_described_as_the_options_have_it(world: World, options: Any, expected: Any) -> None:
    """Optional, by another name, or not at all where the key is in the body."""
    parameters = operation(described(world, options=options)).get("parameters", [])

    assert [(parameter["name"], parameter["required"]) for parameter in parameters] == expected


def test_an_uncovered_route_is_described_as_without_us(world: World) -> None:
    """A GET has no key."""
    router = APIRouter(route_class=Idempotency(engine=world.engine).route_class)

    @router.get("/")
    async def look() -> int:
        return 1

    app = FastAPI()
    app.include_router(router)
    methods = app.openapi()["paths"]["/"]["get"]

    assert "parameters" not in methods
    assert set(methods["responses"]) == {"200"}
