"""Anything that can be sent, to Flask, by its extension and by the middleware for every WSGI application."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from flask import Flask, Response, jsonify
from hypothesis import given, settings

from idem_flask import Idempotency
from idem_middleware.wsgi import IdempotencyMiddleware
from tests.fuzz.wire import CATALOGUE, EXAMPLES, PROTECTIONS, Wild, check, over_wsgi, wild_requests


def send_twice(options: Mapping[str, Any], by_extension: bool, request: Wild) -> None:  # noqa: FBT001
    """One application, and one request that it gets two times."""
    runs: list[str] = []
    app = Flask("wild")
    protection = {"store": "memory://", "caller": "shared", **options}

    @app.post("/run/<path:name>")
    def view(name: str) -> tuple[Response, int]:
        runs.append(name)
        return jsonify(run=len(runs)), 201

    if by_extension:
        Idempotency(app, **protection)
        check(partial(over_wsgi, app.wsgi_app), runs, request)
    else:
        check(partial(over_wsgi, IdempotencyMiddleware(app.wsgi_app, **protection)), runs, request)


@pytest.mark.parametrize("by_extension", [False, True], ids=["middleware", "extension"])
@pytest.mark.parametrize("options", PROTECTIONS.values(), ids=PROTECTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(request=wild_requests())
def test_any_request_runs_once_or_is_refused(options: Mapping[str, Any], by_extension: bool, request: Wild) -> None:  # noqa: FBT001
    """Twice the same bytes: a run and its replay, or two refusals."""
    send_twice(options, by_extension, request)


@pytest.mark.parametrize("protection", ["header", "body"])
@pytest.mark.parametrize("by_extension", [False, True], ids=["middleware", "extension"])
def test_no_catalogued_request_is_our_failure(protection: str, by_extension: bool) -> None:  # noqa: FBT001
    """Each nasty body, key, media type, path, query and header that is known: a 4xx at most, which says what to do."""
    for request in CATALOGUE:
        send_twice(PROTECTIONS[protection], by_extension, request)
