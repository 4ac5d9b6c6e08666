"""Anything that can be sent, to Django REST framework, claimed behind its own checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings

from tests.fuzz.test_wild_django import SENDERS, project
from tests.fuzz.wire import CATALOGUE, EXAMPLES, PROTECTIONS, Wild, check, wild_requests


def send_twice(options: Mapping[str, Any], mixed_in: bool, request: Wild) -> None:  # noqa: FBT001
    """One application, and one request that it gets two times."""
    # Django must be set up before any of these is imported.
    from rest_framework.response import Response  # noqa: PLC0415
    from rest_framework.views import APIView  # noqa: PLC0415

    from idem_django.rest_framework import IdempotentMixin  # noqa: PLC0415

    runs: list[str] = []

    def post(view: object, request: Any) -> Response:
        runs.append(request.path)
        return Response({"run": len(runs)}, 201)

    settings_of_view = {"authentication_classes": (), "permission_classes": (), "post": post}
    bases: tuple[type, ...] = (IdempotentMixin, APIView) if mixed_in else (APIView,)
    view = type("Orders", bases, settings_of_view)
    with project(view.as_view(), **options):  # type: ignore[attr-defined]  # as every API view
        check(SENDERS["wsgi"](), runs, request)


@pytest.mark.parametrize("mixed_in", [False, True], ids=["middleware", "mixin"])
@pytest.mark.parametrize("options", PROTECTIONS.values(), ids=PROTECTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(request=wild_requests())
def test_any_request_runs_once_or_is_refused(options: Mapping[str, Any], mixed_in: bool, request: Wild) -> None:  # noqa: FBT001
    """Twice the same bytes: a run and its replay, or two refusals."""
    send_twice(options, mixed_in, request)


@pytest.mark.parametrize("protection", ["header", "body"])
@pytest.mark.parametrize("mixed_in", [False, True], ids=["middleware", "mixin"])
def test_no_catalogued_request_is_our_failure(protection: str, mixed_in: bool) -> None:  # noqa: FBT001
    """Each nasty body, key, media type, path, query and header that is known: a 4xx at most, which says what to do."""
    for request in CATALOGUE:
        send_twice(PROTECTIONS[protection], mixed_in, request)
