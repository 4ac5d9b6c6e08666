from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import rest_framework
from django.http import FileResponse, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from rest_framework import permissions, serializers, throttling
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.exceptions import APIException, AuthenticationFailed, ParseError
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BrowsableAPIRenderer
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from idem_django import idempotent, not_idempotent
from idem_django.rest_framework import IdempotentMixin
from idem_middleware import ConfigurationError
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import multipart

GOOD = [("Authorization", "Bearer good.1")]
GOOD_AGAIN = [("Authorization", "Bearer good.2")]
BAD = [("Authorization", "Bearer bad")]


class Account:
    """A user that a token names, without a table."""

    is_authenticated = True
    pk = 7


class TokenAuthentication(BaseAuthentication):
    """Knows who has a token."""

    def authenticate(self, request: Any) -> Any:
        token = request.headers.get("Authorization", "")
        if not token:
            return None
        if not token.startswith("Bearer good"):
            raise AuthenticationFailed
        return (Account(), token)

    def authenticate_header(self, request: Any) -> str:
        return "Bearer"


class Throttle(throttling.BaseThrottle):
    """Open or closed."""

    closed = False

    def allow_request(self, request: Any, view: Any) -> bool:
        return not self.closed


class Payment(APIView):
    """An API view as many are."""

    authentication_classes: Any = (TokenAuthentication,)
    permission_classes: Any = (permissions.IsAuthenticated,)
    runs = 0

    def post(self, request: Any) -> Response:
        Payment.runs += 1
        return Response({"run": Payment.runs, "data": request.data}, status=201, headers={"Location": "/1"})


class Guarded(IdempotentMixin, Payment):
    """The same, protected."""


class Checks(Guarded):
    """Checks more than REST framework does, after its own checks."""

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.headers.get("X-Frozen"):
            self.permission_denied(request)


class Payments(IdempotentMixin, ViewSet):
    """Actions with options of their own."""

    authentication_classes: Any = (TokenAuthentication,)
    permission_classes: Any = (permissions.IsAuthenticated,)
    idempotency: ClassVar[Any] = {"replay_header": "X-Replay"}

    def create(self, request: Any) -> Response:
        return Response({}, status=201)

    @not_idempotent
    def update(self, request: Any, pk: str) -> Response:
        return Response({})

    @action(detail=True, methods=["post"])
    @idempotent(require_key=False)
    def refund(self, request: Any, pk: str) -> Response:
        return Response({"refunded": pk})


@api_view(["POST"])
@permission_classes([permissions.IsAdminUser])
@idempotent
def admins_only(request: Any) -> Response:
    raise AssertionError("nobody may")


def unprotected_routes() -> list[Any]:
    class Plain(ViewSet):
        authentication_classes: Any = (TokenAuthentication,)
        permission_classes: Any = (permissions.IsAuthenticated,)

        def create(self, request: Any) -> Response:
            return Response({}, status=201)

    router = SimpleRouter()
    router.register("payments", Plain, basename="payment")
    return router.urls


@api_view(["POST"])
@idempotent
def below_api_view(request: Any) -> Response:
    Payment.runs += 1
    return Response({}, status=201)


below_api_view.cls.authentication_classes = [TokenAuthentication]
below_api_view.cls.permission_classes = [permissions.IsAuthenticated]

PLACES = {
    "mixin": lambda: path("payments/", Guarded.as_view()),
    "own checks": lambda: path("payments/", Checks.as_view()),
    "class": lambda: path("payments/", idempotent(_copy()).as_view()),
    "method": lambda: path("payments/", method_decorator(idempotent, name="post")(_copy()).as_view()),
    "as_view": lambda: path("payments/", idempotent(Payment.as_view())),
    "path": lambda: idempotent(path("payments/", Payment.as_view())),
    "router": lambda: path("", idempotent(include(unprotected_routes()))),
    "viewset": lambda: path("", include(_router(Payments).urls)),
    "below api_view": lambda: path("payments/", below_api_view),
    "above api_view": lambda: path("payments/", idempotent(below_api_view)),
}


def _copy() -> Any:
    return type("Payment", (Payment,), {})


def _router(viewset: Any) -> SimpleRouter:
    router = SimpleRouter()
    router.register("payments", viewset, basename="payment")
    return router


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("covered", [True, False])
def test_a_replay_comes_after_authentication_and_permissions(
    make_project: MakeProject, mode: str, place: Any, *, covered: bool
) -> None:
    project = make_project(place(), mode=mode, **({} if covered else {"exempt_paths": ["/"]}))
    assert project.post("/payments/", headers=GOOD).status == 201
    for headers, status in ((BAD, 401), ([], 401)):
        assert project.post("/payments/", headers=headers).status == status
        assert project.post("/payments/", key=None, headers=headers).status == status
    replay = project.post("/payments/", headers=GOOD_AGAIN)  # the user counts, not the token
    assert (replay.status, len(replay.all("idempotent-replayed") + replay.all("x-replay"))) == (201, 1)
    assert project.post("/payments/", body=b"[]", headers=GOOD).problem == "key-reused"
    assert project.post("/payments/", key=None, headers=GOOD).problem == "key-missing"


def test_what_a_view_checks_itself_is_checked_before_a_replay(make_project: MakeProject) -> None:
    project = make_project(path("", Checks.as_view()))
    assert project.post(headers=GOOD).status == 201
    assert project.post(headers=[*GOOD, ("X-Frozen", "1")]).status == 403
    assert project.post(headers=GOOD).is_replay


def test_a_replay_counts_at_the_throttle(make_project: MakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    throttled: Any = type("Throttled", (Guarded,), {"throttle_classes": [Throttle]})
    project = make_project(path("", throttled.as_view()))
    assert project.post(headers=GOOD).status == 201
    monkeypatch.setattr(Throttle, "closed", True)
    assert project.post(headers=GOOD).status == 429
    monkeypatch.setattr(Throttle, "closed", False)
    assert project.post(headers=GOOD).is_replay


def test_each_action_has_its_own_options(make_project: MakeProject) -> None:
    """Viewset actions and routes that a router makes are seen (yoyowallet/django-idempotency-key#52)."""
    project = make_project(path("", include(_router(Payments).urls)))
    for method, where, again in (
        ("POST", "/payments/", "true"),
        ("PUT", "/payments/1/", None),
        ("POST", "/payments/1/refund/", "true"),
    ):
        answers = [project.send(method, where, key=f'"{method} {where}"', headers=GOOD) for _ in range(2)]
        assert answers[1].header("x-replay") == again
    assert project.post("/payments/1/refund/", key=None, headers=GOOD).status == 200


def test_options_by_as_view(make_project: MakeProject) -> None:
    project = make_project(
        path("a", Guarded.as_view(idempotency={"require_key": False})), path("b", not_idempotent(Guarded.as_view()))
    )
    assert project.post("/a", key=None, headers=GOOD).status == 201
    assert [project.post("/b", headers=GOOD).is_replay for _ in range(2)] == [False, False]


def test_a_class_is_taken_out_of_a_protected_family(make_project: MakeProject) -> None:
    exempt: Any = not_idempotent(type("Exempt", (Guarded,), {}))
    project = make_project(path("a", exempt.as_view()), path("b", Guarded.as_view()))
    assert [project.post("/a", headers=GOOD).is_replay for _ in range(2)] == [False, False]
    assert [project.post("/b", headers=GOOD).is_replay for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: type("V", (IdempotentMixin, APIView), {"idempotency": {"lease": 1}}), "V.idempotency: lease is not"),
        (lambda: type("V", (IdempotentMixin, APIView), {"idempotency": 3}), "must be a dictionary"),
        (lambda: type("V", (APIView, IdempotentMixin), {}), "must come before APIView"),
        (lambda: Guarded.as_view(idempotency={"on_error": "x"}), "on_error must be one of"),
        (lambda: idempotent(cache_page(1)(Payment.as_view())), "put this one directly on as_view"),
    ],
)
def test_mistakes_are_told_when_the_class_is_made(make: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make()


class Amount(serializers.Serializer[Any]):
    """What it looks for."""

    amount = serializers.IntegerField()


class Validating(APIView):
    """Looks at its data."""

    parser_classes: Any = (JSONParser,)
    authentication_classes: Any = ()

    def post(self, request: Any) -> Response:
        Amount(data=request.data).is_valid(raise_exception=True)
        if request.headers.get("X-Raise"):
            raise ParseError("that amount is nonsense")
        return Response({})


class Failing(APIView):
    """Raises what REST framework handles."""

    authentication_classes: Any = ()

    def post(self, request: Any) -> Response:
        raise APIException(code="broken")


@pytest.mark.parametrize("guarded", [True, False])
def test_what_is_refused_before_the_view_frees_the_key_for_a_mended_request(
    make_project: MakeProject, *, guarded: bool
) -> None:
    view: Any = type("V", (IdempotentMixin, Validating), {}) if guarded else Validating
    project = make_project(path("", view.as_view()))
    assert project.post(body=b"no json").status == 400
    assert project.post(body=b"<a/>", content_type="text/xml").status == 415
    assert project.post(body=b'{"amount": 1}').status == 200
    assert project.post(body=b'{"amount": 1}').is_replay


@pytest.mark.parametrize(("body", "headers"), [(b'{"amount": "x"}', []), (b'{"amount": 1}', [("X-Raise", "1")])])
def test_what_the_view_refuses_itself_is_its_answer(
    make_project: MakeProject, body: bytes, headers: list[tuple[str, str]]
) -> None:
    project = make_project(path("", Validating.as_view()))
    assert project.post(body=body, headers=headers).status == 400
    assert project.post(body=body).is_replay
    assert project.post(body=b'{"amount": 2}').problem == "key-reused"


def test_a_refused_login_does_not_bind_the_key_to_its_credentials(make_project: MakeProject) -> None:
    """Claimed in front of REST framework, the first answer is a 401; with a fresh token the same key works."""
    project = make_project(path("", Payment.as_view()))
    assert project.post(headers=BAD).status == 401
    assert project.post(headers=GOOD).status == 201


def test_a_failure_that_was_handled_runs_again(make_project: MakeProject) -> None:
    project = make_project(path("", Failing.as_view()))
    assert [project.post().status for _ in range(2)] == [500, 500]
    assert project.kinds == ["claimed", "failed", "run_again", "failed"]


def test_a_method_that_the_view_does_not_know_claims_nothing(make_project: MakeProject) -> None:
    project = make_project(path("", Guarded.as_view()))
    assert project.send("PUT", "/", headers=GOOD).status == 405
    assert project.kinds == []


def test_every_parser_gets_the_whole_body(make_project: MakeProject, mode: str) -> None:
    class Upload(IdempotentMixin, APIView):
        authentication_classes: Any = ()

        def post(self, request: Any) -> Response:
            files = {name: file.size for name, file in request.FILES.items()}
            return Response({"data": {} if files else request.data, "files": files})

    project = make_project(path("", Upload.as_view()), mode=mode)
    body, content_type = multipart("b", doc=b"x" * 3_000_000)
    for key, sent, kind, seen in (
        ("a", b'{"a": 1}', "application/json", {"data": {"a": 1}, "files": {}}),
        ("b", b"a=1", "application/x-www-form-urlencoded", {"data": {"a": "1"}, "files": {}}),
        ("c", body, content_type, {"data": {}, "files": {"doc": 3_000_000}}),
    ):
        assert project.post(key=key, body=sent, content_type=kind).json() == seen
        assert project.post(key=key, body=sent, content_type=kind).is_replay


def test_permissions_may_read_the_data(make_project: MakeProject) -> None:
    class Owner(permissions.BasePermission):
        def has_permission(self, request: Any, view: Any) -> bool:
            return bool(request.data["owner"] == "me")

    class Owned(IdempotentMixin, APIView):
        authentication_classes: Any = ()
        permission_classes: Any = (Owner,)

        def post(self, request: Any) -> Response:
            return Response(request.data)

    project = make_project(path("", Owned.as_view()))
    assert project.post(body=b'{"owner": "me"}').json() == {"owner": "me"}
    assert project.post(body=b'{"owner": "me"}').is_replay
    assert project.post(body=b'{"owner": "you"}').status == 403


def test_a_replay_is_rendered_once_and_keeps_the_first_representation(make_project: MakeProject) -> None:
    """The claim at the view answers bytes; nothing is rendered again (mozilla/addons-server#16117)."""
    project = make_project(path("", Guarded.as_view()))
    first = project.post(headers=GOOD)
    replay = project.post(headers=[*GOOD, ("Accept", "text/html")])
    assert (replay.body, replay.header("content-type")) == (first.body, "application/json")
    assert replay.header("location") == "/1"
    assert sorted(replay.all("allow")) == sorted(first.all("allow"))


def test_files_and_plain_answers_pass_through(make_project: MakeProject, tmp_path: Any) -> None:
    (tmp_path / "a.bin").write_bytes(b"abc")

    class Download(IdempotentMixin, APIView):
        authentication_classes: Any = ()

        def post(self, request: Any) -> Any:
            return FileResponse((tmp_path / "a.bin").open("rb"))

        def put(self, request: Any) -> Any:
            return HttpResponse(b"plain")

    project = make_project(path("", Download.as_view()))
    assert [project.post(key="a").body for _ in range(2)] == [b"abc", b"abc"]
    assert [project.send("PUT", "/", key="b").body for _ in range(2)] == [b"plain", b"plain"]


def test_views_on_the_loop_claim_on_the_loop(make_project: MakeProject) -> None:
    """As the packages do that give REST framework coroutines."""
    base: Any = APIView

    class OnLoop(base):  # type: ignore[misc]
        authentication_classes: Any = ()

        async def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            self.request = request = self.initialize_request(request, *args, **kwargs)
            self.headers = self.default_response_headers
            self.initial(request, *args, **kwargs)
            response = await getattr(self, request.method.lower())(request)
            return self.finalize_response(request, response)

    class Async(IdempotentMixin, OnLoop):
        async def post(self, request: Any) -> HttpResponse:
            return HttpResponse(str(request.idempotency.attempt))

    project = make_project(path("", Async.as_view()), mode="asgi")
    assert [(answer.body, answer.is_replay) for answer in (project.post(), project.post())] == [
        (b"1", False),
        (b"1", True),
    ]


def test_what_the_view_does_to_its_data_changes_no_identity(make_project: MakeProject) -> None:
    """The payload was hashed again at the end, when the view had normalised it.

    Sources: aws-powertools/powertools-lambda-typescript#5715, aws-powertools/powertools-lambda-python#1093.
    """

    class Normalising(IdempotentMixin, APIView):
        authentication_classes: Any = ()

        def post(self, request: Any) -> Response:
            request.data["amount"] = float(request.data.pop("amount"))
            request._request.META["QUERY_STRING"] = "changed=1"
            return Response(request.data, status=201)

    project = make_project(path("", Normalising.as_view()))
    first, again = (project.post(body=b'{"amount": "12"}') for _ in range(2))
    assert (first.json(), again.json(), again.is_replay) == ({"amount": 12.0}, {"amount": 12.0}, True)


class Timeout(BaseException):
    """As gevent's: raised into a view from outside, and no `Exception`, which REST framework would handle."""


@pytest.mark.parametrize("mixed_in", [True, False], ids=["mixin", "middleware"])
def test_a_time_out_that_is_no_exception_leaves_the_outcome_open(make_project: MakeProject, *, mixed_in: bool) -> None:
    """Whether it may run again depends on whether it had begun, not on who stopped it (elchin92/avito-mcp#60)."""

    class Slow(APIView):
        authentication_classes: Any = ()

        def post(self, request: Any) -> Response:
            raise Timeout

    view: Any = type("Protected", (IdempotentMixin, Slow), {}) if mixed_in else Slow
    project = make_project(path("", view.as_view()))
    with pytest.raises(Timeout):
        project.post()
    assert project.kinds == ["claimed", "abandoned"]
    assert project.post().problem == "in-progress"


@pytest.mark.parametrize("mixed_in", [True, False], ids=["mixin", "middleware"])
def test_the_browsable_api_is_rendered_once(make_project: MakeProject, *, mixed_in: bool) -> None:
    """A page of HTML is an answer like any other; whoever sends its form without a key is told so."""

    class Browsable(APIView):
        authentication_classes: Any = ()
        renderer_classes: Any = (BrowsableAPIRenderer,)

        def post(self, request: Any) -> Response:
            return Response({"run": 1}, status=201)

    templates = {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(rest_framework.__file__).parent / "templates"],
        "OPTIONS": {"libraries": {"rest_framework": "rest_framework.templatetags.rest_framework"}},
    }
    view: Any = type("Protected", (IdempotentMixin, Browsable), {}) if mixed_in else Browsable
    project = make_project(path("", view.as_view()), more={"TEMPLATES": [templates], "STATIC_URL": "/static/"})
    first, again = project.post(), project.post()
    assert (first.status, first.header("content-type")) == (201, "text/html; charset=utf-8")
    assert b"<html" in first.body
    assert (again.status, again.body, again.is_replay) == (201, first.body, True)
    assert project.post(key=None).status == 400


def test_a_body_over_the_limit_is_refused_behind_the_permissions(make_project: MakeProject) -> None:
    """By its declared length, before it is read (paveg/hono-idempotency#79); a stranger learns nothing of limits."""
    project = make_project(path("", Guarded.as_view()), max_request_bytes=3)
    assert project.post(body=b'{"a": 1}', headers=BAD).status == 401
    assert project.post(body=b'{"a": 1}', headers=GOOD).problem == "request-too-large"
    assert project.post(body=b"{}", headers=GOOD).status == 201
