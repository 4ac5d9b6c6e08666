"""Requests that are refused, those of unknown callers, and what each option makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import anyio
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from idem_middleware import ConfigurationError, Engine, MemoryStore, Options
from idem_middleware.events import EventKind
from idem_middleware.testing import Fault
from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection, app_of, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio

DONE = app_of(start(201), body(b"done"))


class Counting:
    """Answers with how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        self.runs += 1
        await send(start(201))
        await send(body(b"%d" % self.runs))


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "key-missing"),
        ([""], "key-invalid"),
        (["a b"], "key-invalid"),
        (["k" * 256], "key-invalid"),
        (['"a", "b"'], "key-invalid"),
        (["a", "a"], "key-invalid"),
        (["caf\xe9"], "key-invalid"),
    ],
    ids=["none", "empty", "a space", "too long", "a list", "two lines", "beyond ASCII"],
)
async def test_a_request_without_a_good_key_is_refused(world: World, lines: list[str], problem: str) -> None:
    """As problem+json, before anything is read or stored, without the key in it (KanishJebaMathewM/Truxify#15676)."""
    headers = [("idempotency-key", line) for line in lines]
    sent = await Connection(IdempotencyMiddleware(DONE, engine=world.engine), key=None, headers=headers).run()

    assert (sent.status, sent.problem) == (400, problem)
    assert sent.header("cache-control") == "no-store"
    assert sent.header("content-length") == str(len(sent.body))
    assert sent.received == 0
    assert world.calls == []


async def test_a_duplicate_in_flight_is_refused_with_a_time_to_retry(world: World) -> None:
    """Neither mismatch nor conflict touches the running claim, and a mismatch is told even while it runs.

    aws-powertools/powertools-lambda-typescript#5675, idempot-dev/idempot-js#183, ietf-wg-httpapi/idempotency#11.
    """
    gate, began = anyio.Event(), anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await gate.wait()
        await DONE(scope, receive, send)

    protected = IdempotencyMiddleware(app, engine=world.engine)
    async with asyncio.TaskGroup() as group:
        first = Connection(protected).begun_in(group)
        await began.wait()
        duplicates = [await Connection(protected).run() for _ in range(2)]
        other = await Connection(protected, pieces=[b"another body"]).run()
        gate.set()

    for duplicate in duplicates:
        assert (duplicate.status, duplicate.problem) == (409, "in-progress")
        assert 1 <= int(duplicate.header("retry-after") or 0) <= 5
    assert (other.status, other.problem) == (422, "key-reused")
    assert (first.status, (await Connection(protected).run()).is_replay) == (201, True)


async def test_refusals_link_to_the_documentation() -> None:
    """Type and link, where a page is configured."""
    world = World(docs_url="https://docs.example/errors")
    sent = await Connection(IdempotencyMiddleware(DONE, engine=world.engine), key=None).run()

    assert sent.header("link") == '<https://docs.example/errors/key-missing>; rel="describedby"'


# --- who sends it ---------------------------------------------------------------------------------------------------


def by_header(request: Request) -> object:
    """The caller as a header names it."""
    return request.headers.get("x-user")


async def by_header_later(request: Request) -> object:
    """The same, in a coroutine."""
    await anyio.lowlevel.checkpoint()
    return by_header(request)


async def by_document(request: Request) -> object:
    """The caller as the body names it."""
    return (await request.json())["account"]


@pytest.mark.parametrize("caller", [by_header, by_header_later])
async def test_two_callers_with_one_key_are_two_requests(caller: Callable[[Any], object]) -> None:
    """Neither sees the other's answer (kortix-ai/suna#5267)."""
    world = World(caller=caller)
    protected = IdempotencyMiddleware(Counting(), engine=world.engine)
    answers = [(await Connection(protected, headers=[("x-user", u)]).run()).body for u in ("ann", "bob", "ann")]

    assert answers == [b"1", b"2", b"1"]


async def test_a_caller_function_may_read_the_body() -> None:
    """The application gets it all the same."""
    world = World(caller=by_document)
    protected = IdempotencyMiddleware(Counting(), engine=world.engine)
    large = b'{"account": "ann", "text": "' + b"x" * 200_000 + b'"}'
    for text, expected in ((large, b"1"), (b'{"account": "bob"}', b"2"), (large, b"1")):
        assert (await Connection(protected, pieces=[text]).run()).body == expected


async def test_a_caller_function_sees_what_stands_outside_found_out() -> None:
    """Such as the user that an authentication put into the request's state."""
    world = World(caller=lambda request: request.state.account)

    class Authentication:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            Request(scope).state.account = "ann"
            await self.app(scope, receive, send)

    protected = Authentication(IdempotencyMiddleware(Counting(), engine=world.engine))
    assert (await Connection(protected).run()).body == (await Connection(protected).run()).body == b"1"


def raises(request: Request) -> object:
    """Fail."""
    raise LookupError("no such session")


async def raises_later(request: Request) -> object:
    """Fail in a coroutine."""
    raise LookupError("no such session")


@pytest.mark.parametrize(
    "caller",
    [raises, raises_later, *(lambda request, given=given: given for given in (None, "", True, 1.5, b"ann", ["ann"]))],
    ids=["raises", "raises later", "None", "empty", "a flag", "a fraction", "bytes", "a list"],
)
async def test_a_caller_function_that_names_nobody_refuses_the_request(caller: Callable[[Any], object]) -> None:
    """It never falls into a bucket that several share (KanishJebaMathewM/Truxify#2382)."""
    world = World(caller=caller)
    counting = Counting()
    sent = await Connection(IdempotencyMiddleware(counting, engine=world.engine)).run()

    assert (sent.status, sent.problem) == (403, "caller-unknown")
    assert (counting.runs, world.calls) == (0, [])


@pytest.mark.parametrize("name", ["ann", 7, UUID(int=7)])
async def test_a_caller_is_a_string_a_number_or_a_uuid(name: object) -> None:
    """Such as accounts have."""
    world = World(caller=lambda request: name)
    protected = IdempotencyMiddleware(DONE, engine=world.engine)
    await Connection(protected).run()

    assert (await Connection(protected).run()).is_replay


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_other_credentials_do_not_get_the_answer_where_no_caller_is_configured(world: World, header: str) -> None:
    """Nor do they run the work again."""
    counting = Counting()
    protected = IdempotencyMiddleware(counting, engine=world.engine)
    await Connection(protected, headers=[(header, "ann's")]).run()

    others = [await Connection(protected, headers=h).run() for h in ([(header, "bob's")], [])]

    assert {(sent.status, sent.problem) for sent in others} == {(422, "credentials-changed")}
    assert (await Connection(protected, headers=[(header, "ann's")]).run()).body == b"1"
    assert counting.runs == 1


# --- the store is not there -----------------------------------------------------------------------------------------


async def test_nothing_runs_while_the_store_is_not_reached(world: World) -> None:
    """Fail closed (Dev1822/paySphere#1919); the key is free again when the store is."""
    world.store.fail(Fault.LOST_REQUEST, on="create")
    counting = Counting()
    protected = IdempotencyMiddleware(counting, engine=world.engine)

    sent = await Connection(protected).run()

    assert (sent.status, sent.problem, sent.header("retry-after")) == (503, "store-unavailable", "1")
    assert counting.runs == 0
    assert (await Connection(protected).run()).body == b"1"


async def test_a_bypass_runs_unprotected_and_says_so() -> None:
    """By a header and an event; the application gets its body (novuhq/novu#4531)."""
    world = World(on_store_error="bypass")
    world.store.fail(Fault.LOST_REQUEST, on="create", times=None)
    counting = Counting()
    protected = IdempotencyMiddleware(IdempotencyMiddleware(counting, engine=world.engine), engine=world.engine)
    sent = [await Connection(protected, pieces=[b"x" * 100_000, b"y"]).run() for _ in range(2)]

    assert [(s.status, s.body, s.header("idempotency-bypassed")) for s in sent] == [
        (201, b"1", "store-unavailable"),
        (201, b"2", "store-unavailable"),
    ]
    assert len(world.told(EventKind.BYPASSED)) == 2


# --- only observing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "options", "reason"),
    [
        ({"key": None}, {}, "key-missing"),
        ({"key": '"'}, {}, "key-invalid"),
        ({}, {"caller": raises}, "caller-unknown"),
        ({}, {"max_request_bytes": 1}, "request-too-large"),
        ({"headers": [("content-length", "3")]}, {"max_request_bytes": 1}, "request-too-large"),
    ],
    ids=["no key", "a bad key", "an unknown caller", "too large", "declared too large"],
)
async def test_what_would_be_refused_runs_while_it_is_only_observed(
    request_: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    """A roll-out sees what would happen, and its clients see nothing of it."""
    world = World(mode="observe", **options)
    counting = Counting()
    protected = IdempotencyMiddleware(counting, engine=world.engine)
    sent = [await Connection(protected, pieces=[b"a", b"bc"], **request_).run() for _ in range(2)]

    assert [(s.status, s.body) for s in sent] == [(201, b"1"), (201, b"2")]
    assert [(e.reason, e.observed) for e in world.told(EventKind.REFUSED)] == [(reason, True)] * 2


async def test_what_would_be_replayed_runs_while_it_is_only_observed() -> None:
    """Once more, with an event."""
    world = World(mode="observe")
    protected = IdempotencyMiddleware(Counting(), engine=world.engine)
    sent = [await Connection(protected).run() for _ in range(2)]

    assert [(s.body, s.is_replay) for s in sent] == [(b"1", False), (b"2", False)]
    assert [event.observed for event in world.told(EventKind.REPLAYED)] == [True]


# --- options --------------------------------------------------------------------------------------------------------


def test_wrong_options_are_told_all_at_once_with_the_nearest_right_name() -> None:
    """When the middleware is made."""
    with pytest.raises(ConfigurationError) as raised:
        IdempotencyMiddleware(DONE, lease_secnds=1, mode="enforced")

    text = str(raised.value)
    assert "did you mean lease_seconds?" in text
    assert "did you mean 'enforce'?" in text
    assert "give a store" in text


def test_a_store_or_an_engine_is_given_not_both() -> None:
    """An engine has one."""
    with pytest.raises(ConfigurationError, match="give a store"):
        IdempotencyMiddleware(DONE, "memory://", engine=Engine(MemoryStore()))


async def test_wrong_options_fail_when_the_application_starts() -> None:
    """Starlette makes its middleware then; that of a route is made with the route."""
    app = Starlette(middleware=[Middleware(IdempotencyMiddleware, store="memory://", retention=1)])
    with pytest.raises(ConfigurationError, match="retention_seconds"):
        await app({"type": "lifespan"}, None, None)  # type: ignore[arg-type]

    async def endpoint(request: Request) -> Response:
        return PlainTextResponse()

    with pytest.raises(ConfigurationError, match="retention_seconds"):
        Route("/", endpoint, middleware=[Middleware(IdempotencyMiddleware, store="memory://", retention=1)])


async def test_the_application_can_be_given_by_name(world: World) -> None:
    """As an older Starlette does."""
    assert (await Connection(IdempotencyMiddleware(app=DONE, engine=world.engine)).run()).status == 201


async def test_own_options_come_on_top_of_those_of_the_engine() -> None:
    """And several share one store."""
    engine = Engine(MemoryStore(), Options(require_key=False, caller="shared"))
    strict = IdempotencyMiddleware(Counting(), engine=engine, require_key=True)
    lax = IdempotencyMiddleware(Counting(), engine=engine)

    assert (await Connection(strict, key=None).run()).problem == "key-missing"
    assert (await Connection(lax, key=None).run()).status == 201
    assert (await Connection(strict).run()).status == 201
    assert (await Connection(lax).run()).is_replay


async def test_another_header_can_carry_the_key() -> None:
    """In any case, as ASGI gives it in lower case."""
    world = World(header="X-Request-Key")
    protected = IdempotencyMiddleware(DONE, engine=world.engine)
    request: dict[str, Any] = {"key": None, "headers": [("X-Request-Key", "k")]}
    await Connection(protected, **request).run()

    assert (await Connection(protected, **request).run()).is_replay
    assert (await Connection(protected).run()).problem == "key-missing"


async def test_the_key_can_come_from_the_body() -> None:
    """A business identity, such as the number of an order."""
    world = World(key="detail.orderId")
    protected = IdempotencyMiddleware(Counting(), engine=world.engine)
    order: dict[str, Any] = {
        "key": None,
        "headers": [("content-type", "application/json")],
        "pieces": [b'{"detail": {"orderId": "7"}}'],
    }
    assert [(await Connection(protected, **order).run()).body for _ in range(2)] == [b"1", b"1"]
    assert (await Connection(protected, pieces=[b"{}"], key=None).run()).problem == "key-missing"
