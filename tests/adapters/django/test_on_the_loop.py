from __future__ import annotations

import asyncio
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import SyncToAsync, iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory
from django.urls import path
from django.utils import translation
from django.utils.decorators import sync_and_async_middleware

from idem_django import IdempotencyMiddleware, idempotent
from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import IDEMPOTENCY, MIDDLEWARE, Counter, notices_leaving

LINES = [("Idempotency-Key", "k"), ("Content-Type", "application/json")]
HERE = "tests.adapters.django.test_on_the_loop."

visitor: ContextVar[str] = ContextVar("visitor", default="nobody")


class SyncOnly:
    """As most middleware was written before Django knew coroutines."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        response = self.get_response(request)
        response["X-Sync"] = "1"
        return response


@sync_and_async_middleware
def names_the_visitor(get_response: Any) -> Any:
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> Any:
            visitor.set("ann")
            response = await get_response(request)
            response["X-Visitor"] = visitor.get()
            return response

        return middleware

    def sync_middleware(request: HttpRequest) -> Any:
        visitor.set("ann")
        response = get_response(request)
        response["X-Visitor"] = visitor.get()
        return response

    return sync_middleware


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent to another thread."""
    seen: list[str] = []
    original, submit = SyncToAsync.__call__, ThreadPoolExecutor.submit

    async def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(getattr(self.func, "__qualname__", repr(self.func)))
        return await original(self, *args, **kwargs)

    here = threading.get_ident()

    def submitted(self: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == here:  # other tests' threads may have work left
            seen.append("submit")
        return submit(self, function, *args, **kwargs)

    monkeypatch.setattr(SyncToAsync, "__call__", counted)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submitted)
    return seen


@sync_and_async_middleware
def nothing(get_response: Any) -> Any:
    """A middleware that does what every middleware does, and nothing else."""
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> Any:
            return await get_response(request)

        return middleware
    return functools.partial(get_response)


@pytest.mark.parametrize("decorate", [lambda view: view, idempotent], ids=["middleware", "decorator"])
def test_no_thread_hop_is_added(make_project: MakeProject, hops: list[str], decorate: Any) -> None:
    """Async all through (ajslater/codex#673): as many hops as Django makes without us, for a run and for a replay."""
    counted: dict[str, list[list[str]]] = {}
    for middleware in (HERE + "nothing", IDEMPOTENCY):
        view = decorate(Counter().view_for("asgi")) if middleware == IDEMPOTENCY else Counter().view_for("asgi")
        project = make_project(path("", view), mode="asgi", middleware=(middleware,))
        counted[middleware] = []
        for _ in range(2):
            hops.clear()
            assert project.post().status == 201
            counted[middleware].append(list(hops))
    assert counted[IDEMPOTENCY] == counted[HERE + "nothing"]


def test_the_caller_costs_no_hop_without_a_session(make_project: MakeProject, hops: list[str]) -> None:
    chain = (
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    )
    more = {"SESSION_ENGINE": "django.contrib.sessions.backends.signed_cookies"}
    lengths = []
    for middleware in (HERE + "nothing", IDEMPOTENCY):
        project = make_project(
            path("", Counter().view_for("asgi")), mode="asgi", middleware=(*chain, middleware), more=more
        )
        project.post()
        hops.clear()
        project.post()
        lengths.append(len(hops))
    assert lengths[0] == lengths[1]


def test_a_large_body_is_read_and_compared_off_the_loop(make_project: MakeProject) -> None:
    threads: set[int] = set()

    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def payload(request: Any) -> str:
        threads.add(threading.get_ident())
        return "same"

    project = make_project(path("", view), mode="asgi", payload=payload)
    assert project.post(body=b"x" * 3_000_000).status == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    "middleware",
    [
        (IDEMPOTENCY,),
        (HERE + "SyncOnly", IDEMPOTENCY),
        (IDEMPOTENCY, HERE + "SyncOnly"),
        (HERE + "SyncOnly", IDEMPOTENCY, HERE + "nothing"),
        (HERE + "nothing", IDEMPOTENCY, HERE + "SyncOnly"),
        (HERE + "SyncOnly", HERE + "nothing", IDEMPOTENCY, HERE + "SyncOnly", HERE + "nothing"),
    ],
    ids=lambda chain: "-".join("us" if name == IDEMPOTENCY else name.removeprefix(HERE) for name in chain),
)
@pytest.mark.parametrize("kind", ["sync", "async", "decorated sync", "decorated async"])
def test_it_works_between_middleware_of_both_kinds(
    make_project: MakeProject, middleware: tuple[str, ...], kind: str
) -> None:
    counter = Counter()
    view = counter.view_for("asgi" if "async" in kind else "wsgi")
    if "decorated" in kind:
        view = idempotent(view)
    project = make_project(path("", view), mode="asgi", middleware=middleware)
    assert [project.post().is_replay for _ in range(3)] == [False, True, True]
    assert project.post(body=b"[]").problem == "key-reused"
    assert counter.runs == 1


def test_context_variables_pass_in_and_out(make_project: MakeProject, mode: str) -> None:
    """What was set before is seen in the view, and what the view sets outside of it (ctrliq/ascender#964)."""

    def view(request: HttpRequest) -> HttpResponse:
        answer = HttpResponse(visitor.get())
        visitor.set("bob")
        translation.activate("fr")
        return answer

    async def async_view(request: HttpRequest) -> HttpResponse:
        return view(request)

    project = make_project(
        path("", view if mode == "wsgi" else async_view),
        mode=mode,
        middleware=("django.middleware.locale.LocaleMiddleware", HERE + "names_the_visitor", *MIDDLEWARE),
    )
    answer = project.post()
    assert (answer.body, answer.header("x-visitor"), answer.header("content-language")) == (b"ann", "bob", "fr")


def test_a_client_that_leaves_does_not_undo_the_work(make_project: MakeProject) -> None:
    """The view is not cancelled half-way; the retry gets its answer."""

    async def scenario() -> None:
        entered, gate, seen = asyncio.Event(), asyncio.Event(), list[str]()

        async def view(request: HttpRequest) -> HttpResponse:
            entered.set()
            try:
                await gate.wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            return JsonResponse({"done": True})

        project = make_project(path("", view), mode="asgi")
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await entered.wait()
        connection.leave()
        retry = await project.over_asgi("POST", "/", b"{}", LINES)
        assert retry.problem == "in-progress"
        gate.set()
        await running
        assert seen == []
        answer = await project.over_asgi("POST", "/", b"{}", LINES)
        assert (answer.json(), answer.is_replay) == ({"done": True}, True)

    asyncio.run(asyncio.wait_for(scenario(), 20))


@notices_leaving
def test_a_stream_of_a_client_that_left_is_recorded_whole(make_project: MakeProject) -> None:
    async def scenario() -> None:
        entered, gate = asyncio.Event(), asyncio.Event()

        async def pieces() -> Any:
            yield b"one "
            yield b"two"

        def sync_pieces() -> Any:
            yield from (b"one ", b"two")

        for make in (pieces, sync_pieces):

            async def view(request: HttpRequest, make: Any = make) -> StreamingHttpResponse:
                entered.set()
                await gate.wait()
                return StreamingHttpResponse(make())

            entered.clear()
            gate.clear()
            project = make_project(path("", view), mode="asgi")
            connection = project.connection("POST", "/", b"{}", LINES)
            running = asyncio.create_task(connection.run())
            await entered.wait()
            connection.leave()
            await asyncio.sleep(0)
            gate.set()
            await running
            answer = await project.over_asgi("POST", "/", b"{}", LINES)
            assert (answer.body, answer.is_replay) == (b"one two", True)

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_work_that_is_cancelled_twice_is_given_up(make_project: MakeProject) -> None:
    async def scenario() -> None:
        entered = asyncio.Event()

        async def view(request: HttpRequest) -> HttpResponse:
            entered.set()
            await asyncio.Event().wait()
            return HttpResponse()

        project = make_project(path("", view), mode="asgi")
        middleware = IdempotencyMiddleware(_resolved(view))
        request = _request()
        running = asyncio.ensure_future(_call(middleware, request))
        await entered.wait()
        running.cancel()
        await asyncio.sleep(0)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert project.kinds == ["claimed", "abandoned"]

    asyncio.run(asyncio.wait_for(scenario(), 20))


@notices_leaving
def test_unprotected_work_is_cancelled_as_ever(make_project: MakeProject) -> None:
    async def scenario() -> None:
        entered, seen = asyncio.Event(), list[str]()

        async def view(request: HttpRequest) -> HttpResponse:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            return HttpResponse()

        project = make_project(path("", view), mode="asgi", require_key=False)
        connection = project.connection("POST", "/", b"{}", [])
        running = asyncio.create_task(connection.run())
        await entered.wait()
        connection.leave()
        await running
        assert (seen, connection.sent, project.kinds) == (["cancelled"], [], [])

    asyncio.run(asyncio.wait_for(scenario(), 20))


@notices_leaving
def test_a_view_that_hangs_after_its_client_left_ends_with_the_longest_execution(make_project: MakeProject) -> None:
    async def scenario() -> None:
        entered = asyncio.Event()

        async def view(request: HttpRequest) -> HttpResponse:
            entered.set()
            await asyncio.Event().wait()
            return HttpResponse()

        project = make_project(path("", view), mode="asgi", lease_seconds=1, max_execution_seconds=1)
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await entered.wait()
        connection.leave()
        await running
        assert project.kinds[0] == "claimed"
        assert "abandoned" in project.kinds

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_different_keys_do_not_wait_for_each_other(make_project: MakeProject, mode: str) -> None:
    """Contention is per record (yoyowallet/django-idempotency-key#60)."""
    together = threading.Barrier(2)

    def view(request: HttpRequest) -> HttpResponse:
        together.wait(timeout=10)
        return HttpResponse()

    async def async_view(request: HttpRequest) -> HttpResponse:
        return await sync_to_async(view, thread_sensitive=False)(request)

    project = make_project(path("", view if mode == "wsgi" else async_view), mode=mode)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda key: project.post(key=key), ["a", "b"]))
    assert [answer.status for answer in answers] == [200, 200]


def test_of_many_at_once_one_runs(make_project: MakeProject, mode: str) -> None:
    """The claim is made before the view, not looked up and written later (mastodon/mastodon#37879)."""
    counter = Counter()
    gate = threading.Event()

    def view(request: HttpRequest) -> HttpResponse:
        gate.wait(timeout=10)
        return counter.view(request)

    async def async_view(request: HttpRequest) -> HttpResponse:
        return await sync_to_async(view, thread_sensitive=False)(request)

    project = make_project(path("", view if mode == "wsgi" else async_view), mode=mode)
    with ThreadPoolExecutor(20) as pool:
        running = [pool.submit(project.post) for _ in range(20)]
        while sum(future.done() for future in running) < 19:
            threading.Event().wait(0.005)
        gate.set()
        answers = [future.result() for future in running]
    assert sorted(answer.status for answer in answers) == [201, *[409] * 19]
    assert counter.runs == 1


def _request() -> Any:
    return AsyncRequestFactory().post("/", b"{}", content_type="application/json", headers={"Idempotency-Key": "k"})


def _resolved(view: Any) -> Any:
    async def get_response(request: HttpRequest) -> Any:
        answer = await _middleware[-1].process_view(request, view, (), {})
        return answer or await view(request)

    return get_response


_middleware: list[IdempotencyMiddleware] = []


async def _call(middleware: IdempotencyMiddleware, request: Any) -> Any:
    _middleware.append(middleware)
    return await middleware(request)  # type: ignore[misc]
