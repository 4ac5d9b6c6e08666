"""The application sees its request as if nobody had read it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from idem_middleware.body import SPOOL_BYTES
from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection, app_of, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio

Read = Callable[[Request], Awaitable[Any]]


def reader(read: Read) -> Any:
    """An application that answers with what it read."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse(await read(Request(scope, receive)))(scope, receive, send)

    return app


def encoded(**parts: Any) -> dict[str, Any]:
    """Headers and body as an HTTP client makes them."""
    request = httpx.Request("POST", "http://testserver/", **parts)
    return {
        "headers": [(name, value) for name, value in request.headers.items() if name != "host"],
        "pieces": [request.read()],
    }


async def as_body(request: Request) -> str:
    """All at once."""
    return (await request.body()).decode()


async def as_stream(request: Request) -> str:
    """As it comes."""
    return b"".join([piece async for piece in request.stream()]).decode()


async def as_json(request: Request) -> Any:
    """As a document."""
    return await request.json()


async def as_form(request: Request) -> list[list[str]]:
    """As fields and files."""
    async with request.form() as form:
        return [
            [name, f"{part.filename}: {(await part.read()).decode()}" if isinstance(part, UploadFile) else part]
            for name, part in form.multi_items()
        ]


@pytest.mark.parametrize(
    ("read", "parts", "expected"),
    [
        (as_body, {"content": b"text"}, "text"),
        (as_stream, {"content": b"text"}, "text"),
        (as_json, {"json": {"a": [1]}}, {"a": [1]}),
        (as_form, {"data": {"a": "1", "b": "ä"}}, [["a", "1"], ["b", "ä"]]),
        (
            as_form,
            {"data": {"a": "1"}, "files": {"f": ("x.txt", b"content", "text/plain")}},
            [["a", "1"], ["f", "x.txt: content"]],
        ),
        (as_body, {"content": b""}, ""),
        (as_stream, {"content": b""}, ""),
        (as_form, {"content": b""}, []),
    ],
    ids=["body", "stream", "json", "form", "multipart", "no body", "no stream", "no form"],
)
@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000_000])
async def test_the_body_can_be_read_in_every_way(
    world: World, read: Read, parts: dict[str, Any], expected: Any, piece_bytes: int
) -> None:
    """However it came (Kludex/starlette#495, #847, #2555)."""
    sent = encoded(**parts)
    whole = sent["pieces"][0]
    sent["pieces"] = [whole[at : at + piece_bytes] for at in range(0, len(whole), piece_bytes)] or [b""]
    protected = IdempotencyMiddleware(reader(read), engine=world.engine)

    first = await Connection(protected, **sent).run()
    bare = await Connection(reader(read), **encoded(**parts)).run()

    assert first.body == bare.body
    assert first.status == 200


@pytest.mark.parametrize(
    "pieces",
    [[b"", b"text"], [b"text", b""], [b"te", b"", b"xt", b""], [b"", b"", b""]],
    ids=["empty first", "empty last", "empty between", "nothing but empty"],
)
async def test_empty_pieces_change_nothing(world: World, pieces: list[bytes]) -> None:
    """Servers send an empty one for the end of a chunked body."""
    protected = IdempotencyMiddleware(reader(as_stream), engine=world.engine)
    whole = b"".join(pieces)

    assert (await Connection(protected, pieces=pieces).run()).body == b'"%s"' % whole
    assert (await Connection(protected, pieces=[whole]).run()).is_replay


async def test_the_body_comes_in_one_piece_where_it_came_in_one(world: World) -> None:
    """Some hand-written applications read no further."""
    seen: list[dict[str, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(await receive()))
        await JSONResponse({})(scope, receive, send)

    await Connection(IdempotencyMiddleware(app, engine=world.engine), pieces=[b"x" * 65536]).run()

    assert seen == [{"type": "http.request", "body": b"x" * 65536, "more_body": False}]


async def test_messages_that_nobody_knows_do_not_end_the_body(world: World) -> None:
    """What later versions of ASGI bring in between is no piece of it."""
    sent = Connection(IdempotencyMiddleware(reader(as_body), engine=world.engine), pieces=[b"a", b"b"])
    real, news = sent.receive, iter([False, True])

    async def receive() -> Any:
        return {"type": "http.request.news"} if next(news, False) else await real()

    sent.receive = receive  # type: ignore[method-assign]

    assert (await sent.run()).body == b'"ab"'


async def test_what_the_server_tells_after_the_body_passes(world: World) -> None:
    """It may be more than that the client left."""
    news = {"type": "http.request.trailers"}
    seen: list[Any] = []
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

        async def tell() -> Any:
            return news

        sent.receive = tell  # type: ignore[method-assign]
        seen.append(await receive())
        await JSONResponse({})(scope, receive, send)

    async def receive() -> Any:
        return await sent.receive()

    protected = IdempotencyMiddleware(app, engine=world.engine)
    sent = Connection(protected)
    await protected(sent.scope, receive, sent.send)

    assert seen == [news]


async def test_a_large_body_goes_to_a_file_and_comes_back_whole(world: World) -> None:
    """In memory there is never more than a piece of it."""
    piece, count = b"0123456789abcdef" * 4096, 40
    largest: list[int] = []

    async def digest(request: Request) -> str:
        whole = hashlib.sha256()
        async for chunk in request.stream():
            largest.append(len(chunk))
            whole.update(chunk)
        return whole.hexdigest()

    protected = IdempotencyMiddleware(reader(digest), engine=world.engine)
    sent = await Connection(protected, pieces=[piece] * count).run()

    assert len(piece) * count > 2 * SPOOL_BYTES
    assert sent.body == b'"%s"' % hashlib.sha256(piece * count).hexdigest().encode()
    assert max(largest) <= len(piece)
    assert (await Connection(protected, pieces=[piece * count]).run()).is_replay


async def test_another_body_is_another_request(world: World) -> None:
    """On every way to a record; the first answer stays (aws-powertools/powertools-lambda-python#3781)."""
    protected = IdempotencyMiddleware(reader(as_body), engine=world.engine)
    await Connection(protected, pieces=[b"amount=100"]).run()

    assert (await Connection(protected, pieces=[b"amount=900"]).run()).problem == "key-reused"
    assert (await Connection(protected, pieces=[b"amount=100"]).run()).body == b'"amount=100"'


async def test_a_handler_that_changes_its_scope_does_not_change_what_the_request_was(world: World) -> None:
    """What is compared was read before it ran (aws-powertools/powertools-lambda-typescript#5715)."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = "/elsewhere"
        scope["raw_path"] = b"/elsewhere"
        scope["query_string"] = b"changed=1"
        scope["headers"].append((b"content-type", b"text/changed"))
        await JSONResponse({})(scope, receive, send)

    protected = IdempotencyMiddleware(app, engine=world.engine)
    await Connection(protected).run()

    assert (await Connection(protected).run()).is_replay


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"path": "/a", "raw_path": b"/a%2Fb"}, {"path": "/a", "raw_path": b"/a/b"}, False),
        ({"raw_path": None}, {"raw_path": b"/"}, True),
        ({"raw_path": b"/?x=1"}, {"raw_path": b"/"}, True),
        ({"query": b"a=1&b=2"}, {"query": b"b=2&a=1"}, True),
        ({"query": b"dry=1"}, {}, False),
        ({"method": "PUT"}, {"method": "PATCH"}, False),
    ],
    ids=["raw path", "no raw path", "raw path with a query", "query in another order", "dry run", "method"],
)
async def test_what_makes_two_requests_the_same(
    world: World, first: dict[str, Any], second: dict[str, Any], *, same: bool
) -> None:
    """The path as it was sent where the server tells it, the query in any order (pathosDev/actor-ts#609)."""
    protected = IdempotencyMiddleware(app_of(start(201), body(b"done")), engine=world.engine)
    await Connection(protected, **first).run()
    retry = await Connection(protected, **second).run()

    assert (retry.is_replay, retry.problem) == ((True, None) if same else (False, "key-reused"))


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "pieces", "received"),
    [
        ("11", [b"x" * 11], 0),
        ("9" * 30, [b"x"], 0),
        ("0" * 30 + "11", [b"x" * 11], 0),
        (None, [b"x" * 11], 1),
        (None, [b"x" * 6, b"x" * 5, b"x"], 2),
        ("3", [b"x" * 6, b"x" * 5, b"x"], 2),
        ("²", [b"x" * 11], 1),
    ],
    ids=["declared", "declared beyond reason", "declared with zeros", "whole", "in pieces", "a lie", "no number"],
)
async def test_a_request_over_the_limit_is_refused_before_it_is_read_further(
    declared: str | None, pieces: list[bytes], received: int
) -> None:
    """Checked before buffering, by what is declared and by what comes (paveg/hono-idempotency#79)."""
    world = World(max_request_bytes=10)
    headers = [] if declared is None else [("content-length", declared)]
    protected = IdempotencyMiddleware(app_of(start(201), body(b"ran")), engine=world.engine)

    sent = await Connection(protected, headers=headers, pieces=pieces).run()

    assert (sent.status, sent.problem, sent.received) == (413, "request-too-large", received)
    assert world.calls == []


@pytest.mark.parametrize("declared", [None, "10", "4", "²"])
async def test_a_request_within_the_limit_runs(declared: str | None) -> None:
    """Exactly as large as allowed is allowed."""
    world = World(max_request_bytes=10)
    headers = [] if declared is None else [("content-length", declared)]
    protected = IdempotencyMiddleware(app_of(start(201), body(b"ran")), engine=world.engine)

    assert (await Connection(protected, headers=headers, pieces=[b"x" * 4, b"x" * 6]).run()).status == 201


async def test_a_request_that_is_refused_by_its_head_need_not_send_its_body(world: World) -> None:
    """A client that waits for 100 Continue learns before it uploads."""
    protected = IdempotencyMiddleware(app_of(start(201), body(b"ran")), engine=world.engine)
    sent = await Connection(protected, key='"', pieces=[b"x", b"y"]).run()

    assert (sent.problem, sent.received) == ("key-invalid", 0)
