"""`assert_idempotent` with Django's client."""

from __future__ import annotations

import itertools
import json

import pytest
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.test.utils import override_settings
from django.urls import path

from idem_middleware.testing import assert_idempotent
from tests.adapters.django.projects import MIDDLEWARE, Urlconf


@pytest.mark.parametrize("at_once", [0, 4])
def test_a_users_view_is_tested(at_once: int) -> None:
    """Twice, and at once by clients of their own."""
    numbers = itertools.count(1)

    def order(request: HttpRequest) -> JsonResponse:
        return JsonResponse({"id": next(numbers), **json.loads(request.body)}, status=201)

    with override_settings(
        ROOT_URLCONF=Urlconf([path("orders", order)]),
        MIDDLEWARE=list(MIDDLEWARE),
        IDEMPOTENCY={"STORE": "memory://", "CALLER": "shared"},
    ):
        sent = assert_idempotent(Client(), {"path": "/orders", "json": {"amount": 12}}, at_once=at_once)

    assert sent.replay.body == sent.first.body == b'{"id": 1, "amount": 12}'
    assert next(numbers) == (3 if at_once else 2)
