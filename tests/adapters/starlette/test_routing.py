"""Routes, mounts and methods: what no view answered leaves the key free."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio


async def pay(request: Request) -> Response:
    """The view."""
    lease = getattr(request.state, "idempotency", None)
    return PlainTextResponse("paid" if lease is None else f"paid in attempt {lease.attempt}", 201)


async def missing(request: Request) -> Response:
    """A view that finds nothing."""
    return PlainTextResponse("no such order", 404)


async def through(request: Request, call_next: Any) -> Response:
    """A middleware that does nothing."""
    response: Response = await call_next(request)
    return response


def protected(world: World, *routes: Any, **options: Any) -> Starlette:
    """An application whose every request is protected."""
    return Starlette(routes=[*routes], middleware=[Middleware(IdempotencyMiddleware, engine=world.engine, **options)])


async def test_the_view_finds_its_lease(world: World) -> None:
    """At `request.state.idempotency`."""
    assert (await Connection(protected(world, Route("/", pay, methods=["POST"]))).run()).body == b"paid in attempt 1"


async def test_one_route_can_be_protected_alone(world: World) -> None:
    """In Starlette's own way, with options of its own."""
    ours = [Middleware(IdempotencyMiddleware, engine=world.engine, require_key=False)]
    app = Starlette(
        routes=[
            Route("/pay", pay, methods=["POST", "GET"], middleware=ours),
            Route("/other", pay, methods=["POST"]),
            Mount("/mounted", routes=[Route("/pay", pay, methods=["POST"])], middleware=ours),
        ]
    )
    for path in ("/pay", "/mounted/pay"):
        first = await Connection(app, path=path, key=path[1:]).run()
        assert (first.body, first.is_replay) == (b"paid in attempt 1", False)
        assert (await Connection(app, path=path, key=path[1:]).run()).is_replay
        assert (await Connection(app, path=path, key=None).run()).body == b"paid"
    for _ in range(2):
        assert (await Connection(app, path="/other").run()).body == b"paid"
    assert (await Connection(app, path="/pay", method="GET").run()).body == b"paid"


async def test_a_redirect_to_the_other_slash_leaves_the_key_to_its_target(world: World) -> None:
    """The client sends the same request there, with the same key."""
    app = protected(world, Route("/pay/", pay, methods=["POST"]))

    redirect = await Connection(app, path="/pay").run()
    target = await Connection(app, path="/pay/").run()

    assert (redirect.status, redirect.header("location")) == (307, "http://testserver/pay/")
    assert (target.status, target.is_replay) == (201, False)


def mounted_deep() -> Mount:
    """A mount in a mount, with middleware between."""
    return Mount(
        "/a",
        routes=[
            Mount(
                "/b",
                app=Starlette(routes=[Route("/pay", pay)]),
                middleware=[Middleware(BaseHTTPMiddleware, dispatch=through)],
            )
        ],
    )


@pytest.mark.parametrize(
    ("routes", "path"),
    [
        ([], "/pay"),
        ([Mount("/sub", routes=[Route("/pay", pay)])], "/sub/other"),
        ([Mount("/sub", app=Starlette(routes=[Route("/pay", pay)]))], "/sub/other"),
        ([Mount("/sub", app=Router([Route("/pay", pay)]))], "/sub/other"),
        ([mounted_deep()], "/a/b/other"),
        ([mounted_deep()], "/a/other"),
        ([Host("testserver", app=Router([Route("/pay", pay)]))], "/other"),
    ],
    ids=[
        "no route",
        "mounted routes",
        "mounted application",
        "mounted router",
        "behind middleware",
        "above it",
        "host",
    ],
)
async def test_a_path_that_no_route_knows_leaves_the_key_free(world: World, routes: list[Any], path: str) -> None:
    """A worker of yesterday answers 404, one of today knows the route."""
    headers = [("host", "testserver")]
    unknown = await Connection(protected(world, *routes), path=path, headers=headers).run()
    known = await Connection(protected(world, Route(path, pay, methods=["POST"])), path=path, headers=headers).run()

    assert unknown.status == 404
    assert (known.status, known.is_replay, known.body) == (201, False, b"paid in attempt 1")


@pytest.mark.parametrize(
    "route",
    [
        Route("/sub/x", missing, methods=["POST"]),
        Mount("/sub", routes=[Route("/x", missing, methods=["POST"])]),
        Mount("/sub", app=PlainTextResponse("not here", 404)),
        Mount("/sub", app=BaseHTTPMiddleware(PlainTextResponse("not here", 404), through)),
    ],
    ids=["view", "mounted view", "mounted application without routes", "the same behind a middleware"],
)
async def test_a_404_of_a_view_is_final(world: World, route: Any) -> None:
    """It is repeated, though the thing may be there by now."""
    app = protected(world, route)
    assert (await Connection(app, path="/sub/x").run()).status == 404
    assert (await Connection(app, path="/sub/x").run()).is_replay


async def test_what_stands_in_for_unknown_routes_is_a_view(world: World) -> None:
    """`Router.default` may be a whole application of its own: what it did is not done again."""
    app = protected(world)

    async def legacy(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("paid", 201)(scope, receive, send)

    app.router.default = legacy

    assert (await Connection(app).run()).status == 201
    assert (await Connection(app).run()).is_replay


class Orders(HTTPEndpoint):
    """An endpoint with one method."""

    async def post(self, request: Request) -> Response:
        """Pay."""
        return await pay(request)


@pytest.mark.parametrize(
    "route",
    [
        Route("/", pay, methods=["GET"]),
        Route("/", Orders),
        Mount("/", routes=[Route("/", pay, methods=["GET"])]),
    ],
    ids=["route", "endpoint", "mounted route"],
)
@pytest.mark.parametrize("within_starlette", [True, False])
async def test_a_method_that_no_handler_takes_leaves_the_key_free(
    world: World, route: Any, *, within_starlette: bool
) -> None:
    """The 405 says so by its Allow."""
    router: Any = Starlette(routes=[route]) if within_starlette else Router([route])
    app = IdempotencyMiddleware(router, engine=world.engine)

    refused = await Connection(app, method="PUT").run()

    assert (refused.status, world.kinds) == (405, ["claimed", "released"])
    again = protected(world, Route("/", pay, methods=["PUT"]))
    assert (await Connection(again, method="PUT").run()).body == b"paid in attempt 1"


async def test_a_405_of_a_view_is_its_own_word(world: World) -> None:
    """It took the method, and has something against it."""

    async def closed(request: Request) -> Response:
        return PlainTextResponse("closed today", 405, headers={"Allow": "POST"})

    app = protected(world, Route("/", closed, methods=["POST"]))
    await Connection(app).run()

    assert (await Connection(app).run()).is_replay


async def test_the_same_key_on_another_path_is_another_request(world: World) -> None:
    """Never a foreign replay (nensii21/devlink#1195)."""
    app = protected(world, Route("/items/{id}", pay, methods=["PUT"]))
    await Connection(app, method="PUT", path="/items/1").run()

    assert (await Connection(app, method="PUT", path="/items/2").run()).problem == "key-reused"


async def test_another_frameworks_404_is_its_views(world: World) -> None:
    """Without Starlette's router nobody can tell."""
    app = IdempotencyMiddleware(PlainTextResponse("?", 404), engine=world.engine)
    await Connection(app).run()

    assert (await Connection(app).run()).is_replay
