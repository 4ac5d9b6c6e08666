from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import django
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from idem_django import idempotent, not_idempotent
from idem_middleware import ConfigurationError
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import MIDDLEWARE, Counter

NOBODY = {"exempt_paths": ["/"]}  # opt-in only
SHORT = {"require_key": False, "replay_header": "X-Replay"}


def marked_by(answer: Any) -> str:
    """Whose options made this replay."""
    if answer.header("x-replay"):
        return "own"
    return "default" if answer.is_replay else "none"


class Order(View):
    """A class of views."""

    counter = Counter()

    def post(self, request: HttpRequest) -> HttpResponse:
        return self.counter.view(request)

    put = patch = post


class AsyncOrder(View):
    """One for the loop."""

    async def post(self, request: HttpRequest) -> HttpResponse:
        return Order.counter.view(request)

    async def put(self, request: HttpRequest) -> HttpResponse:
        return Order.counter.view(request)


def class_for(mode: str) -> Any:
    base = Order if mode == "wsgi" else AsyncOrder
    return type(base.__name__, (base,), {})


def on_function(mode: str) -> Any:
    return path("", idempotent(**SHORT)(Order.counter.view_for(mode)))


def on_class(mode: str) -> Any:
    return path("", idempotent(**SHORT)(class_for(mode)).as_view())


def on_dispatch(mode: str) -> Any:
    return path("", method_decorator(idempotent(**SHORT), name="dispatch")(class_for(mode)).as_view())


def on_method_by_name(mode: str) -> Any:
    return path("", method_decorator(idempotent(**SHORT), name="post")(class_for(mode)).as_view())


def on_method(mode: str) -> Any:
    base = class_for(mode)
    cls: Any = type("Decorated", (base,), {"post": idempotent(**SHORT)(base.post)})
    return path("", cls.as_view())


def on_as_view(mode: str) -> Any:
    return path("", idempotent(**SHORT)(class_for(mode).as_view()))


def on_path(mode: str) -> Any:
    return idempotent(**SHORT)(path("", class_for(mode).as_view()))


def on_include(mode: str) -> Any:
    return path("", idempotent(**SHORT)(include([path("", class_for(mode).as_view())])))


def on_included_path(mode: str) -> Any:
    return idempotent(**SHORT)(path("", include([path("", include([path("", class_for(mode).as_view())]))])))


def on_module(mode: str) -> Any:
    module = ModuleType("orders.urls")
    module.urlpatterns = [path("", class_for(mode).as_view())]  # type: ignore[attr-defined]
    return path("", idempotent(**SHORT)(include(module)))


def on_list(mode: str) -> Any:
    [route] = idempotent(**SHORT)([path("", class_for(mode).as_view())])
    return route


def below_another_decorator(mode: str) -> Any:
    return path("", csrf_exempt(idempotent(**SHORT)(Order.counter.view_for(mode))))


WAYS = [
    on_function,
    on_class,
    on_dispatch,
    on_method_by_name,
    on_method,
    on_as_view,
    on_path,
    on_include,
    on_included_path,
    on_module,
    on_list,
    below_another_decorator,
]


def skip_what_django_can_not(way: Any, mode: str) -> None:
    if mode == "asgi" and django.VERSION < (5, 0) and way in (on_method_by_name, below_another_decorator):
        pytest.skip("Django 4.2's own decorators take no coroutines")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("settings", [{}, NOBODY], ids=["all", "opt-in"])
def test_every_way_to_mark_a_view_protects_it(
    make_project: MakeProject, mode: str, way: Any, settings: dict[str, Any]
) -> None:
    """Nowhere is the protection silently off (yoyowallet/django-idempotency-key#52)."""
    skip_what_django_can_not(way, mode)
    Order.counter = Counter()
    project = make_project(way(mode), mode=mode, **settings)
    assert project.post().status == 201
    assert marked_by(project.post()) == "own"
    assert project.post(body=b"[]").problem == "key-reused"
    assert project.post(key=None).status == 201
    assert Order.counter.runs == 2


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_exempt_a_view_leaves_it_alone(make_project: MakeProject, mode: str, way: Any) -> None:
    skip_what_django_can_not(way, mode)
    Order.counter = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(way.__globals__, "idempotent", lambda **options: not_idempotent)
        route = way(mode)
    project = make_project(route, mode=mode)
    assert [project.post(key=key).status for key in ("k", "k", None)] == [201, 201, 201]
    assert (Order.counter.runs, project.kinds) == (3, [])


def test_a_marked_method_leaves_the_others_to_the_settings(make_project: MakeProject, mode: str) -> None:
    skip_what_django_can_not(on_method_by_name, mode)
    Order.counter = Counter()
    project = make_project(on_method_by_name(mode), mode=mode)
    for method, whose in (("POST", "own"), ("PUT", "default")):
        assert project.send(method, "/", key=method).status == 201
        assert marked_by(project.send(method, "/", key=method)) == whose
    project = make_project(on_method_by_name(mode), mode=mode, **NOBODY)
    assert [marked_by(project.send("PUT", "/")) for _ in range(2)] == ["none", "none"]


def test_what_stands_nearer_to_a_view_wins(make_project: MakeProject) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    routes = idempotent(replay_header="X-Outer")(
        include(
            [
                path("plain", view),
                path("own", idempotent(**SHORT)(view)),
                path("exempt", not_idempotent(view)),
                path("inner/", idempotent(**SHORT)(include([path("", view)]))),
                path("class", method_decorator(not_idempotent, name="post")(class_for("wsgi")).as_view()),
            ]
        )
    )
    project = make_project(path("", routes))
    replays = {name: [project.post(f"/{name}", key=name) for _ in range(2)][1] for name in ("plain", "own", "exempt")}
    assert replays["plain"].header("x-outer") == "true"
    assert replays["own"].header("x-replay") == "true"
    assert replays["exempt"].all("x-outer") == []
    assert [project.post("/inner/", key="i").header("x-replay") for _ in range(2)] == [None, "true"]
    assert [project.post("/class", key="c").all("x-outer") for _ in range(2)] == [[], []]


def test_marking_routes_leaves_the_routes_given_alone() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    entry = path("a", view, name="a")
    marked = idempotent(entry)
    assert (entry.callback, marked.name) == (view, "a")
    assert marked.callback is not view
    assert not_idempotent(include(([entry], "shop"), namespace="s"))[1:] == ("shop", "s")


def test_it_claims_where_it_is_written(make_project: MakeProject, mode: str) -> None:
    """Whoever may not call the view does not get its answer either."""
    counter = Counter()

    def members_only(view: Any) -> Any:
        @functools.wraps(view)
        def wrapper(request: HttpRequest) -> Any:
            return view(request) if request.headers.get("X-Member") else HttpResponse(status=403)

        @functools.wraps(view)
        async def async_wrapper(request: HttpRequest) -> Any:
            return await view(request) if request.headers.get("X-Member") else HttpResponse(status=403)

        return wrapper if mode == "wsgi" else async_wrapper

    project = make_project(path("", members_only(idempotent(counter.view_for(mode)))), mode=mode)
    assert project.post(headers=[("X-Member", "1")]).status == 201
    assert (project.post().status, project.post(key=None).status) == (403, 403)
    assert project.post(headers=[("X-Member", "1")]).is_replay


def test_wrappers_that_do_not_tell_what_they_wrap_are_seen_through(make_project: MakeProject) -> None:
    def sloppy(view: Any) -> Any:
        def wrapper(request: HttpRequest) -> Any:
            return view(request) if request.headers.get("X-Member") else HttpResponse(status=403)

        return wrapper

    counter = Counter()
    view = functools.partial(sloppy(sloppy(functools.partial(idempotent(**SHORT)(counter.view_for("wsgi"))))))
    project = make_project(path("", view))
    assert project.post(headers=[("X-Member", "1")]).status == 201
    assert project.post().status == 403
    assert marked_by(project.post(headers=[("X-Member", "1")])) == "own"


def call(view: Any, request: HttpRequest) -> Any:
    return view(request)


def test_a_mark_that_can_not_be_seen_claims_where_the_settings_do_not(make_project: MakeProject) -> None:
    views = {"inner": idempotent(Counter().view_for("wsgi"))}
    project = make_project(path("", lambda request: call(views["inner"], request)), **NOBODY)
    assert [project.post().is_replay for _ in range(2)] == [False, True]


def test_the_outermost_of_several_acts(make_project: MakeProject) -> None:
    view = idempotent(**SHORT)(idempotent(replay_header="X-Inner")(Counter().view_for("wsgi")))
    project = make_project(path("", view), middleware=(*MIDDLEWARE, MIDDLEWARE[-1]))
    project.post()
    replay = project.post()
    assert (marked_by(replay), replay.all("x-inner")) == ("own", [])
    assert project.kinds == ["claimed", "completed", "replayed"]


def test_the_settings_hold_where_a_view_says_nothing(make_project: MakeProject) -> None:
    project = make_project(path("", idempotent(require_key=False)(Counter().view_for("wsgi"))), replay_header="X-Again")
    project.post()
    assert project.post().header("x-again") == "true"


def test_a_view_can_cover_a_method_that_the_settings_do_not(make_project: MakeProject, mode: str) -> None:
    project = make_project(path("", idempotent(methods={"QUERY"})(Counter().view_for(mode))), mode=mode)
    assert [project.send("QUERY", "/").is_replay for _ in range(2)] == [False, True]
    assert [project.post().is_replay for _ in range(2)] == [False, False]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: idempotent(lease_second=1), "did you mean lease_seconds"),
        (lambda: idempotent(on_error="ignore", wait_seconds=-1), r"on_error must be .*; wait_seconds must be"),
        (lambda: idempotent(int), "no class of views"),
        (lambda: idempotent("view"), "no view"),
        (lambda: not_idempotent(3), "no view"),
    ],
)
def test_mistakes_are_told_when_the_module_is_imported(make: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make()


def test_a_lease_longer_than_the_default_maximum_may_be_right() -> None:
    assert callable(idempotent(lease_seconds=3600))


def test_options_that_do_not_fit_the_settings_are_told_at_the_first_request(make_project: MakeProject) -> None:
    view = idempotent(lease_seconds=3600)(Counter().view_for("wsgi"))
    project = make_project(path("", view), more={"DEBUG_PROPAGATE_EXCEPTIONS": True})
    with pytest.raises(ImproperlyConfigured, match="max_execution_seconds"):
        project.post()
    project = make_project(path("", view), max_execution_seconds=7200)
    assert project.post().status == 201


def test_a_protected_view_without_the_middleware_says_what_to_add() -> None:
    view = idempotent(Counter().view_for("wsgi"))
    with pytest.raises(ImproperlyConfigured, match=r'Add "idem_django\.IdempotencyMiddleware" as the last'):
        view(RequestFactory().post("/"))
    assert view(RequestFactory().get("/")).status_code == 201
    assert not_idempotent(Counter().view)(RequestFactory().post("/")).status_code == 201


def test_a_view_called_by_a_protected_view_runs_within_it(make_project: MakeProject) -> None:
    inner = idempotent(**SHORT)(Counter().view_for("wsgi"))

    @idempotent
    def outer(request: HttpRequest) -> HttpResponse:
        return JsonResponse([inner(request).status_code, inner(request).status_code], safe=False)

    project = make_project(path("", outer))
    assert project.post().json() == [201, 201]
    assert marked_by(project.post()) == "default"


def test_sync_and_async_views_work_on_either_server(make_project: MakeProject, mode: str) -> None:
    """A synchronous view claims in its thread, and is recorded on the loop; and the other way round."""
    other = "asgi" if mode == "wsgi" else "wsgi"
    for view in (idempotent(Counter().view_for(other)), Counter().view_for(other)):
        project = make_project(path("", view), mode=mode)
        assert [project.post().is_replay for _ in range(3)] == [False, True, True]
