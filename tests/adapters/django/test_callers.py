from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import authenticate, login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.functional import SimpleLazyObject

from idem_django import not_idempotent
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import IDEMPOTENCY, Counter, Project

CHAIN = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
)
HERE = "tests.adapters.django.test_callers."


class TokenUser:
    """A user that another package makes of a token."""

    is_authenticated = True

    def __init__(self, pk: Any) -> None:
        self.pk = pk


class Tokens:
    """Sets users by token, lazily, as several packages do."""

    lazy = True

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        token = request.headers.get("Authorization", "").partition(".")[0]
        user = TokenUser(token or None)
        request.user = SimpleLazyObject(lambda: user) if self.lazy else user  # type: ignore[assignment]
        return self.get_response(request)


class EagerTokens(Tokens):
    """Sets them at once."""

    lazy = False


@not_idempotent
def sign_in(request: HttpRequest) -> HttpResponse:
    user = authenticate(request, username=request.headers["X-User"], password="x")
    assert user is not None
    login(request, user)
    return HttpResponse()


def signed_in(project: Project, name: str) -> list[tuple[str, str]]:
    answer = project.post("/in", headers=[("X-User", name)])
    session = next(value for value in answer.all("set-cookie") if "sessionid" in value)
    return [("Cookie", session.strip().partition(";")[0])]


@pytest.mark.usefixtures("database")
def test_the_caller_is_whoever_is_logged_in(make_project: MakeProject, mode: str) -> None:
    """Two users have two key spaces; a user who logs in again is the same one."""
    for name in ("ann", "bob"):
        User.objects.create_user(name, password="x")
    counter = Counter()
    project = make_project(
        path("in", sign_in),
        path("", counter.view_for(mode)),
        mode=mode,
        middleware=(*CHAIN, IDEMPOTENCY),
        more={"SESSION_ENGINE": "django.contrib.sessions.backends.db"},
    )
    ann, bob = signed_in(project, "ann"), signed_in(project, "bob")
    assert [project.post(headers=who).json()["run"] for who in (ann, bob, ann)] == [1, 2, 1]
    again = signed_in(project, "ann")
    assert again != ann
    assert project.post(headers=[*again, ("Authorization", "fresh")]).is_replay
    assert project.post().json() == {"run": 3}


@pytest.mark.parametrize("tokens", ["Tokens", "EagerTokens"])
def test_users_of_other_packages_count_by_their_id(make_project: MakeProject, mode: str, tokens: str) -> None:
    counter = Counter()
    project = make_project(path("", counter.view_for(mode)), mode=mode, middleware=(*CHAIN, HERE + tokens, IDEMPOTENCY))
    runs = [project.post(headers=[("Authorization", token)]).json()["run"] for token in ("a.1", "b.1", "a.2", "b.2")]
    assert runs == [1, 2, 1, 2]


def test_who_is_not_known_is_told_apart_by_credentials(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", Counter().view_for(mode)), mode=mode)
    assert project.post(headers=[("Authorization", "one")]).status == 201
    assert project.post(headers=[("Authorization", "two")]).problem == "credentials-changed"


def test_a_configured_function_gets_djangos_request(make_project: MakeProject, mode: str) -> None:
    project = make_project(
        path("", Counter().view_for(mode)), mode=mode, caller=lambda request: request.headers.get("X-Tenant")
    )
    runs = [project.post(headers=[("X-Tenant", tenant)]).json()["run"] for tenant in ("a", "b", "a")]
    assert runs == [1, 2, 1]
    assert project.post().problem == "caller-unknown"


def test_an_unknown_caller_runs_while_it_is_only_observed(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", Counter().view_for(mode)), mode=mode, MODE="observe", caller=lambda request: None)
    assert [project.post().status for _ in range(2)] == [201, 201]
    assert [(e.reason, e.observed) for e in project.events] == [("caller-unknown", True)] * 2


async def async_caller(request: HttpRequest) -> str | None:
    if request.headers.get("X-Tenant") == "broken":
        raise ValueError
    return request.headers.get("X-Tenant")


def test_a_configured_function_may_be_async(make_project: MakeProject) -> None:
    project = make_project(path("", Counter().view_for("asgi")), mode="asgi", caller=async_caller)
    assert [project.post(headers=[("X-Tenant", "a")]).is_replay for _ in range(2)] == [False, True]
    assert project.post(headers=[("X-Tenant", "broken")]).problem == "caller-unknown"
    assert project.post().problem == "caller-unknown"


@pytest.mark.usefixtures("database")
def test_a_configured_function_may_use_the_database_on_the_loop(make_project: MakeProject) -> None:
    User.objects.create_user("ann", password="x")

    def caller(request: HttpRequest) -> str:
        return str(User.objects.get(username=request.headers["X-User"]).pk)

    project = make_project(path("", Counter().view_for("asgi")), mode="asgi", caller=caller)
    answers = [project.post(headers=[("X-User", "ann")]) for _ in range(2)]
    assert [answer.is_replay for answer in answers] == [False, True]
    assert project.post(headers=[("X-User", "nobody")]).problem == "caller-unknown"


def test_shared_means_shared(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", Counter().view_for(mode)), mode=mode, caller="shared")
    assert project.post(headers=[("Authorization", "one")]).status == 201
    assert project.post(headers=[("Authorization", "two")]).is_replay
