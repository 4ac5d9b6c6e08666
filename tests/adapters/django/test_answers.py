from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.views import View
from django.views.decorators.http import require_GET

from idem_django import idempotent
from idem_django.messages import ExactResponse
from idem_middleware import MemoryStore, Response
from idem_middleware.testing import Fault, FaultyStore, ManualClock
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import IDEMPOTENCY, MIDDLEWARE, Counter, Exchange

HERE = "tests.adapters.django.test_answers."
NEVER_REPEATED = {"idempotent-replayed", "content-length"}


class Repeating(HttpResponse):
    """As projects send a header twice."""

    def items(self) -> Any:
        return [*super().items(), ("Link", "</b>"), ("X-Last", "1")]


class Stamps:
    """Changes every answer on its way out."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        response = self.get_response(request)
        response["Link"] = response.get("Link", "") + ", </c>"
        del response["X-Inner"]
        response.setdefault("X-Request", "7")
        return response


@pytest.mark.parametrize("status", [200, 201, 202, 204, 301, 404, 409, 422])
def test_a_replay_repeats_status_headers_and_bytes(make_project: MakeProject, mode: str, status: int) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        body = b"" if status == 204 else b"\x00\xff"
        response = Repeating(body, status=status, headers={"X-First": "Z\xfcrich", "Link": "</a>", "Location": "/1"})
        response.set_cookie("session", "secret")
        return response

    project = make_project(path("", view), mode=mode)
    first, replay = project.post(), project.post()
    assert replay.is_replay
    assert (replay.status, replay.body) == (first.status, first.body)
    sent = [pair for pair in first.headers if pair[0] not in ("Set-Cookie", "Content-Length")]
    again = [pair for pair in replay.headers if pair[0].lower() not in NEVER_REPEATED]
    assert again == sent
    assert first.all("link") == ["</a>", "</b>"]
    assert replay.all("set-cookie") == []


def test_an_answer_without_content_type_is_replayed_without(make_project: MakeProject) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        response = HttpResponse(b"", status=204)
        del response["Content-Type"]
        return response

    project = make_project(path("", view), middleware=(IDEMPOTENCY,))
    assert project.post().headers == []
    assert project.post().headers == [("Idempotent-Replayed", "true")]


def test_kept_cookies_are_replayed_each_on_its_line(make_project: MakeProject) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        response = HttpResponse()
        response.set_cookie("a", "1")
        response.set_cookie("b", "2", httponly=True)
        return response

    project = make_project(path("", view), keep_headers={"Set-Cookie"})
    first, replay = project.post(), project.post()
    assert len(first.all("set-cookie")) == 2
    assert [value.strip() for value in first.all("set-cookie")] == replay.all("set-cookie")


def test_middleware_further_outside_works_on_replays_as_on_answers(make_project: MakeProject) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"Link": "</a>", "X-Inner": "1"})

    project = make_project(path("", view), middleware=(HERE + "Stamps", IDEMPOTENCY))
    for replayed in (False, True, True):
        answer = project.post()
        assert answer.is_replay is replayed
        assert (answer.header("link"), answer.header("x-inner"), answer.header("x-request")) == (
            "</a>, </c>",
            None,
            "7",
        )


def test_a_changed_repeated_header_is_sent_once() -> None:
    response = ExactResponse(Response(200, (("Link", "</a>"), ("X", "1"), ("link", "</b>")), b""))
    sent = [pair for pair in response.items() if pair[0] != "Content-Length"]
    assert sent == [("Link", "</a>"), ("X", "1"), ("link", "</b>")]
    response["Link"] = "</c>"
    assert [value for name, value in response.items() if name.lower() == "link"] == ["</c>"]
    del response["Link"]
    assert "link" not in {name.lower() for name, _ in response.items()}


def test_templates_are_rendered_when_they_are_recorded(make_project: MakeProject, mode: str) -> None:
    """A view decorator would see an answer without content (encode/django-rest-framework#5396)."""
    rendered: list[int] = []

    @idempotent
    def view(request: HttpRequest) -> HttpResponse:
        rendered.append(1)
        return TemplateResponse(request, "order.html", {"number": len(rendered)})

    project = make_project(path("", view), mode=mode)
    assert project.post().body == b"order 1"
    assert (project.post().body, project.post().is_replay) == (b"order 1", True)


def failing(error: Exception) -> Any:
    def view(request: HttpRequest) -> HttpResponse:
        raise error

    return view


@pytest.mark.parametrize(
    ("view", "status", "kept"),
    [
        (failing(Http404()), 404, True),
        (failing(BadRequest()), 400, True),
        (failing(PermissionDenied()), 403, False),
        (failing(RuntimeError()), 500, False),
        (lambda request: HttpResponse(status=503), 503, False),
        (lambda request: HttpResponse(status=429), 429, False),
        (lambda request: HttpResponse(status=302, headers={"Location": "/done"}), 302, True),
        (lambda request: HttpResponse(status=302, headers={"Location": "/accounts/login/?next=/"}), 302, False),
        (lambda request: HttpResponse(status=307, headers={"Location": "/"}), 307, False),
        (lambda request: HttpResponseNotAllowed(["GET"]), 405, False),
        (lambda request: HttpResponseNotAllowed(["POST"]), 405, True),
        (require_GET(lambda request: HttpResponse()), 405, False),
        (View.as_view(), 405, False),
    ],
)
def test_only_what_the_view_gave_as_final_is_kept(
    make_project: MakeProject, view: Any, status: int, *, kept: bool
) -> None:
    project = make_project(path("", view))
    assert [project.post().status for _ in range(2)] == [status, status]
    assert project.post().is_replay is kept
    released = status in (302, 307, 405) and not kept
    if released:  # nothing was begun: the key is as good as new
        assert project.post(body=b"other").problem is None


def test_an_exception_without_an_answer_frees_the_key_and_comes_out(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", failing(ValueError("mine"))), mode=mode, more={"DEBUG_PROPAGATE_EXCEPTIONS": True})
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            project.post()
    assert project.kinds == ["claimed", "failed", "run_again", "failed"]


def test_what_ends_the_process_leaves_the_outcome_open(make_project: MakeProject) -> None:
    """Source: elchin92/avito-mcp#60."""

    def view(request: HttpRequest) -> HttpResponse:
        raise KeyboardInterrupt

    project = make_project(path("", view))
    with pytest.raises(KeyboardInterrupt):
        project.post()
    assert project.kinds == ["claimed", "abandoned"]


def test_a_page_that_does_not_exist_is_no_answer_of_a_view(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("a", Counter().view_for(mode)), mode=mode)
    assert project.post("/b").status == 404
    assert project.kinds == []
    assert project.post("/a").status == 201


def test_the_view_knows_its_lease(make_project: MakeProject, mode: str) -> None:
    seen: list[Any] = []

    def view(request: Any) -> HttpResponse:
        seen.append(request.idempotency)
        return JsonResponse({"attempt": request.idempotency.attempt}, status=503 if len(seen) == 1 else 200)

    async def async_view(request: Any) -> HttpResponse:
        return view(request)

    project = make_project(path("", view), path("async", async_view), mode=mode)
    assert [project.post().json()["attempt"] for _ in range(2)] == [1, 2]
    assert type(seen[0]).__name__ == "Lease"
    assert project.post("/async", key="l").json() == {"attempt": 1}
    assert type(seen[-1]).__name__ == "AsyncLease"


def test_a_lease_that_the_view_settled_is_settled(make_project: MakeProject, mode: str) -> None:
    def view(request: Any) -> HttpResponse:
        request.idempotency.omit("/orders/1")
        return HttpResponse(status=500)

    project = make_project(path("", view), mode=mode)
    assert project.post().status == 500
    assert project.post().problem == "response-not-stored"


def test_an_attempt_that_lost_its_key_gives_the_winners_answer(make_project: MakeProject, mode: str) -> None:
    """One request, one answer: whoever is overtaken tells what the other did."""
    clock = ManualClock()
    closed: list[str] = []
    project_of: list[Any] = []
    runs: list[int] = []

    def view(request: Any) -> HttpResponse:
        runs.append(1)
        mine = len(runs)
        if mine == 1:
            clock.advance(1000)
            winner = project_of[0].environ("POST", "/", b"{}", [("Idempotency-Key", "k")])
            assert Exchange(winner).finish().json() == {"run": 2}
        response = JsonResponse({"run": mine})
        response._resource_closers.append(lambda: closed.append(f"run {mine}"))  # type: ignore[attr-defined]
        return response

    project_of.append(make_project(path("", view), mode="wsgi", store=MemoryStore(clock=clock)))
    answer = project_of[0].post(content_type=None)
    assert (answer.json(), answer.is_replay) == ({"run": 2}, True)
    assert sorted(closed) == ["run 1", "run 2"]


def test_a_bypassed_store_is_told_in_the_answer(make_project: MakeProject, mode: str) -> None:
    store = FaultyStore(MemoryStore())
    project = make_project(
        path("", Counter().view_for(mode)), mode=mode, store=store, on_store_error="bypass", middleware=MIDDLEWARE
    )
    store.fail(Fault.LOST_REQUEST, on="create")
    answer = project.post()
    assert (answer.status, answer.header("idempotency-bypassed")) == (201, "store-unavailable")


def test_a_login_page_that_can_not_be_found_sends_nobody_there(make_project: MakeProject) -> None:
    view = make_view(HttpResponse(status=302, headers={"Location": "/done"}))
    project = make_project(path("", view), more={"LOGIN_URL": "no:such"})
    assert [project.post().is_replay for _ in range(2)] == [False, True]


def make_view(response: HttpResponse) -> Any:
    return lambda request: response


def test_reading_requests_pass_untouched(make_project: MakeProject, mode: str) -> None:
    """Even a malformed key is nobody's business there."""
    project = make_project(path("", Counter().view_for(mode)), mode=mode)
    for method in ("GET", "HEAD", "OPTIONS", "TRACE"):
        assert project.send(method, "/", key='"').status == 201
    assert project.kinds == []
