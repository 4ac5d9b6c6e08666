"""Views write other items with their claim, and keep Django's own answers in the same transaction."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from idem_django.messages import to_response
from idem_middleware import TransactionRefused
from idem_middleware.testing import ManualClock
from idem_middleware.transactions import Put
from tests.adapters.django.conftest import MakeProject
from tests.core.support.stores import LedgerStore

ORDER = Put("orders", {"id": "o-1"}, condition="attribute_not_exists(id)")


@pytest.fixture
def store() -> LedgerStore:
    """One with tables beside its records."""
    return LedgerStore(clock=ManualClock(margin_seconds=2.0))


def answer() -> HttpResponse:
    """With a header and a cookie."""
    response = JsonResponse({"order": "o-1"}, status=201, headers={"X-Order": "o-1"})
    response.set_cookie("seen", "1")
    return response


def test_an_answer_of_djangos_is_kept_with_the_items(make_project: MakeProject, mode: str, store: LedgerStore) -> None:
    """By views that block, and by coroutines."""

    def view(request: Any) -> HttpResponse:
        made = answer()
        request.idempotency.complete_with([ORDER], made)
        return made

    async def async_view(request: Any) -> HttpResponse:
        made = answer()
        await request.idempotency.complete_with([Put("orders", {"id": "o-2"})], made)
        return made

    project = make_project(path("", view), path("async", async_view), mode=mode, store=store)
    for where, key in (("/", "k"), ("/async", "l")):
        first, replay = (project.post(where, key=key) for _ in range(2))
        assert (first.status, first.body) == (replay.status, replay.body) == (201, b'{"order": "o-1"}')
        assert replay.is_replay
        assert replay.header("x-order") == "o-1"
        assert replay.all("set-cookie") == []
    assert sorted(store.tables["orders"]) == ["o-1", "o-2"]


def test_a_refused_transaction_is_the_views_to_answer(make_project: MakeProject, mode: str, store: LedgerStore) -> None:
    """Its answer is kept like any other."""

    def view(request: Any) -> HttpResponse:
        try:
            request.idempotency.transact([ORDER])
        except TransactionRefused:
            return HttpResponse(status=409)
        return HttpResponse(status=201)

    project = make_project(path("", view), mode=mode, store=store)
    assert [project.post(key=key).status for key in ("a", "b", "b")] == [201, 409, 409]


def test_a_stream_is_no_answer_to_keep_in_a_transaction() -> None:
    """It is told before anything is written."""
    with pytest.raises(TypeError, match="must be whole, not a StreamingHttpResponse"):
        to_response(StreamingHttpResponse([b"x"]))
