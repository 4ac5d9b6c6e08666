"""Anything that can be sent, to Django over WSGI and ASGI; and answers that Django or a view never finishes."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, cast

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import TooManyFieldsSent
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.test.utils import override_settings
from django.urls import re_path
from hypothesis import given, settings

from idem_middleware import Event
from tests.adapters.django.projects import ClosingHandler
from tests.fuzz.wire import (
    CATALOGUE,
    EXAMPLES,
    PROTECTIONS,
    Answer,
    AsgiApp,
    Send,
    Wild,
    check,
    over_asgi,
    over_wsgi,
    wild_requests,
)
from tests.support.polling import eventually

if not django_settings.configured:
    from tests.adapters.django import conftest as _configures_django  # noqa: F401 - one set of settings a process

SENDERS: Mapping[str, Callable[[], Send]] = {
    "wsgi": lambda: partial(over_wsgi, WSGIHandler()),
    "asgi": lambda: _as_django_refuses(partial(over_asgi, cast("AsgiApp", ClosingHandler()))),
}
ONE = Wild(b"/run/a", b"", (("Idempotency-Key", b"k"),), b"")


def _as_django_refuses(send: Send) -> Send:
    """With Django's own refusal as an answer where it comes out of the handler.

    Under ASGI a charset in the content type makes Django parse the query while it makes the request, before any
    middleware, where nobody turns too many fields into the 400 that they are elsewhere (5.2, a bare project too).
    """

    def sent(request: Wild) -> Answer:
        try:
            return send(request)
        except TooManyFieldsSent:
            return Answer(400, (), b"")

    return sent


@contextmanager
def project(view: Callable[..., Any], **options: Any) -> Iterator[list[Event]]:
    """A project with one view, and the events of its protection."""
    urls = ModuleType("tests.wild_urls")
    vars(urls)["urlpatterns"] = [re_path(r"^run/", view)]
    events: list[Event] = []
    written = {"STORE": "memory://", "caller": "shared", "observers": [events.append], **options}
    middleware = ["idem_django.IdempotencyMiddleware"]
    with override_settings(ROOT_URLCONF=urls, MIDDLEWARE=middleware, IDEMPOTENCY=written):
        yield events


def send_twice(options: Mapping[str, Any], mode: str, request: Wild) -> None:
    """One application, and one request that it gets two times."""
    runs: list[str] = []

    def view(request: HttpRequest) -> JsonResponse:
        runs.append(request.path)
        return JsonResponse({"run": len(runs)}, status=201)

    with project(view, **options):
        check(SENDERS[mode](), runs, request)


@pytest.mark.parametrize("mode", SENDERS)
@pytest.mark.parametrize("options", PROTECTIONS.values(), ids=PROTECTIONS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(request=wild_requests())
def test_any_request_runs_once_or_is_refused(options: Mapping[str, Any], mode: str, request: Wild) -> None:
    """Twice the same bytes: a run and its replay, or two refusals."""
    send_twice(options, mode, request)


@pytest.mark.parametrize("protection", ["header", "body"])
@pytest.mark.parametrize("mode", SENDERS)
def test_no_catalogued_request_is_our_failure(protection: str, mode: str) -> None:
    """Each nasty body, key, media type, path, query and header that is known: a 4xx at most, which says what to do."""
    for request in CATALOGUE:
        send_twice(PROTECTIONS[protection], mode, request)


@pytest.mark.parametrize("mode", SENDERS)
def test_a_view_that_sends_its_client_to_the_login_page_ran(mode: str) -> None:
    """Whoever has just signed up is sent there, too, but not in order to come back."""
    runs: list[str] = []

    def sign_up(request: HttpRequest) -> HttpResponseRedirect:
        runs.append("signed up")
        return HttpResponseRedirect(f"{django_settings.LOGIN_URL}?welcome={len(runs)}")

    with project(sign_up):
        send = SENDERS[mode]()
        first, second = send(ONE), send(ONE)
    assert first.status == second.status == 302
    assert runs == ["signed up"]
    assert second.is_replay


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_streamed_answer_that_django_drops_is_settled(asynchronous: bool) -> None:  # noqa: FBT001
    """Django throws an answer away, unread and unclosed, when its client leaves just as the view has returned."""
    runs: list[str] = []

    async def pieces() -> Any:
        yield b"done"

    async def view(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        runs.append("ran")
        streamed: Any = pieces() if asynchronous else iter([b"done"])
        return StreamingHttpResponse(streamed, status=201)

    async def scenario() -> list[str]:
        handler = ASGIHandler()
        request = await _request(handler)
        response = await handler.get_response_async(request)
        del response
        gc.collect()
        await asyncio.to_thread(eventually, lambda: len(events) > 1, what="settled")
        return [event.kind.value for event in events]

    with project(view) as events:
        kinds = asyncio.run(scenario())
    assert runs == ["ran"]
    assert {"completed", "completed_without_answer"} & set(kinds), kinds


async def _request(handler: ASGIHandler) -> HttpRequest:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/run/a",
        "query_string": b"",
        "headers": [(b"idempotency-key", b"k"), (b"host", b"testserver")],
    }
    request, refusal = handler.create_request(scope, io.BytesIO())
    assert request is not None
    assert refusal is None
    return request
