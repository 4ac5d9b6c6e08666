"""What the middleware leaves alone: nothing is buffered, nothing is changed."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection, app_of, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio


class Spy:
    """Remembers what it was called with, and answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls.append((scope, receive, send))
        await send(start(200))
        await send(body())


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
async def test_methods_that_change_nothing_get_the_servers_own_scope_receive_and_send(
    world: World, method: str
) -> None:
    """Even a malformed key is no business of ours there."""
    spy = Spy()
    sent = Connection(IdempotencyMiddleware(spy, engine=world.engine), method=method, key='"')
    scope, receive, send = dict(sent.scope), sent.receive, sent.send

    await sent.run()

    assert spy.calls == [(sent.scope, receive, send)]
    assert sent.scope == scope
    assert world.calls == []


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"exempt_paths": ["/hooks"]}, "k"),
        ({"paths": ["/payments"]}, "k"),
        ({"methods": ["PUT"]}, "k"),
        ({"mode": "off"}, '"'),
        ({"require_key": False}, None),
    ],
    ids=["exempt path", "another path", "another method", "switched off", "no key, none required"],
)
async def test_uncovered_posts_get_the_servers_own_scope_receive_and_send(
    world: World, options: dict[str, Any], key: str | None
) -> None:
    """No key is no record, no read and no write (aws-powertools/powertools-lambda-python#2465)."""
    spy = Spy()
    sent = Connection(IdempotencyMiddleware(spy, engine=world.engine, **options), path="/hooks/x", key=key)
    scope, receive, send = dict(sent.scope), sent.receive, sent.send

    await sent.run()

    assert spy.calls == [(sent.scope, receive, send)]
    assert sent.scope == scope
    assert world.calls == []


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "something new"])
async def test_what_is_no_http_request_reaches_the_application(world: World, kind: str) -> None:
    """Only http scopes are touched, and only they have a method (simonw/asgi-csrf#15, getsentry/sentry-python#700)."""
    spy = Spy()
    protected = IdempotencyMiddleware(spy, engine=world.engine)
    sent = Connection(protected)
    scope: dict[str, Any] = {"type": kind, "headers": [(b"idempotency-key", b'"')]}

    await protected(scope, sent.receive, sent.send)

    assert [(given, receive) for given, receive, _ in spy.calls] == [(scope, sent.receive)]
    assert scope == {"type": kind, "headers": [(b"idempotency-key", b'"')]}
    assert sent.kinds == ["start", "end"]


async def test_an_instance_further_inside_steps_aside(world: World) -> None:
    """Else it would see its own claim as a duplicate."""
    inner = IdempotencyMiddleware(app_of(start(201), body(b"done")), engine=world.engine)
    app = IdempotencyMiddleware(inner, engine=world.engine)

    first = await Connection(app).run()
    second = await Connection(app).run()

    assert (first.status, first.is_replay) == (201, False)
    assert (second.status, second.is_replay) == (201, True)
    assert world.calls == ["create", "swap", "create"]


async def test_an_instance_further_inside_acts_where_the_outer_one_is_exempt(world: World) -> None:
    """So that a route can have options of its own."""
    inner = IdempotencyMiddleware(app_of(start(201), body(b"done")), engine=world.engine)
    app = IdempotencyMiddleware(inner, engine=world.engine, exempt_paths=["/"])

    await Connection(app).run()

    assert (await Connection(app).run()).is_replay


async def test_the_scope_is_free_again_when_the_request_is_over(world: World) -> None:
    """Whoever stands outside and sends the same scope again is protected again."""
    app = IdempotencyMiddleware(app_of(start(201), body(b"done")), engine=world.engine)
    sent = await Connection(app).run()

    again = Connection(app)
    again.scope = sent.scope

    assert (await again.run()).is_replay


async def test_the_paths_are_those_of_the_applications_own_routes(world: World) -> None:
    """What a server or a mount puts before them is none of its business."""
    spy = Spy()
    app = IdempotencyMiddleware(spy, engine=world.engine, exempt_paths=["/hooks"])

    await Connection(app, path="/v1/hooks", root_path="/v1").run()
    await Connection(app, path="/hooks", root_path="/behind-a-stripping-proxy", key="2").run()
    await Connection(app, path="/v1hooks", root_path="/v1", key="3").run()

    assert world.calls == ["create", "swap"]  # the last one alone


async def test_a_stream_of_an_uncovered_request_stays_incremental(world: World) -> None:
    """The client of a download sees each piece when it is sent."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start(200))
        await send(body(b"first", more=True))
        await gate.wait()
        await send(body(b"last"))

    async with asyncio.TaskGroup() as group:
        sent = Connection(IdempotencyMiddleware(app, engine=world.engine), method="GET").begun_in(group)
        await sent.until(lambda c: c.body == b"first")
        gate.set()
    assert sent.body == b"firstlast"


async def test_a_protected_request_leaves_the_routers_findings_in_the_scope(world: World) -> None:
    """Whoever measures requests from outside reads the endpoint there."""

    async def pay(request: Request) -> PlainTextResponse:
        return PlainTextResponse("paid")

    seen: list[object] = []

    class Outside:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self.app(scope, receive, send)
            seen.append(scope.get("endpoint"))

    app = Starlette(
        routes=[Route("/", pay, methods=["POST"])],
        middleware=[Middleware(Outside), Middleware(IdempotencyMiddleware, engine=world.engine)],
    )
    await Connection(app).run()

    assert seen == [pay]


async def test_messages_that_nobody_knows_pass(world: World) -> None:
    """What later versions of ASGI bring before or beside an answer is forwarded."""
    news: Message = {"type": "http.response.something_new", "answer": 42}
    sent = await Connection(IdempotencyMiddleware(app_of(news, start(200), body(b"x")), engine=world.engine)).run()

    assert sent.sent[0] == news
    assert sent.body == b"x"
