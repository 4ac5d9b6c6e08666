"""What a replay has of the first answer, and what it has not; with the middleware that stands around or inside."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection, app_of, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio

MARK = ("idempotent-replayed", "true")


async def first_and_replay(app: Any, **request: Any) -> tuple[Connection, Connection]:
    """The same request twice."""
    return await Connection(app, **request).run(), await Connection(app, **request).run()


async def test_a_replay_is_the_answer_again_and_says_so(world: World) -> None:
    """Status, headers in order, repeated ones, every byte (VSN2015/concerns_on_rails#47, ArcadeData/arcadedb#5174)."""
    headers = [
        ("Content-Type", "text/csv; charset=latin-1"),
        ("Location", "/orders/1"),
        ("link", "</a>; rel=a"),
        ("ETag", '"v1"'),
        ("Link", "</b>; rel=b"),
        ("X-Name", "Gr\xfc\xdfe"),
    ]
    protected = IdempotencyMiddleware(app_of(start(202, *headers), body(bytes(range(256)))), engine=world.engine)

    first, replay = await first_and_replay(protected)

    assert first.headers == headers
    assert replay.headers == [*headers, MARK, ("content-length", "256")]
    assert (replay.status, replay.body) == (202, bytes(range(256)))


@pytest.mark.parametrize(
    "name",
    [
        "Set-Cookie",
        "WWW-Authenticate",
        "Date",
        "Server",
        "Age",
        "Retry-After",
        "X-Request-ID",
        "RateLimit-Remaining",
        "X-RateLimit-Remaining",
        "Access-Control-Allow-Origin",
        "Server-Timing",
        "Connection",
        "Keep-Alive",
        "Transfer-Encoding",
    ],
)
async def test_what_belongs_to_one_exchange_is_not_repeated(world: World, name: str) -> None:
    """Sessions, counters, times and framing of the first client (granit-fx/granit-dotnet#1151)."""
    protected = IdempotencyMiddleware(
        app_of(start(200, (name, "x"), ("etag", "1")), body(b"done")), engine=world.engine
    )

    first, replay = await first_and_replay(protected)

    assert first.headers == [(name, "x"), ("etag", "1")]
    assert replay.headers == [("etag", "1"), MARK, ("content-length", "4")]


async def test_the_length_is_that_of_the_replay(world: World) -> None:
    """Once, and right (meziantou/Meziantou.Framework#2155)."""
    protected = IdempotencyMiddleware(app_of(start(200, ("Content-Length", "4")), body(b"done")), engine=world.engine)
    _, replay = await first_and_replay(protected)

    assert replay.headers == [MARK, ("content-length", "4")]


async def test_an_empty_answer_is_replayed_empty(world: World) -> None:
    """A 204 has no length, a 200 without a body has length 0."""
    for status, length in ((204, []), (200, [("content-length", "0")])):
        protected = IdempotencyMiddleware(app_of(start(status), body()), engine=world.engine)
        _, replay = await first_and_replay(protected, key=str(status))
        assert (replay.status, replay.headers, replay.body) == (status, [MARK, *length], b"")


async def test_the_mark_can_have_another_name() -> None:
    """And an application's own header of that name is none."""
    world = World(replay_header="X-Again")
    protected = IdempotencyMiddleware(app_of(start(200, ("x-again", "no")), body(b"x")), engine=world.engine)
    _, replay = await first_and_replay(protected)

    assert [value for name, value in replay.headers if name.lower() == "x-again"] == ["true"]


async def test_headers_can_be_kept_and_dropped() -> None:
    """Each team knows its own."""
    world = World(keep_headers=["Date"], drop_headers=["X-Secret"])
    protected = IdempotencyMiddleware(
        app_of(start(200, ("Date", "then"), ("X-Secret", "s")), body(b"x")), engine=world.engine
    )
    _, replay = await first_and_replay(protected)

    assert replay.headers[0] == ("Date", "then")
    assert replay.header("x-secret") is None


# --- with others ----------------------------------------------------------------------------------------------------


def application(world: World, endpoint: Any, *, outside: Sequence[Any] = (), inside: Sequence[Any] = ()) -> Starlette:
    """One endpoint, with middleware on both sides of ours."""
    return Starlette(
        routes=[Route("/", endpoint, methods=["POST"])],
        middleware=[*outside, Middleware(IdempotencyMiddleware, engine=world.engine), *inside],
    )


async def pay(request: Request) -> Response:
    """Answer with a document that is worth compressing."""
    return PlainTextResponse("paid " * 500, 201)


async def test_cross_origin_headers_are_those_of_the_client_that_asks_now(world: World) -> None:
    """With CORS outside; our own refusals have them, too (koala73/worldmonitor#4769)."""
    cors = Middleware(CORSMiddleware, allow_origins=["https://a", "https://b"], expose_headers=["Idempotent-Replayed"])
    app = application(world, pay, outside=[cors])

    first = await Connection(app, headers=[("origin", "https://a")]).run()
    replay = await Connection(app, headers=[("origin", "https://b")]).run()
    refusal = await Connection(app, key=None, headers=[("origin", "https://b")]).run()

    assert first.header("access-control-allow-origin") == "https://a"
    assert replay.header("access-control-allow-origin") == "https://b"
    assert (replay.is_replay, replay.header("vary")) == (True, "Origin")
    assert replay.header("access-control-expose-headers") == "Idempotent-Replayed"
    assert (refusal.status, refusal.header("access-control-allow-origin")) == (400, "https://b")


async def test_a_preflight_needs_no_key(world: World) -> None:
    """A browser sends none with it."""
    cors = Middleware(CORSMiddleware, allow_origins=["*"], allow_headers=["Idempotency-Key"], allow_methods=["POST"])
    headers = [("origin", "https://a"), ("access-control-request-method", "POST")]
    for place in ({"outside": [cors]}, {"inside": [cors]}):
        app = application(world, pay, **place)
        assert (await Connection(app, method="OPTIONS", key=None, headers=headers).run()).status == 200


async def test_each_client_gets_the_encoding_that_it_asks_for_with_compression_outside(world: World) -> None:
    """What is stored is not compressed."""
    app = application(world, pay, outside=[Middleware(GZipMiddleware)])

    first = await Connection(app, headers=[("accept-encoding", "gzip")]).run()
    replay = await Connection(app, headers=[("accept-encoding", "identity")]).run()

    assert first.header("content-encoding") == "gzip"
    assert (replay.is_replay, replay.header("content-encoding")) == (True, None)
    assert gzip.decompress(first.body) == replay.body == b"paid " * 500


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_compressed_answer_is_replayed_as_it_was_with_compression_inside(
    world: World, *, streamed: bool
) -> None:
    """Bytes and headers fit each other."""

    async def endpoint(request: Request) -> Response:
        return StreamingResponse(iter(["paid "] * 500), 201) if streamed else await pay(request)

    app = application(world, endpoint, inside=[Middleware(GZipMiddleware)])

    first, replay = await first_and_replay(app, headers=[("accept-encoding", "gzip")])

    assert (replay.is_replay, replay.body, replay.header("content-encoding")) == (True, first.body, "gzip")
    assert gzip.decompress(replay.body) == b"paid " * 500
    assert replay.header("vary") == "Accept-Encoding"


@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_a_session_cookie_is_not_given_to_another_client(world: World, place: Any) -> None:
    """A replay from another device gets the answer, not the session."""
    sessions_module = pytest.importorskip("starlette.middleware.sessions", reason="needs itsdangerous")

    async def endpoint(request: Request) -> Response:
        request.session["user"] = "ann"
        return await pay(request)

    sessions: Any = {place: [Middleware(sessions_module.SessionMiddleware, secret_key="secret")]}
    first, replay = await first_and_replay(application(world, endpoint, **sessions))

    assert (first.header("set-cookie") or "").startswith("session=")
    assert (replay.is_replay, replay.header("set-cookie")) == (True, None)


async def stamped(request: Request, call_next: Any) -> Response:
    """A dispatch function that reads the body, and adds a header."""
    read = len(await request.body())
    response: Response = await call_next(request)
    response.headers["x-stamped"] = str(read)
    return response


@pytest.mark.parametrize("place", ["outside", "inside"])
async def test_middleware_of_starlettes_own_kind_works_on_both_sides(world: World, place: Any) -> None:
    """Outside it stamps replays too, inside its stamp is part of the answer."""

    async def endpoint(request: Request) -> Response:
        return JSONResponse({"got": (await request.body()).decode()}, 201)

    stamping: Any = {place: [Middleware(BaseHTTPMiddleware, dispatch=stamped)]}
    first, replay = await first_and_replay(application(world, endpoint, **stamping), pieces=[b"12", b"345"])

    assert (first.status, first.body, first.header("x-stamped")) == (201, b'{"got":"12345"}', "5")
    assert (replay.status, replay.body, replay.header("x-stamped")) == (201, first.body, "5")
    assert replay.is_replay


async def test_a_middleware_that_reads_everything_first_leaves_us_the_body(world: World) -> None:
    """What it read comes again, and is compared."""
    app = application(world, pay, outside=[Middleware(BaseHTTPMiddleware, dispatch=stamped)])
    await Connection(app, pieces=[b"one"]).run()

    assert (await Connection(app, pieces=[b"other"]).run()).problem == "key-reused"


async def test_authentication_outside_is_asked_for_replays_too(world: World) -> None:
    """Who may no longer see the answer does not (margince/margince#5315)."""
    revoked = False

    async def authenticated(request: Request, call_next: Any) -> Response:
        if revoked:
            return PlainTextResponse("no", 403)
        response: Response = await call_next(request)
        return response

    app = application(world, pay, outside=[Middleware(BaseHTTPMiddleware, dispatch=authenticated)])
    assert (await Connection(app).run()).status == 201
    revoked = True

    assert (await Connection(app).run()).status == 403


async def test_names_of_headers_are_in_lower_case(world: World) -> None:
    """Those that we add, as ASGI has it; those of an application are its own."""
    protected = IdempotencyMiddleware(app_of(start(201, ("location", "/1")), body(b"x")), engine=world.engine)
    await Connection(protected).run()
    for sent in (await Connection(protected).run(), await Connection(protected, key=None).run()):
        assert [name for name, _ in sent.headers] == [name.lower() for name, _ in sent.headers]
