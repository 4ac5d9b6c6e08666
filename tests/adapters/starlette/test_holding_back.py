"""Nobody has a complete answer before it is recorded; what is not complete flows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from idem_middleware import Request, Response
from idem_middleware.records import Status
from idem_middleware.testing import Fault
from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection, app_of, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio

LENGTH_9 = ("content-length", "9")


def watched(world: World, app: Any, **more: Any) -> Connection:
    """A request whose client looks into the store with every message, and must not have more than stands there."""
    sent = Connection(IdempotencyMiddleware(app, engine=world.engine), **more)

    def look(message: Message) -> None:
        sent.sent.append(message)
        if sent.is_complete:
            assert world.record.status is not Status.PENDING, f"complete before it was recorded: {sent.kinds}"
        sent.sent.pop()

    sent.on_send = look
    return sent


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ([start(201), body(b"whole")], ["start", "end"]),
        ([start(201, ("content-length", "5")), body(b"whole")], ["start", "end"]),
        ([start(201), body()], ["start", "end"]),
        ([start(204), body()], ["start", "end"]),
        ([start(204), body(more=True), body()], ["start", "end"]),
        ([start(304), body()], ["start", "end"]),
        ([start(200, ("content-length", "0")), body(more=True), body()], ["start", "end"]),
        ([start(200, LENGTH_9), body(b"one piece", more=True), body()], ["start", "end"]),
        ([start(200, LENGTH_9), body(b"one piece", more=True), body(more=True), body()], ["start", "end"]),
        ([start(200, LENGTH_9), body(b"two ", more=True), body(b"parts")], ["start", "more", "end"]),
        ([start(200, LENGTH_9), body(b"two ", more=True), body(b"parts", more=True), body()], None),
        ([start(200, LENGTH_9), *(body(b"%d" % n, more=True) for n in range(9)), body()], None),
        ([start(200), body(b"two ", more=True), body(b"parts")], ["start", "more", "end"]),
        ([start(200), body(b"two ", more=True), body(b"parts", more=True), body()], ["start", "more", "more", "end"]),
        ([start(200), body(more=True), body(b"late")], ["start", "more", "end"]),
        ([start(500), body(b"broken")], ["start", "end"]),
        ([start(200, ("content-length", "²")), body(b"whole")], ["start", "end"]),
        ([start(200, ("content-length", "9" * 5000)), body(b"whole")], ["start", "end"]),
    ],
    ids=[
        "in one piece",
        "in one piece with its length",
        "empty",
        "no content",
        "no content, in two messages",
        "not modified",
        "length 0, in two messages",
        "in one piece, then an empty end",
        "in one piece, then two empty ends",
        "two pieces with a length",
        "two pieces with a length, then an empty end",
        "byte by byte with a length",
        "two pieces without a length",
        "two pieces without a length, then an empty end",
        "an empty first piece",
        "a failure",
        "a length that is no number",
        "a length that is too long a number",
    ],
)
async def test_no_message_completes_an_answer_before_it_is_recorded(
    world: World, messages: Sequence[Message], shown: list[str] | None
) -> None:
    """Recorded before visible, in whatever messages an answer comes."""
    sent = await watched(world, app_of(*messages)).run()

    whole = b"".join(m.get("body", b"") for m in messages)
    assert (sent.status, sent.body) == (messages[0]["status"], whole)
    assert shown is None or sent.kinds == shown
    assert sent.kinds.count("end") == 1


@pytest.mark.parametrize(
    ("head", "seen_early"),
    [(start(200), b"first"), (start(200, ("content-length", "9")), b"first"), (start(200, LENGTH_9), b"first")],
    ids=["without a length", "with a length", "with its name in another case"],
)
async def test_a_streamed_answer_flows_as_it_comes(world: World, head: Message, seen_early: bytes) -> None:
    """The client need not wait for the end to see the beginning."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(head)
        await send(body(b"first", more=True))
        await gate.wait()
        await send(body(b"last"))

    async with asyncio.TaskGroup() as group:
        sent = watched(world, app).begun_in(group)
        await sent.until(lambda c: c.body == seen_early)
        assert world.record.status is Status.PENDING
        gate.set()
    assert sent.body == b"firstlast"
    assert (await Connection(sent.app).run()).body == b"firstlast"


async def test_all_but_the_last_byte_flows_where_the_length_is_declared(world: World) -> None:
    """With the last one it would be complete."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start(200, LENGTH_9))
        await send(body(b"123", more=True))
        await send(body(b"456789", more=True))
        await gate.wait()
        await send(body())

    async with asyncio.TaskGroup() as group:
        sent = watched(world, app).begun_in(group)
        await sent.until(lambda c: c.body == b"12345678")
        gate.set()
    assert sent.body == b"123456789"
    assert sent.kinds == ["start", "more", "more", "end"]


async def test_an_empty_first_piece_shows_the_head(world: World) -> None:
    """So an application says that the rest takes time."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start(200))
        await send(body(more=True))
        await gate.wait()
        await send(body(b"at last"))

    async with asyncio.TaskGroup() as group:
        sent = watched(world, app).begun_in(group)
        await sent.until(lambda c: c.has_head)
        gate.set()
    assert sent.body == b"at last"


async def test_a_document_in_three_pieces_is_replayed_byte_for_byte(world: World) -> None:
    """All pieces are gathered before anything is made of them (snok/asgi-idempotency-header)."""
    pieces = [b'{"a": [1,', b" 2], ", b'"b": "\xc3\xa4"}']
    app = app_of(start(200), *(body(piece, more=True) for piece in pieces), body())
    protected = IdempotencyMiddleware(app, engine=world.engine)
    await Connection(protected).run()

    replay = await Connection(protected).run()

    assert (replay.body, replay.is_replay) == (b"".join(pieces), True)
    assert replay.header("content-length") == str(len(replay.body))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_a_buffer_that_is_written_again_does_not_change_the_record(world: World, kind: Any) -> None:
    """Starlette lets memoryviews through, and their owners reuse what they show."""
    buffer = bytearray(b"12345")
    parts = [kind(buffer), kind(bytearray(b"6789"))]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start(200, LENGTH_9))
        await send({"type": "http.response.body", "body": parts[0], "more_body": True})
        buffer[:] = b"xxxxx"
        await send({"type": "http.response.body", "body": parts[1], "more_body": True})
        await send(body())

    protected = IdempotencyMiddleware(app, engine=world.engine)
    first = await Connection(protected).run()
    replay = await Connection(protected).run()

    assert first.body == replay.body == b"123456789"


# --- what can't be given again --------------------------------------------------------------------------------------


async def test_events_pass_at_once_and_are_recorded_as_not_kept(world: World) -> None:
    """One event per second must not wait for the last (agentscope-ai/QwenPaw#6843)."""
    gate = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start(200, ("content-type", "Text/Event-Stream; charset=utf-8")))
        await send(body(b"data: 1\n\n", more=True))
        await gate.wait()
        await send(body(b"data: 2\n\n"))

    async with asyncio.TaskGroup() as group:
        sent = watched(world, app).begun_in(group)
        await sent.until(lambda c: c.body == b"data: 1\n\n")
        gate.set()
    assert sent.body == b"data: 1\n\ndata: 2\n\n"
    retry = await Connection(sent.app).run()
    assert (retry.status, retry.problem) == (409, "response-not-stored")


@pytest.mark.parametrize("pieces", [1, 4])
async def test_an_answer_over_the_limit_reaches_its_first_client_whole(pieces: int) -> None:
    """And no retry runs the work again; it is told where to look the result up."""
    world = World(max_response_bytes=10)
    messages = [body(b"12345", more=True) for _ in range(pieces - 1)]
    app = app_of(start(201, ("location", "/orders/1")), *messages, body(b"12345678901"))
    sent = await watched(world, app).run()

    retry = await Connection(sent.app).run()

    assert sent.body == b"12345" * (pieces - 1) + b"12345678901"
    assert (retry.status, retry.problem, retry.header("location")) == (409, "response-not-stored", "/orders/1")


async def test_a_failure_over_the_limit_is_still_a_failure() -> None:
    """Its body is not wanted anyway, so the next try runs."""
    world = World(max_response_bytes=3)
    protected = IdempotencyMiddleware(app_of(start(503), body(b"a long story")), engine=world.engine)

    assert (await Connection(protected).run()).body == b"a long story"
    assert not (await Connection(protected).run()).is_replay
    assert world.kinds.count("run_again") == 1


async def test_a_kept_failure_over_the_limit_is_never_replayed_empty() -> None:
    """`on_error="store"` keeps a 5xx, but not without its body."""
    world = World(max_response_bytes=3, on_error="store")
    protected = IdempotencyMiddleware(app_of(start(500), body(b"a long story")), engine=world.engine)
    await Connection(protected).run()

    assert (await Connection(protected).run()).problem == "response-not-stored"


async def test_a_router_404_over_the_limit_leaves_the_key_free() -> None:
    """What no view answered is not kept, whatever its size."""
    world = World(max_response_bytes=3)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["router"] = object()
        await send(start(404))
        await send(body(b"there is nothing here"))

    await Connection(IdempotencyMiddleware(app, engine=world.engine)).run()

    assert world.kinds[-1] == "released"


@pytest.mark.parametrize("sent_bytes", [b"too short", b"much longer than it declared"])
async def test_an_answer_that_is_not_as_long_as_declared_is_not_kept(world: World, sent_bytes: bytes) -> None:
    """Its client can't have got it whole, so no replay may look whole (ikyriak/IdempotentAPI#21)."""
    protected = IdempotencyMiddleware(
        app_of(start(200, ("content-length", "12")), body(sent_bytes)), engine=world.engine
    )
    assert (await Connection(protected).run()).body == sent_bytes
    assert (await Connection(protected).run()).problem == "response-not-stored"


async def test_a_body_where_none_belongs_is_not_shown(world: World) -> None:
    """A 204 has none; a server would refuse to send it."""
    protected = IdempotencyMiddleware(app_of(start(204), body(b"not", more=True), body(b"here")), engine=world.engine)
    for _ in range(2):
        sent = await Connection(protected).run()
        assert (sent.status, sent.body, sent.header("content-length")) == (204, b"", None)


# --- the store fails when the answer is there -----------------------------------------------------------------------


async def test_the_client_gets_the_true_answer_though_it_could_not_be_recorded(world: World) -> None:
    """The work is done; the claim stays, and recording goes on (aws-powertools/powertools-lambda-typescript#2944)."""
    world.store.fail(Fault.LOST_REQUEST, on="swap", times=3)
    protected = IdempotencyMiddleware(app_of(start(201), body(b"done")), engine=world.engine)

    first = await Connection(protected).run()
    meanwhile = await Connection(protected).run()
    world.pass_by(10)
    later = await Connection(protected).run()

    assert (first.status, first.body) == (201, b"done")
    assert meanwhile.problem == "in-progress"
    assert (later.status, later.body, later.is_replay) == (201, b"done", True)


async def test_a_lost_reply_to_the_recording_is_no_conflict(world: World) -> None:
    """It was applied, and the next look at it shows whose it is (aws/aws-sdk-java#2667)."""
    world.store.fail(Fault.SENT_TWICE, on="swap")
    protected = IdempotencyMiddleware(app_of(start(201), body(b"done")), engine=world.engine)

    assert (await Connection(protected).run()).status == 201
    assert (await Connection(protected).run()).is_replay


def taken_over(world: World, answer: bytes) -> None:
    """Just before the answer is recorded, the lease ends and another process does the same work."""

    def take_over() -> None:
        world.clock.advance(120)
        other = World(world.memory)
        other.clock.advance(120)
        request = Request(method="POST", path="/", headers=(("idempotency-key", "k"),))
        assert other.engine.run(request, lambda lease: Response(201, (), answer)).body == answer

    world.store.before(take_over, on="swap")


async def test_who_lost_the_lease_shows_the_winners_answer(world: World) -> None:
    """One key has one answer (KanishJebaMathewM/Truxify#4623)."""
    taken_over(world, b"the winner's")
    protected = IdempotencyMiddleware(app_of(start(201), body(b"the loser's")), engine=world.engine)

    late = await Connection(protected).run()
    retry = await Connection(protected).run()

    assert (late.body, late.is_replay) == (b"the winner's", True)
    assert (retry.body, retry.is_replay) == (b"the winner's", True)
    assert "lease_lost" in world.kinds
    assert "executed_not_recorded" in world.kinds


async def test_who_lost_the_lease_in_the_middle_of_its_answer_ends_its_own(world: World) -> None:
    """Two halves of two answers would be none."""
    taken_over(world, b"the winner's")
    app = app_of(start(201), body(b"the ", more=True), body(b"loser's"))

    late = await Connection(IdempotencyMiddleware(app, engine=world.engine)).run()

    assert (late.body, late.is_replay) == (b"the loser's", False)
    assert "executed_not_recorded" in world.kinds


# --- order of messages ----------------------------------------------------------------------------------------------


async def test_early_hints_go_out_before_the_answer(world: World) -> None:
    """They are no part of it, and no replay has them."""
    hint: Message = {"type": "http.response.early_hint", "links": [b"</style.css>; rel=preload"]}
    protected = IdempotencyMiddleware(app_of(hint, start(200), body(b"x")), engine=world.engine)

    first = await Connection(protected).run()
    replay = await Connection(protected).run()

    assert first.kinds == ["early_hint", "start", "end"]
    assert replay.kinds == ["start", "end"]


async def test_an_answer_that_begins_twice_is_an_error(world: World) -> None:
    """As it is to a server; that the first head was held back must not hide it."""
    with pytest.raises(RuntimeError, match="twice"):
        await Connection(IdempotencyMiddleware(app_of(start(200), start(500), body()), engine=world.engine)).run()


async def test_what_comes_after_the_end_is_the_servers_to_judge(world: World) -> None:
    """It changes nothing of the record."""
    protected = IdempotencyMiddleware(app_of(start(200), body(b"end"), body(b"more")), engine=world.engine)
    first = await Connection(protected).run()

    assert first.kinds == ["start", "end", "end"]
    assert (await Connection(protected).run()).body == b"end"


async def test_a_body_without_a_head_is_the_servers_to_judge(world: World) -> None:
    """It gets it as it came."""
    assert (await Connection(IdempotencyMiddleware(app_of(body(b"x")), engine=world.engine)).run()).kinds == ["end"]


@pytest.mark.parametrize("offers", [None, {}])
async def test_a_server_without_offers_is_taken_nothing(world: World, offers: Any) -> None:
    """Not every scope has extensions."""
    sent = await Connection(
        IdempotencyMiddleware(app_of(start(200), body(b"x")), engine=world.engine), extensions=offers
    ).run()
    assert sent.scope["extensions"] == offers


async def test_offers_that_would_bypass_the_record_are_withdrawn_for_protected_requests_only(world: World) -> None:
    """A file that the server sends by itself could not be recorded; the server's own dictionary stays as it is."""
    offers: dict[str, Any] = {
        f"http.response.{name}": {} for name in ("pathsend", "zerocopysend", "trailers", "early_hint", "debug")
    }
    seen: list[set[str]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(set(scope["extensions"]))
        await send(start(200))
        await send(body(b"x"))

    protected = IdempotencyMiddleware(app, engine=world.engine)
    await Connection(protected, extensions=offers).run()
    await Connection(protected, extensions=offers, method="GET").run()

    assert seen == [{"http.response.early_hint", "http.response.debug"}, set(offers)]
    assert len(offers) == 5
