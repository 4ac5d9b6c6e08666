"""A client that asks before it sends its body is told at once what its head alone decides."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.urls import path

from idem_django import idempotent, not_idempotent
from idem_django.asgi import HeadFirst, get_asgi_application
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import Counter

ASKS = (b"expect", b"100-continue")


def told(*headers: tuple[bytes, bytes], path: str = "/") -> tuple[int, bool]:
    """The status of the answer, and whether the body was asked for."""
    sent: list[dict[str, Any]] = []
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()  # the client stays
        asked = True
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"testserver"), (b"content-type", b"application/json"), *headers],
    }
    asyncio.run(get_asgi_application()(scope, receive, send))
    return sent[0]["status"], asked


@pytest.mark.parametrize("key", [(), ((b"idempotency-key", b'"broken'),)], ids=["missing", "invalid"])
def test_a_bad_key_is_refused_before_the_body_is_taken_in(make_project: MakeProject, key: Any) -> None:
    counter = Counter()
    make_project(path("", counter.view_for("asgi")))
    assert told(ASKS, *key) == (400, False)
    assert counter.runs == 0


def test_a_good_key_and_whoever_does_not_ask_go_to_django(make_project: MakeProject) -> None:
    """With all of its middleware."""
    counter = Counter()
    make_project(path("", counter.view_for("asgi")))
    assert told(ASKS, (b"idempotency-key", b"k")) == (201, True)
    assert told() == (400, True)
    assert counter.runs == 1


def test_views_with_rules_of_their_own_are_left_to_django(make_project: MakeProject) -> None:
    """Whatever stands before them is asked first; and an unknown path is Django's to answer."""
    counter = Counter()
    make_project(
        path("free", not_idempotent(counter.view_for("asgi"))), path("own", idempotent(counter.view_for("asgi")))
    )
    assert told(ASKS, path="/free") == (201, True)
    assert told(ASKS, path="/own") == (400, True)
    assert told(ASKS, path="/nowhere") == (404, True)


def test_other_kinds_of_connections_pass() -> None:
    """Lifespan and websockets are none of its business."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    guarded = HeadFirst.__new__(HeadFirst)
    guarded._app = app
    asyncio.run(guarded({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]
