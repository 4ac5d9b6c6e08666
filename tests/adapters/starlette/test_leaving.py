"""A client that goes away: its work is not undone, and no retry does it again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from idem_middleware.capture import DRAIN_SECONDS
from idem_starlette import IdempotencyMiddleware, receiving
from tests.adapters.support.asgi import Connection, Gone, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio

SERVERS = pytest.mark.parametrize("spec_version", ["2.0", "2.3", "2.4"])


class Time:
    """The monotonic clock of this process, moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """What tells how long ago the client left."""
    time = Time()
    monkeypatch.setattr(receiving, "monotonic", time)
    return time


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the news hears it at once."""
    monkeypatch.setattr(receiving, "_GRACE_SECONDS", 0.0)


async def passed_through(request: Request, call_next: Any) -> Response:
    """A dispatch function that does nothing."""
    response: Response = await call_next(request)
    return response


def bare(app: ASGIApp) -> ASGIApp:
    """Nothing in between."""
    return app


def behind_another(app: ASGIApp) -> ASGIApp:
    """Behind a middleware that runs the application in another task."""
    return BaseHTTPMiddleware(app, passed_through)


# --- while the request is sent --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[None], [b"half of", None]], ids=["at once", "in the middle"])
async def test_a_client_that_leaves_before_its_request_is_whole_claims_nothing(
    world: World, pieces: list[bytes | None]
) -> None:
    """Half a request is none; nobody is there to be answered."""
    ran: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        ran.append(scope)

    sent = await Connection(IdempotencyMiddleware(app, engine=world.engine), pieces=pieces).run()

    assert (ran, sent.sent, world.calls) == ([], [], [])


# --- while the handler runs -----------------------------------------------------------------------------------------


@SERVERS
@pytest.mark.parametrize("around", [bare, behind_another])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_handler_whose_client_leaves_is_finished_and_recorded(
    world: World, spec_version: str, around: Callable[[ASGIApp], ASGIApp], *, streamed: bool
) -> None:
    """The retry gets its answer (caura-ai/caura#1629), also one that a framework would stop at its first byte."""
    began, gate = anyio.Event(), anyio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"do"
        yield b"ne"

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        began.set()
        await gate.wait()
        response = StreamingResponse(pieces(), 201) if streamed else Response(b"done", 201)
        await response(scope, receive, send)

    protected = IdempotencyMiddleware(around(handler), engine=world.engine)
    async with asyncio.TaskGroup() as group:
        sent = Connection(protected, spec_version=spec_version).begun_in(group)
        await began.wait()
        sent.leave()
        gate.set()

    assert sent.sent == []
    retry = await Connection(protected).run()
    assert (retry.status, retry.body, retry.is_replay) == (201, b"done", True)


async def test_is_disconnected_tells_the_truth(world: World) -> None:
    """False while the client is there, true when it left (vectorize-io/hindsight#2131, 1rgs/claude-code-proxy#114)."""
    seen: list[bool] = []
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()
        seen.append(await request.is_disconnected())
        sent.leave()
        seen.append(await request.is_disconnected())
        await Response(b"done", 201)(scope, receive, send)
        seen.append(await Request(scope, receive).is_disconnected())

    sent = Connection(IdempotencyMiddleware(app, engine=world.engine))
    await sent.run()

    assert seen == [False, True, True]
    assert (await Connection(sent.app).run()).is_replay


async def test_is_disconnected_does_not_take_the_body_away(world: World) -> None:
    """A handler may ask before it reads: after the first piece there is more to come, as without us."""
    seen: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        assert not await request.is_disconnected()
        seen.extend([piece async for piece in request.stream()])
        await Response()(scope, receive, send)

    big = b"x" * 100_000
    await Connection(IdempotencyMiddleware(app, engine=world.engine), pieces=[big]).run()

    assert len(b"".join(seen)) == len(big) - receiving._CHUNK_BYTES


async def test_after_the_body_the_servers_own_receive_is_asked(world: World) -> None:
    """No endless empty messages, and nothing of it is asked for before."""
    counts: list[int] = []
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        counts.append(sent.received)
        await receive()
        counts.append(sent.received)
        await Response()(scope, receive, send)
        sent.leave()
        assert (await receive())["type"] == "http.disconnect"
        counts.append(sent.received)
        assert (await receive())["type"] == "http.disconnect"
        counts.append(sent.received)

    sent = Connection(IdempotencyMiddleware(app, engine=world.engine), pieces=[b"a", b"b"])
    await sent.run()

    assert counts == [2, 2, 3, 3]


async def test_who_waits_for_the_client_to_leave_hears_it(world: World, no_grace: None) -> None:
    """An application may stop work that nobody waits for; what it answers then is its answer."""
    began = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        began.set()
        assert (await receive())["type"] == "http.disconnect"
        await JSONResponse({"stopped": True}, 409)(scope, receive, send)

    protected = IdempotencyMiddleware(app, engine=world.engine)
    async with asyncio.TaskGroup() as group:
        sent = Connection(protected).begun_in(group)
        await began.wait()
        sent.leave()

    assert (await Connection(protected).run()).status == 409
    assert world.kinds[-1] == "replayed"


async def test_who_waits_in_short_turns_hears_it_in_the_end(world: World, time: Time) -> None:
    """The little while for a response to begin is counted from when the client left, not from when it is asked."""
    heard: list[bool] = []
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        sent.leave()
        for _ in range(2):
            with anyio.move_on_after(0) as turn:
                await receive()
            heard.append(not turn.cancelled_caught)
        time.now += receiving._GRACE_SECONDS
        assert (await receive())["type"] == "http.disconnect"
        await Response()(scope, receive, send)

    sent = Connection(IdempotencyMiddleware(app, engine=world.engine))
    await sent.run()

    assert len(heard) == 2


async def test_a_handler_that_gives_up_without_an_answer_is_abandoned(world: World, no_grace: None) -> None:
    """Nobody knows how far it came: the claim lapses, and `on_abandoned` decides."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    protected = IdempotencyMiddleware(app, engine=world.engine)
    sent = Connection(protected)
    sent.leave()
    await sent.run()

    assert world.kinds == ["claimed", "abandoned"]
    assert (await Connection(protected).run()).problem == "in-progress"


# --- in the middle of the answer ------------------------------------------------------------------------------------


class Stream:
    """A handler whose answer is streamed piece by piece, each when it is let; counts how often it began."""

    def __init__(self, *pieces: bytes, headers: dict[str, str] | None = None) -> None:
        self.began = 0
        self.gate = anyio.Event()
        self._pieces = pieces
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.began += 1
        await Request(scope, receive).body()
        await StreamingResponse(self.pieces(), 201, self._headers)(scope, receive, send)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The first one at once, the others when the gate is open."""
        first, *rest = self._pieces
        yield first
        await self.gate.wait()
        for piece in rest:
            await anyio.lowlevel.checkpoint()
            yield piece


async def left_in_the_middle(
    app: ASGIApp, gate: anyio.Event, group: asyncio.TaskGroup, *, spec_version: str = "2.3"
) -> Connection:
    """A client that leaves when it has seen the first piece, before the next one is made."""
    sent = Connection(app, spec_version=spec_version).begun_in(group)
    await sent.until(lambda c: c.body == b"first, ")
    sent.leave()
    await anyio.wait_all_tasks_blocked()
    gate.set()
    return sent


@SERVERS
@pytest.mark.parametrize("around", [bare, behind_another])
@pytest.mark.parametrize("headers", [None, {"content-length": "20"}], ids=["chunked", "with a length"])
async def test_a_streamed_answer_whose_client_leaves_is_drained_and_recorded(
    world: World, spec_version: str, around: Callable[[ASGIApp], ASGIApp], headers: dict[str, str] | None
) -> None:
    """Neither a second run nor a torn replay, whichever way the server says it."""
    stream = Stream(b"first, ", b"second, ", b"third", headers=headers)
    protected = IdempotencyMiddleware(around(stream), engine=world.engine)

    async with asyncio.TaskGroup() as group:
        sent = await left_in_the_middle(protected, stream.gate, group, spec_version=spec_version)

    assert sent.body == b"first, "
    retry = await Connection(protected).run()
    assert (retry.status, retry.body, retry.is_replay) == (201, b"first, second, third", True)
    assert stream.began == 1


@pytest.mark.parametrize("around", [bare, behind_another])
@pytest.mark.parametrize("drain_seconds", [0.0, 0.001])
async def test_a_streamed_answer_that_goes_on_too_long_after_its_client_left_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, around: Callable[[ASGIApp], ASGIApp], drain_seconds: float
) -> None:
    """And recorded as not kept, though the part that came looks whole to who can't know better."""
    monkeypatch.setattr(receiving, "DRAIN_SECONDS", drain_seconds)
    stream = Stream(b"first, ", b"never")
    protected = IdempotencyMiddleware(around(stream), engine=world.engine)

    async with asyncio.TaskGroup() as group:
        sent = Connection(protected).begun_in(group)
        await sent.until(lambda c: c.body == b"first, ")
        sent.leave()

    assert not stream.gate.is_set()
    assert (await Connection(protected).run()).problem == "response-not-stored"


async def test_a_generator_that_asks_is_not_told_while_it_is_recorded(world: World) -> None:
    """Else it would stop, and end as if it had been whole."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"first, "
            await gate.wait()
            for piece in (b"second, ", b"third"):
                if await request.is_disconnected():
                    return
                yield piece

        await StreamingResponse(pieces(), 201)(scope, receive, send)

    protected = IdempotencyMiddleware(app, engine=world.engine)
    async with asyncio.TaskGroup() as group:
        await left_in_the_middle(protected, gate, group)

    assert (await Connection(protected).run()).body == b"first, second, third"


@SERVERS
async def test_a_generator_that_asks_is_told_in_the_end(world: World, time: Time, spec_version: str) -> None:
    """A body that was stopped is not kept, however well it ends."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()
        await send(start(201))
        await send(body(b"first, ", more=True))
        await gate.wait()
        while not await request.is_disconnected():
            time.now += 10
        await send(body())

    protected = IdempotencyMiddleware(app, engine=world.engine)
    async with asyncio.TaskGroup() as group:
        await left_in_the_middle(protected, gate, group, spec_version=spec_version)

    assert (await Connection(protected).run()).problem == "response-not-stored"


async def test_a_stopped_answer_of_its_declared_length_is_whole(world: World, time: Time) -> None:
    """All of it was there before anybody heard that the client left."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await request.body()
        await send(start(201, ("content-length", "13")))
        await send(body(b"first, ", more=True))
        await gate.wait()
        await send(body(b"second", more=True))
        while not await request.is_disconnected():
            time.now += 10
        await send(body())

    protected = IdempotencyMiddleware(app, engine=world.engine)
    async with asyncio.TaskGroup() as group:
        await left_in_the_middle(protected, gate, group)

    assert (await Connection(protected).run()).body == b"first, second"


@SERVERS
@pytest.mark.parametrize("media_type", ["text/event-stream", "text/plain"])
async def test_an_endless_answer_ends_when_its_client_leaves(media_type: str, spec_version: str) -> None:
    """Nothing is recorded of events, or of what is too large; so there is nothing to wait for, and nothing runs on."""
    world = World(max_response_bytes=1000)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100
            await anyio.lowlevel.checkpoint()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await StreamingResponse(endless(), 201, media_type=media_type)(scope, receive, send)

    sent = Connection(IdempotencyMiddleware(app, engine=world.engine), spec_version=spec_version)

    async def run() -> None:
        with suppress(ClientDisconnect, ExceptionGroup):  # as without us
            await sent.run()

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await sent.until(lambda c: len(c.body) >= 300)
        sent.leave()

    assert (await Connection(sent.app).run()).problem == "response-not-stored"


async def test_a_server_that_raises_is_heard_by_an_application_only_when_nothing_is_left_to_record(
    world: World, time: Time
) -> None:
    """The error is the server's own, and what was begun is recorded as not kept."""
    errors: list[BaseException] = []
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.early_hint", "links": []})
        sent.leave()
        await send({"type": "http.response.early_hint", "links": []})
        await send(start(201))
        await send(body(b"first, ", more=True))
        time.now += DRAIN_SECONDS
        try:
            await send(body(b"second", more=True))
        except OSError as error:
            errors.append(error)
            raise

    sent = Connection(IdempotencyMiddleware(app, engine=world.engine), spec_version="2.4")
    with pytest.raises(Gone) as raised:
        await sent.run()

    assert errors == [raised.value]
    assert (await Connection(sent.app).run()).problem == "response-not-stored"


async def test_an_error_of_the_stream_is_a_failure_though_the_client_left(world: World) -> None:
    """It would have failed anyway, so the next try runs."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(start(201))
        await send(body(b"first, ", more=True))
        await gate.wait()
        await send(body(b"second", more=True))
        raise ValueError("broken")

    protected = IdempotencyMiddleware(app, engine=world.engine)

    async def run() -> None:
        with pytest.raises(ValueError, match="broken"):
            await sent.run()

    sent = Connection(protected, spec_version="2.4")
    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await sent.until(lambda c: c.body == b"first, ")
        sent.leave()
        gate.set()

    assert world.kinds[-1] == "failed"


async def test_the_last_piece_does_not_reach_a_client_that_left(world: World) -> None:
    """The answer is recorded, and what follows it goes on."""
    after: list[str] = []
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        sent.leave()
        await send(start(201))
        await send(body(b"done"))
        after.append("background")

    sent = Connection(IdempotencyMiddleware(app, engine=world.engine), spec_version="2.4")
    await sent.run()

    assert (sent.sent, after) == ([], ["background"])
    assert (await Connection(sent.app).run()).body == b"done"


async def test_a_server_that_cancels_what_its_client_does_not_wait_for_makes_nothing_run_again(world: World) -> None:
    """The client saw the beginning of an answer: the work is done, and its answer is not kept."""
    sent: Connection

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(start(201))
        await send(body(b"first, ", more=True))
        sent.leave()
        await receive()

    protected = IdempotencyMiddleware(app, engine=world.engine)
    sent = Connection(protected)
    task = asyncio.ensure_future(sent.run())
    await sent.until(lambda c: c.body)
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await Connection(protected).run()).problem == "response-not-stored"
