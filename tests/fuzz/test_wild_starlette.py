"""Anything that can be sent, to a Starlette application: once, or refused; never our failure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from idem_starlette import IdempotencyMiddleware
from tests.fuzz.wire import CATALOGUE, EXAMPLES, PROTECTIONS, Wild, check, over_asgi, wild_requests


def send_twice(options: Mapping[str, Any], request: Wild) -> None:
    """One application, and one request that it gets two times."""
    runs: list[str] = []

    async def view(request: Request) -> JSONResponse:
        runs.append(request.path_params["name"])
        return JSONResponse({"run": len(runs)}, 201)

    app = Starlette(routes=[Route("/run/{name}", view, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, store="memory://", **{"caller": "shared", **options})
    check(partial(over_asgi, app), runs, request)


@pytest.mark.parametrize("options", PROTECTIONS.values(), ids=PROTECTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(request=wild_requests())
def test_any_request_runs_once_or_is_refused(options: Mapping[str, Any], request: Wild) -> None:
    """Twice the same bytes: a run and its replay, or two refusals."""
    send_twice(options, request)


@pytest.mark.parametrize("protection", ["header", "body"])
def test_no_catalogued_request_is_our_failure(protection: str) -> None:
    """Each nasty body, key, media type, path, query and header that is known: a 4xx at most, which says what to do."""
    for request in CATALOGUE:
        send_twice(PROTECTIONS[protection], request)
