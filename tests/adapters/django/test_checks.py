from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.core.checks import run_checks
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from rest_framework import permissions
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet

from idem_django import IdempotencyMiddleware, idempotent, not_idempotent
from idem_django.checks import check_callers, check_routes
from idem_django.rest_framework import IdempotentMixin
from idem_middleware.ciphers import AesGcm
from tests.adapters.django.projects import Urlconf

FINE = {"STORE": "memory://", "EXEMPT_PATHS": ["/admin/", "/accounts/"]}
US = "idem_django.IdempotencyMiddleware"
BEFORE = [
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROUTES = [path("admin/", admin.site.urls), path("accounts/login/", LoginView.as_view())]


class Answers:
    """Another package's, that answers in a view's place."""

    def process_view(self, *args: Any) -> None: ...


class Ours(IdempotencyMiddleware):
    """A project's own subclass."""


@pytest.fixture
def found() -> Callable[..., list[Any]]:
    """Give what looks for our messages about a project with these routes, middleware and settings."""

    def look(
        routes: list[Any] | None = None, middleware: list[str] | None = None, *, deploy: bool = False, **settings: Any
    ) -> list[Any]:
        chain = [*BEFORE, US] if middleware is None else middleware
        values = {"IDEMPOTENCY": FINE, "MIDDLEWARE": chain, "ROOT_URLCONF": Urlconf(routes or ROUTES), **settings}
        with override_settings(**values):
            messages = run_checks(include_deployment_checks=deploy)
        ours = [message for message in messages if str(message.id).startswith("idem_django.")]
        assert all(message.hint for message in ours)
        return ours

    return look


def ids(messages: list[Any]) -> list[str]:
    return sorted(message.id.removeprefix("idem_django.") for message in messages)


def test_a_sound_project_passes(found: Any) -> None:
    assert found() == []


def test_checks_are_bound_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with override_settings(IDEMPOTENCY=FINE, MIDDLEWARE=[*BEFORE, US], ROOT_URLCONF=Urlconf(ROUTES)):
        call_command("check")


@pytest.mark.parametrize(
    ("written", "expected", "told"),
    [
        (None, ["E001"], "IDEMPOTENCY is not set"),
        ("memory://", ["E001"], "must be a dictionary"),
        ({**FINE, "LEASE_SECOND": 3}, ["E002"], "did you mean LEASE_SECONDS"),
        ({**FINE, "LEASE_SECONDS": 0}, ["E003"], "lease_seconds must be"),
        ({**FINE, "CALLER": "no.such"}, ["E003"], "can't be imported"),
        ({}, ["E004"], '"STORE" is missing'),
        ({**FINE, "STORE": "memry://"}, ["E004"], "did you mean memory"),
        ({"STOR": "memory://", "WAIT_SECONDS": "x", "ON_ERROR": "y"}, ["E002", "E003", "E003", "E004"], ""),
    ],
)
def test_wrong_settings(found: Any, written: Any, expected: list[str], told: str) -> None:
    messages = found(IDEMPOTENCY=written)
    assert ids(messages) == expected
    assert told in messages[0].msg


@pytest.mark.parametrize(
    ("middleware", "expected"),
    [
        (BEFORE, ["W001"]),
        ([*BEFORE, US, US], ["W002"]),
        ([*BEFORE[:2], US, *BEFORE[2:]], ["W003", "W003"]),
        ([US, *BEFORE], ["W003", "W003", "W003", "W004"]),
        ([*BEFORE, US, "tests.adapters.django.test_checks.Answers"], ["W005"]),
        ([*BEFORE, US, "django.middleware.common.CommonMiddleware"], []),
        ([*BEFORE, "tests.adapters.django.test_checks.Ours"], []),
        ([*BEFORE, US, "no.such.Middleware"], []),
    ],
)
def test_the_middlewares_place(found: Any, middleware: list[str], expected: list[str]) -> None:
    assert ids(found(middleware=middleware)) == expected


def test_a_marked_view_without_the_middleware(found: Any) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    routes = [*ROUTES, path("a/", include([path("b", idempotent(view)), path("c", not_idempotent(view))]))]
    messages = found(routes, BEFORE)
    assert ids(messages) == ["E005", "W001"]
    assert "a/b" in next(message.msg for message in messages if message.id == "idem_django.E005")


def test_a_views_options_that_do_not_fit(found: Any) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    routes = [*ROUTES, path("a", idempotent(lease_seconds=3600)(view))]
    assert ids(found(routes)) == ["E006"]
    assert ids(found(routes, IDEMPOTENCY={**FINE, "MAX_EXECUTION_SECONDS": 7200})) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["W006", "W007"]),
        ({"EXEMPT_PATHS": ["/admin/"]}, ["W007"]),
        ({"PATHS": ["/api"]}, []),
        ({"REQUIRE_KEY": False}, []),
        ({"MODE": "observe"}, []),
        ({"KEY": "fingerprint"}, []),
    ],
)
def test_browsers_are_not_asked_for_keys(found: Any, options: dict[str, Any], expected: list[str]) -> None:
    assert ids(found(IDEMPOTENCY={"STORE": "memory://", **options})) == expected


def test_pages_that_are_exempt_by_their_routes(found: Any) -> None:
    routes = [
        not_idempotent(path("admin/", admin.site.urls)),
        path("accounts/", not_idempotent(include([path("login/", LoginView.as_view())]))),
    ]
    assert ids(found(routes, IDEMPOTENCY={"STORE": "memory://"})) == []


@pytest.mark.parametrize("url", ["https://sso.example/login", "/elsewhere/", "no:such"])
def test_login_pages_that_are_not_here(found: Any, url: str) -> None:
    assert ids(found(LOGIN_URL=url)) == []


def test_a_store_in_memory_is_not_deployed(found: Any) -> None:
    assert ids(found(deploy=True)) == ["W008"]
    durable = {**FINE, "STORE": "dynamodb://orders?region=eu-central-1", "FINGERPRINT_SECRET": "s"}
    assert ids(found(deploy=True, IDEMPOTENCY=durable)) == []
    assert ids(found(deploy=True, IDEMPOTENCY={})) == ["E004"]


def test_a_table_that_bodies_can_be_guessed_from_is_told_of(found: Any) -> None:
    durable = {**FINE, "STORE": "dynamodb://orders?region=eu-central-1"}
    assert ids(found(deploy=True, IDEMPOTENCY=durable)) == ["W011"]
    assert ids(found(deploy=True, IDEMPOTENCY={**durable, "CIPHER": AesGcm({"a": b"k" * 32})})) == []
    assert ids(found(IDEMPOTENCY=durable)) == []


@pytest.mark.parametrize(("caller", "expected"), [(None, ["W009"]), ("shared", [])])
def test_callers_that_nothing_tells_apart(caller: str | None, expected: list[str]) -> None:
    with override_settings(INSTALLED_APPS=["idem_django"], IDEMPOTENCY={**FINE, "CALLER": caller}):
        assert ids(check_callers()) == expected


class Guarded(APIView):
    """Only for users."""

    permission_classes: Any = (permissions.IsAuthenticated,)

    def post(self, request: Any) -> HttpResponse:
        return HttpResponse()


class Mixed(IdempotentMixin, Guarded):
    """Claims behind its permissions."""


class Open(Guarded):
    """For all."""

    permission_classes: Any = (permissions.AllowAny,)


class ReadOnly(APIView):
    """Changes nothing."""

    permission_classes: Any = (permissions.IsAuthenticated,)

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse()


class Items(ModelViewSet[Any]):
    """Has actions."""

    permission_classes: Any = (permissions.IsAuthenticated,)


def copy() -> Any:
    return type("Copy", (Guarded,), {})


def router_of(viewset: Any) -> Any:
    router = SimpleRouter()
    router.register("items", viewset, basename="item")
    return router.urls


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (path("a", Guarded.as_view()), ["W010"]),
        (path("", include(router_of(Items))), ["W010", "W010"]),
        (path("a", Mixed.as_view()), []),
        (path("a", idempotent(Guarded.as_view())), []),
        (path("a", Open.as_view()), []),
        (path("", idempotent(include([path("a", cache_page(1)(Guarded.as_view()))]))), ["W010"]),
        (path("", not_idempotent(include([path("a", cache_page(1)(Guarded.as_view()))]))), []),
        (path("a", method_decorator(idempotent, name="dispatch")(copy()).as_view()), ["W010"]),
        (path("a", method_decorator(idempotent, name="post")(copy()).as_view()), []),
        (path("a", ReadOnly.as_view()), []),
        (path("accounts/a", Guarded.as_view()), []),
    ],
)
def test_permissions_that_a_replay_would_not_ask(found: Any, route: Any, expected: list[str]) -> None:
    assert ids(found([*ROUTES, route])) == expected


def test_urls_that_can_not_be_read_are_djangos_to_tell(found: Any) -> None:
    class Broken(Urlconf):
        @property
        def urlpatterns(self) -> Any:
            raise ValueError

        @urlpatterns.setter
        def urlpatterns(self, value: Any) -> None: ...

    with override_settings(IDEMPOTENCY=FINE, MIDDLEWARE=[*BEFORE, US], ROOT_URLCONF=Broken([])):
        assert check_routes() == []
