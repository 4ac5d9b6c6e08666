"""Anything that can be sent, to FastAPI, by the middleware and by the route class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from hypothesis import given, settings

from idem_starlette import IdempotencyMiddleware
from idem_starlette.fastapi import Idempotency
from tests.fuzz.wire import CATALOGUE, EXAMPLES, PROTECTIONS, Wild, check, over_asgi, wild_requests

SHARED: dict[str, Any] = {"store": "memory://", "caller": "shared"}


def send_twice(options: Mapping[str, Any], by_route: bool, request: Wild) -> None:  # noqa: FBT001
    """One application, and one request that it gets two times."""
    runs: list[str] = []
    protection = {**SHARED, **options}
    router = APIRouter(route_class=Idempotency(**protection).route_class) if by_route else APIRouter()

    @router.post("/run/{name}", status_code=201)
    async def view(name: str) -> dict[str, int]:
        runs.append(name)
        return {"run": len(runs)}

    app = FastAPI()
    app.include_router(router)
    if not by_route:
        app.add_middleware(IdempotencyMiddleware, **protection)
    check(partial(over_asgi, app), runs, request)


@pytest.mark.parametrize("by_route", [False, True], ids=["middleware", "route-class"])
@pytest.mark.parametrize("options", PROTECTIONS.values(), ids=PROTECTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(request=wild_requests())
def test_any_request_runs_once_or_is_refused(options: Mapping[str, Any], by_route: bool, request: Wild) -> None:  # noqa: FBT001
    """Twice the same bytes: a run and its replay, or two refusals."""
    send_twice(options, by_route, request)


@pytest.mark.parametrize("protection", ["header", "body"])
@pytest.mark.parametrize("by_route", [False, True], ids=["middleware", "route-class"])
def test_no_catalogued_request_is_our_failure(protection: str, by_route: bool) -> None:  # noqa: FBT001
    """Each nasty body, key, media type, path, query and header that is known: a 4xx at most, which says what to do."""
    for request in CATALOGUE:
        send_twice(PROTECTIONS[protection], by_route, request)


@pytest.mark.parametrize("by_route", [False, True], ids=["middleware", "route-class"])
def test_an_endpoint_that_refuses_by_fastapis_own_exception_ran(by_route: bool) -> None:  # noqa: FBT001
    """Only a validation that came before the endpoint leaves the key as good as new; this one came after its work."""
    runs: list[str] = []
    router = APIRouter(route_class=Idempotency(**SHARED).route_class) if by_route else APIRouter()

    @router.post("/run/a")
    async def view() -> None:
        runs.append("charged")
        raise RequestValidationError([{"loc": ("body", "amount"), "msg": "declined", "type": "value_error"}])

    app = FastAPI()
    app.include_router(router)
    if not by_route:
        app.add_middleware(IdempotencyMiddleware, **SHARED)
    request = Wild(b"/run/a", b"", (("Idempotency-Key", b"k"),), b"")
    first, second = over_asgi(app, request), over_asgi(app, request)
    assert first.status == second.status == 422
    assert runs == ["charged"]
    assert second.is_replay
