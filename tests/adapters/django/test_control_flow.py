"""What happens to a request and its record when Django's own machinery acts: transactions, middleware, debug pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib import messages
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.template.response import TemplateResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from idem_django import idempotent
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import IDEMPOTENCY, MIDDLEWARE, Counter

HERE = "tests.adapters.django.test_control_flow."
COMMON = "django.middleware.common.CommonMiddleware"


class Timeout(BaseException):
    """As gevent's, and those of servers: raised into a view from outside, and no `Exception`."""


class HandlesErrors:
    """Makes an answer of a view's exception, as many projects do."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return JsonResponse({"error": str(error)}, status=409) if isinstance(error, LookupError) else None


class FailsBefore:
    """Raises when Django is about to call the view."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *args: Any) -> None:
        if request.headers.get("X-Fail"):
            raise RuntimeError("before the view")


class FailsAfter:
    """Raises when the answer is there."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        response = self.get_response(request)
        if request.headers.get("X-Fail"):
            raise RuntimeError("after the view")
        return response


FAIL = [("X-Fail", "1")]


@pytest.fixture
def atomic_requests(database: None) -> Iterator[None]:
    """Every view in a transaction of its own."""
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    yield
    connection.settings_dict["ATOMIC_REQUESTS"] = False


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("atomic_requests")
def test_a_500_that_is_returned_commits_and_one_that_is_raised_does_not(make_project: MakeProject) -> None:
    """Django asks for an exception; both are failures here, so what returns a 500 writes again."""

    def returned(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name=f"returned {Group.objects.count()}")
        return HttpResponse(status=500)

    def raised(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name="raised")
        raise RuntimeError

    project = make_project(path("a", returned), path("b", raised))
    assert [project.post("/a", key="a").status for _ in range(2)] == [500, 500]
    assert [project.post("/b", key="b").status for _ in range(2)] == [500, 500]
    assert sorted(Group.objects.values_list("name", flat=True)) == ["returned 0", "returned 1"]


@pytest.mark.usefixtures("atomic_requests")
def test_the_work_is_committed_before_it_is_recorded(make_project: MakeProject) -> None:
    """A record says that the work is done, so it is done by then; what waits for the commit runs once."""
    ran: list[str] = []

    def view(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name="new")
        transaction.on_commit(lambda: ran.append(project.kinds[-1]))
        return HttpResponse(status=201)

    project = make_project(path("", view))
    assert [project.post().is_replay for _ in range(2)] == [False, True]
    assert ran == ["claimed"]
    assert Group.objects.count() == 1


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("outside", [True, False], ids=["outside", "inside"])
def test_a_transaction_on_either_side_of_the_decorator_works(make_project: MakeProject, *, outside: bool) -> None:
    """The record is written by the middleware, when the view with all its decorators has returned."""

    def view(request: HttpRequest) -> HttpResponse:
        Group.objects.create(name="new")
        return HttpResponse(status=201)

    decorated = transaction.atomic(idempotent(view)) if outside else idempotent(transaction.atomic(view))
    project = make_project(path("", decorated), exempt_paths=["/"])
    assert [project.post().is_replay for _ in range(2)] == [False, True]
    assert Group.objects.count() == 1


# --- exceptions -------------------------------------------------------------------------------------------------------


def failing(error: BaseException) -> Any:
    """A view that raises."""

    def view(request: HttpRequest) -> HttpResponse:
        raise error

    return view


@pytest.mark.parametrize("handler", ["further outside", "further inside"])
def test_an_exception_that_a_middleware_handles_is_its_answer(
    make_project: MakeProject, mode: str, handler: str
) -> None:
    """Django asks all of them before any answer goes out, wherever they stand."""
    own = f"{HERE}HandlesErrors"
    order = (own, IDEMPOTENCY) if handler == "further outside" else (IDEMPOTENCY, own)
    project = make_project(path("", failing(LookupError("sold"))), middleware=(COMMON, *order), mode=mode)
    first, again = project.post(), project.post()
    assert (first.status, again.status, again.is_replay) == (409, 409, True)


def test_an_exception_before_the_view_claims_nothing(make_project: MakeProject, mode: str) -> None:
    """In a middleware further outside; the same key runs when it has gone."""
    counter = Counter()
    project = make_project(path("", counter.view_for(mode)), middleware=(f"{HERE}FailsBefore", *MIDDLEWARE), mode=mode)
    assert project.post(headers=FAIL).status == 500
    assert project.kinds == []
    assert project.post().status == 201


def test_an_exception_after_the_answer_leaves_it_recorded(make_project: MakeProject, mode: str) -> None:
    """In a middleware further outside: the work is done, and the retry gets what the first client did not."""
    counter = Counter()
    project = make_project(path("", counter.view_for(mode)), middleware=(f"{HERE}FailsAfter", *MIDDLEWARE), mode=mode)
    assert project.post(headers=FAIL).status == 500
    again = project.post()
    assert (again.status, again.is_replay, counter.runs) == (201, True, 1)


def test_an_exception_further_inside_after_the_view_is_a_failure(make_project: MakeProject, mode: str) -> None:
    """What passes through us is a 500, so the next try runs."""
    counter = Counter()
    project = make_project(path("", counter.view_for(mode)), middleware=(*MIDDLEWARE, f"{HERE}FailsAfter"), mode=mode)
    assert project.post(headers=FAIL).status == 500
    assert project.post().status == 201
    assert counter.runs == 2


def test_an_answer_that_can_not_be_rendered_is_a_failure(make_project: MakeProject, mode: str) -> None:
    """The view returned, but there is no answer."""

    def broken(request: HttpRequest) -> HttpResponse:
        return TemplateResponse(request, "there is no such template")

    project = make_project(path("a", broken), mode=mode)
    assert [project.post("/a").status for _ in range(2)] == [500, 500]
    assert project.kinds == ["claimed", "failed", "run_again", "failed"]


@pytest.mark.parametrize("debug", [True, False])
def test_debug_pages_change_nothing_about_the_record(make_project: MakeProject, mode: str, *, debug: bool) -> None:
    """The page with the traceback is a 500 like any other."""
    project = make_project(path("", failing(ValueError("mine"))), mode=mode, more={"DEBUG": debug})
    first = project.post()
    assert first.status == 500
    assert (b"ValueError" in first.body) is debug
    assert not project.post().is_replay
    assert project.kinds == ["claimed", "failed", "run_again", "failed"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_time_out_that_is_no_exception_leaves_the_outcome_open(
    make_project: MakeProject, mode: str, *, asynchronous: bool
) -> None:
    """gevent's, or a worker's own: it comes out as it is, and nobody knows how far the view came."""

    def view(request: HttpRequest) -> HttpResponse:
        raise Timeout

    async def async_view(request: HttpRequest) -> HttpResponse:
        raise Timeout

    project = make_project(path("", async_view if asynchronous else view), mode=mode)
    with pytest.raises(Timeout):
        project.post()
    assert project.kinds == ["claimed", "abandoned"]
    assert project.post().problem == "in-progress"


# --- cookies of other middleware --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("database")
def test_cookies_of_sessions_tokens_and_messages_are_set_as_ever_and_in_no_replay(
    make_project: MakeProject, mode: str
) -> None:
    """They belong to the first client; the middleware that sets them does its own work undisturbed."""

    @csrf_exempt
    def view(request: HttpRequest) -> HttpResponse:
        request.session["basket"] = [7]
        messages.success(request, "paid")
        get_token(request)
        return HttpResponse(status=201)

    project = make_project(
        path("", view),
        mode=mode,
        middleware=(
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
            IDEMPOTENCY,
        ),
        more={"MESSAGE_STORAGE": "django.contrib.messages.storage.cookie.CookieStorage"},
        caller="shared",
    )
    first, again = project.post(), project.post()
    assert sorted(cookie.partition("=")[0].strip() for cookie in first.all("set-cookie")) == [
        "csrftoken",
        "messages",
        "sessionid",
    ]
    assert (again.status, again.is_replay, again.all("set-cookie")) == (201, True, [])


# --- URLs -------------------------------------------------------------------------------------------------------------


def test_a_path_in_another_language_is_found_under_the_same_key(make_project: MakeProject, mode: str) -> None:
    """Django answers the path without its language by a redirect to the one with it: no view has run by then."""
    counter = Counter()
    project = make_project(
        *i18n_patterns(path("orders/<int:number>/", counter.view_for(mode))),
        mode=mode,
        middleware=("django.middleware.locale.LocaleMiddleware", *MIDDLEWARE),
    )
    away = project.post("/orders/7/")
    assert (away.status, away.header("location"), project.kinds) == (302, "/en/orders/7/", [])
    first, again = project.post("/en/orders/7/"), project.post("/en/orders/7/")
    assert (first.status, again.is_replay, counter.runs) == (201, True, 1)
    assert again.header("content-language") == first.header("content-language") == "en"


def test_what_the_view_does_to_its_request_changes_no_identity(make_project: MakeProject, mode: str) -> None:
    """A key or a fingerprint that was made again at the end was another one.

    Sources: aws-powertools/powertools-lambda-typescript#5715, aws-powertools/powertools-lambda-python#1093.
    """

    def view(request: Any) -> HttpResponse:
        request.POST = request.POST.copy()
        request.POST["added"] = "1"
        request.META.update(HTTP_IDEMPOTENCY_KEY="another", QUERY_STRING="b=1", HTTP_AUTHORIZATION="another")
        request.path = request.path_info = "/elsewhere"
        request.method = "PUT"
        if request.headers.get("X-Fail"):
            raise RuntimeError
        return HttpResponse(status=201)

    project = make_project(path("", view), mode=mode)
    sent: dict[str, Any] = {"body": b"a=1", "content_type": "application/x-www-form-urlencoded"}
    assert project.post(**sent, headers=FAIL).status == 500
    assert [project.post(**sent).is_replay for _ in range(2)] == [False, True]
