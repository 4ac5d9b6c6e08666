"""A route class claims after the dependencies: who may not call the endpoint never sees what it answered."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import anyio
import httpx
import pytest
from fastapi import (
    APIRouter,
    BackgroundTasks,
    Body,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Response,
    UploadFile,
)
from fastapi import Request as NativeRequest
from fastapi.responses import RedirectResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from idem_middleware import ConfigurationError
from idem_middleware.events import EventKind
from idem_middleware.testing import Fault
from idem_starlette import IdempotencyMiddleware
from idem_starlette.fastapi import Idempotency
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio


class Charge(BaseModel):
    """What is to be paid."""

    amount: int
    note: str = ""


class Receipt(BaseModel):
    """What was paid."""

    amount: int
    run: int


class Desk:
    """A router whose routes are protected, an application with it, and how often its endpoints ran."""

    def __init__(self, world: World, **options: Any) -> None:
        self.idempotency = Idempotency(engine=world.engine, **options)
        self.router = APIRouter(route_class=self.idempotency.route_class)
        self.runs = 0

    def run(self) -> int:
        """Count a run."""
        self.runs += 1
        return self.runs

    @property
    def app(self) -> FastAPI:
        """An application with what the router has by now."""
        app = FastAPI()
        app.include_router(self.router)
        return app


@pytest.fixture
def desk(world: World) -> Desk:
    """A router with the default options."""
    return Desk(world)


def sending(**parts: Any) -> dict[str, Any]:
    """Headers and body as an HTTP client makes them."""
    request = httpx.Request("POST", "http://testserver/", **parts)
    return {
        "headers": [(name, value) for name, value in request.headers.items() if name != "host"],
        "pieces": [request.read()],
    }


async def twice(app: Any, **request: Any) -> tuple[Connection, Connection]:
    """The same request twice."""
    return await Connection(app, **request).run(), await Connection(app, **request).run()


# --- endpoints of every kind ----------------------------------------------------------------------------------------


def add_async(desk: Desk) -> None:
    """A coroutine."""

    @desk.router.post("/", status_code=201)
    async def pay(charge: Charge) -> Receipt:
        return Receipt(amount=charge.amount, run=desk.run())


def add_sync(desk: Desk) -> None:
    """A function, which FastAPI calls on a thread."""

    @desk.router.post("/", status_code=201)
    def pay(charge: Charge) -> Receipt:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return Receipt(amount=charge.amount, run=desk.run())


def add_decorated(desk: Desk) -> None:
    """A coroutine behind a function that is none."""

    async def pay(charge: Charge) -> Receipt:
        return Receipt(amount=charge.amount, run=desk.run())

    @functools.wraps(pay)
    def decorated(*args: Any, **values: Any) -> Any:
        return pay(*args, **values)

    desk.router.post("/", status_code=201)(decorated)


def add_partial(desk: Desk) -> None:
    """A coroutine with one argument filled in."""

    async def pay(charge: Charge, *, run: Any) -> Receipt:
        return Receipt(amount=charge.amount, run=run())

    def run() -> int:
        return desk.run()

    desk.router.post("/", status_code=201, response_model=Receipt)(functools.partial(pay, run=run))


class Cashier:
    """An object that is called."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    async def __call__(self, charge: Charge) -> Receipt:
        return Receipt(amount=charge.amount, run=self.desk.run())


def add_object(desk: Desk) -> None:
    """An object whose call is a coroutine."""
    desk.router.add_api_route("/", Cashier(desk), methods=["POST"], status_code=201)


def add_method(desk: Desk) -> None:
    """A method of an object."""
    desk.router.add_api_route("/", Cashier(desk).__call__, methods=["POST"], status_code=201)


@pytest.mark.parametrize("add", [add_async, add_sync, add_decorated, add_partial, add_object, add_method])
async def test_an_endpoint_runs_once_whatever_kind_of_callable_it_is(desk: Desk, add: Any) -> None:
    """The replay is the first answer, byte for byte."""
    if add is add_partial:
        pytest.importorskip("fastapi", minversion="0.120", reason="an older FastAPI asks for the filled argument")
    add(desk)
    first, replay = await twice(desk.app, **sending(json={"amount": 5}))

    assert (first.status, first.body, first.is_replay) == (201, b'{"amount":5,"run":1}', False)
    assert (replay.status, replay.body, replay.is_replay) == (201, first.body, True)
    assert replay.header("content-type") == "application/json"
    assert desk.runs == 1


async def test_names_survive(desk: Desk) -> None:
    """For URLs, operation ids and whoever measures by endpoint."""
    add_async(desk)
    app = desk.app
    operation = app.openapi()["paths"]["/"]["post"]

    assert operation["operationId"] == "pay__post"
    assert operation["summary"] == "Pay"
    assert app.url_path_for("pay") == "/"


def gives_numbers() -> Iterator[int]:
    """Yield an answer."""
    yield 1


async def gives_numbers_later() -> AsyncIterator[int]:
    """Yield an answer, in a coroutine."""
    yield 1


class Numbers:
    """Yields when it is called."""

    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("endpoint", [gives_numbers, gives_numbers_later, functools.partial(gives_numbers), Numbers()])
def test_an_endpoint_that_yields_its_answer_is_refused_when_it_is_declared(desk: Desk, endpoint: Any) -> None:
    """Its head is out before it is called; the error says what to do."""
    with pytest.raises(ConfigurationError, match=r"yields its answer.*StreamingResponse.*IdempotencyMiddleware"):
        desk.router.post("/", response_model=None)(endpoint)


def test_a_generator_for_uncovered_methods_is_none_of_our_business(desk: Desk) -> None:
    """It is never claimed."""
    desk.router.get("/", response_model=None)(gives_numbers)


# --- what comes before the claim ------------------------------------------------------------------------------------


class Guard:
    """Who may come in, and how often it was asked."""

    def __init__(self) -> None:
        self.good = {"ann", "bob"}
        self.asked = 0

    def __call__(self, credentials: Annotated[Any, Depends(HTTPBearer(auto_error=False))]) -> str:
        self.asked += 1
        if not isinstance(credentials, HTTPAuthorizationCredentials):
            raise HTTPException(401, "who are you?")
        if credentials.credentials not in self.good:
            raise HTTPException(403, "not you")
        return str(credentials.credentials)


def bearer(name: str) -> dict[str, Any]:
    """A request with a token."""
    return {"headers": [("authorization", f"Bearer {name}")]}


@pytest.mark.parametrize("where", ["endpoint", "router", "include", "application", "route"])
async def test_who_may_not_call_the_endpoint_never_sees_a_replay(world: World, where: str) -> None:
    """Nor learns whether there is one: somebody revoked, or without credentials (margince/margince#5315)."""
    guard = Guard()
    desk = Desk(world, caller="shared")
    needed = [Depends(guard)]
    desk.router = APIRouter(
        route_class=desk.idempotency.route_class, dependencies=needed if where == "router" else None
    )
    endpoint = guarded(desk, guard) if where == "endpoint" else plain(desk)
    desk.router.post("/", dependencies=needed if where == "route" else None)(endpoint)
    app = FastAPI(dependencies=needed if where == "application" else None)
    app.include_router(desk.router, dependencies=needed if where == "include" else None)

    first = await Connection(app, **bearer("ann")).run()
    guard.good.remove("ann")
    revoked = await Connection(app, **bearer("ann")).run()
    nobody = await Connection(app).run()
    without_a_key = await Connection(app, key=None, **bearer("ann")).run()
    guard.good.add("ann")
    again = await Connection(app, **bearer("ann")).run()

    assert (first.status, first.is_replay) == (200, False)
    assert [sent.status for sent in (revoked, nobody, without_a_key)] == [403, 401, 403]
    assert not revoked.is_replay
    assert (again.status, again.is_replay, again.body) == (200, True, first.body)
    assert desk.runs == 1


def guarded(desk: Desk, guard: Guard) -> Any:
    """An endpoint that asks for the user itself."""

    async def endpoint(user: Annotated[str, Depends(guard)]) -> int:
        return desk.run()

    return endpoint


def plain(desk: Desk) -> Any:
    """An endpoint that asks for nothing."""

    async def endpoint() -> int:
        return desk.run()

    return endpoint


async def test_a_caller_function_can_use_what_the_dependencies_found_out(world: World) -> None:
    """So the authenticated user is the caller."""

    def authenticate(request: NativeRequest, x_user: Annotated[str, Header()]) -> None:
        request.state.user = x_user

    desk = Desk(world, caller=lambda request: request.state.user)
    desk.router.post("/", dependencies=[Depends(authenticate)])(plain(desk))
    answers = [(await Connection(desk.app, headers=[("x-user", u)]).run()).body for u in ("ann", "bob", "ann")]

    assert answers == [b"1", b"2", b"1"]


async def test_a_request_that_is_not_valid_claims_nothing(world: World, desk: Desk) -> None:
    """The key is free for the corrected one."""
    add_async(desk)
    wrong = await Connection(desk.app, **sending(json={"amount": "much"})).run()
    assert (wrong.status, world.calls) == (422, [])

    assert (await Connection(desk.app, **sending(json={"amount": 5})).run()).status == 201


async def test_a_method_that_the_route_does_not_take_claims_nothing(world: World, desk: Desk) -> None:
    """405, without a look at key or body."""
    add_async(desk)
    sent = await Connection(desk.app, method="PUT", key=None).run()

    assert (sent.status, sent.received, world.calls) == (405, 0, [])


@pytest.mark.parametrize(("key", "problem"), [(None, "key-missing"), ('"', "key-invalid")])
async def test_a_request_without_a_good_key_is_refused_after_the_dependencies(
    world: World, key: str | None, problem: str
) -> None:
    """Whoever may not come in need not learn how to knock."""
    guard, desk = Guard(), Desk(world)
    desk.router.post("/", dependencies=[Depends(guard)])(plain(desk))

    refused = await Connection(desk.app, key=key, **bearer("ann")).run()

    assert (refused.status, refused.problem, desk.runs, guard.asked) == (400, problem, 0, 1)
    assert (await Connection(desk.app, key=key).run()).status == 401
    assert world.calls == []


async def test_the_body_is_read_when_fastapi_asks_for_it(desk: Desk) -> None:
    """A stranger's upload is not taken in."""
    guard = Guard()
    desk.router.post("/", dependencies=[Depends(guard)])(plain(desk))
    sent = await Connection(desk.app, pieces=[b"x", b"y", b"z"]).run()

    assert (sent.status, sent.received) == (401, 0)


async def test_fastapis_own_limit_holds(world: World) -> None:
    """413 before the body is in, not after."""
    pytest.importorskip("starlette.middleware.body_limit", reason="an older FastAPI has none")
    desk = Desk(world)
    settings: dict[str, Any] = {"max_body_size": 3}

    @desk.router.post("/", **settings)
    async def endpoint(text: Annotated[str, Body()]) -> int:
        return desk.run()

    sent = await Connection(
        desk.app, pieces=[b"x" * 4, b"y", b"z"], headers=[("content-type", "application/json")]
    ).run()

    assert (sent.status, sent.received, world.calls) == (413, 1, [])


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize("declared", [[], [("content-length", "11")]])
async def test_our_own_limit_holds_for_what_fastapi_reads_too(mode: str, declared: list[Any]) -> None:
    """And for what nobody reads; while it only observes, it tells and lets pass.

    Sources: paveg/hono-idempotency#79, josipmusa/idempotency4j#43.
    """
    world = World(max_request_bytes=10, mode=mode)
    desk = Desk(world)
    desk.router.post("/")(plain(desk))

    sent = await Connection(desk.app, pieces=[b"x" * 6, b"y" * 5], headers=declared).run()

    expected = (200, None, 1) if mode == "observe" else (413, "request-too-large", 0)
    assert (sent.status, sent.problem, desk.runs) == expected
    assert [event.reason for event in world.told(EventKind.REFUSED)] == ["request-too-large"]


async def test_a_client_that_leaves_before_its_request_is_whole_claims_nothing(world: World, desk: Desk) -> None:
    """Neither where FastAPI reads it nor where only we do."""
    add_async(desk)
    desk.router.post("/plain")(plain(desk))
    for path in ("/", "/plain"):
        await Connection(desk.app, path=path, pieces=[b'{"amount":', None]).run()

    limited = Desk(world, max_request_bytes=100)
    limited.router.post("/")(plain(limited))
    assert (await Connection(limited.app, pieces=[b"x", None]).run()).sent == []
    assert (desk.runs, limited.runs, world.calls) == (0, 0, [])


async def test_an_unknown_caller_is_refused(world: World) -> None:
    """As everywhere; while it only observes, it runs."""
    for mode, status in (("enforce", 403), ("observe", 200)):
        desk = Desk(world, caller=lambda request: None, mode=mode)
        desk.router.post("/")(plain(desk))
        assert (await Connection(desk.app).run()).status == status


# --- what the endpoint gets -----------------------------------------------------------------------------------------


async def test_forms_and_files_come_as_they_were_sent(desk: Desk) -> None:
    """And a retry under another boundary is the same request (chatvector-ai/chatvector-ai#520)."""

    @desk.router.post("/")
    async def endpoint(name: Annotated[str, Form()], file: Annotated[UploadFile, File()]) -> dict[str, Any]:
        return {"name": name, "file": file.filename, "size": len(await file.read()), "run": desk.run()}

    parts: dict[str, Any] = {"data": {"name": "x"}, "files": {"file": ("a.bin", b"y" * 3_000_000)}}
    first = await Connection(desk.app, **sending(**parts)).run()
    replay = await Connection(desk.app, **sending(**parts)).run()

    assert first.body == b'{"name":"x","file":"a.bin","size":3000000,"run":1}'
    assert (replay.body, replay.is_replay) == (first.body, True)


@pytest.mark.parametrize("asked_first", [b"", b"ab", b"abcdef"], ids=["nothing", "a part", "all"])
async def test_a_stream_goes_on_where_a_dependency_left_it(desk: Desk, asked_first: bytes) -> None:
    """What nobody had before the claim comes after it."""
    got: list[bytes] = []

    async def dependency(request: NativeRequest) -> None:
        taken = b""
        while taken != asked_first:
            taken += (await request.receive())["body"]

    @desk.router.post("/", dependencies=[Depends(dependency)])
    async def endpoint(request: NativeRequest) -> int:
        if asked_first != b"abcdef":
            got.extend([piece async for piece in request.stream() if piece])
        return desk.run()

    first = await Connection(desk.app, pieces=[b"ab", b"cd", b"ef"]).run()

    assert (first.status, asked_first + b"".join(got)) == (200, b"abcdef")
    assert (await Connection(desk.app, pieces=[b"ab", b"cd", b"ef"]).run()).is_replay


async def test_the_endpoint_finds_its_lease(desk: Desk) -> None:
    """At `request.state.idempotency`."""

    @desk.router.post("/")
    async def endpoint(request: NativeRequest) -> int:
        return int(request.state.idempotency.attempt)

    assert (await Connection(desk.app).run()).body == b"1"


async def test_dependencies_that_yield_are_finished_for_replays_too(desk: Desk) -> None:
    """They ran before, so they run to their end."""
    seen: list[str] = []

    async def session() -> AsyncIterator[str]:
        seen.append("open")
        yield "session"
        seen.append("closed")

    @desk.router.post("/")
    async def endpoint(session: Annotated[str, Depends(session)]) -> int:
        seen.append("run")
        return desk.run()

    _, replay = await twice(desk.app)

    assert replay.is_replay
    assert seen == ["open", "run", "closed", "open", "closed"]


async def test_a_background_task_of_the_endpoint_runs_once(desk: Desk) -> None:
    """And holds nothing."""
    ran: list[int] = []

    @desk.router.post("/")
    async def endpoint(background: BackgroundTasks) -> int:
        background.add_task(ran.append, 1)
        return desk.run()

    _, replay = await twice(desk.app)

    assert (replay.is_replay, ran) == (True, [1])


async def test_dependencies_can_be_overridden(desk: Desk) -> None:
    """As in tests."""

    def user() -> str:
        raise HTTPException(401)

    @desk.router.post("/")
    async def endpoint(name: Annotated[str, Depends(user)]) -> str:
        return name

    app = desk.app
    assert (await Connection(app).run()).status == 401
    app.dependency_overrides[user] = lambda: "ann"
    first, replay = await twice(app)

    assert (first.body, replay.body, replay.is_replay) == (b'"ann"', b'"ann"', True)


# --- what the endpoint gives ----------------------------------------------------------------------------------------


async def test_what_the_response_parameter_was_told_is_replayed(desk: Desk) -> None:
    """FastAPI puts it into the answer; the replay has it from there."""

    @desk.router.post("/")
    async def endpoint(response: Response) -> int:
        response.status_code = 202
        response.headers["location"] = "/orders/1"
        response.set_cookie("session", "ann's")
        return desk.run()

    first, replay = await twice(desk.app)

    assert (first.status, first.header("set-cookie") is not None) == (202, True)
    assert (replay.status, replay.header("location"), replay.header("set-cookie")) == (202, "/orders/1", None)
    assert (replay.body, replay.is_replay) == (b"1", True)


async def test_a_response_object_of_the_endpoint_is_replayed(desk: Desk) -> None:
    """With its own status and headers."""

    @desk.router.post("/")
    async def endpoint() -> RedirectResponse:
        return RedirectResponse("/orders/1", 303)

    _, replay = await twice(desk.app)

    assert (replay.status, replay.header("location"), replay.is_replay) == (303, "/orders/1", True)


async def test_an_exception_frees_the_key(world: World, desk: Desk) -> None:
    """Unchanged it comes out; a dependency that yields sees it."""
    seen: list[BaseException] = []

    async def session() -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(error)
            raise

    @desk.router.post("/", dependencies=[Depends(session)])
    async def endpoint() -> int:
        if desk.run() == 1:
            raise ValueError("on the first call")
        return desk.runs

    with pytest.raises(ValueError, match="on the first call") as raised:
        await Connection(desk.app).run()

    assert seen == [raised.value]
    assert (await Connection(desk.app).run()).body == b"2"
    assert "run_again" in world.kinds


async def test_an_http_exception_of_the_endpoint_is_its_answer(desk: Desk) -> None:
    """409 is final, 503 is not."""

    @desk.router.post("/{status}")
    async def endpoint(status: int) -> None:
        desk.run()
        raise HTTPException(status)

    for status, replayed in ((409, True), (503, False)):
        first, second = await twice(desk.app, path=f"/{status}", key=str(status))
        assert (first.status, second.status, second.is_replay) == (status, status, replayed)


async def test_a_streamed_answer_flows_and_is_replayed(desk: Desk) -> None:
    """Returned, not yielded."""
    gate = anyio.Event()

    @desk.router.post("/")
    async def endpoint() -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first, "
            await gate.wait()
            yield b"last"

        return StreamingResponse(pieces())

    app = desk.app
    async with asyncio.TaskGroup() as group:
        sent = Connection(app).begun_in(group)
        await sent.until(lambda c: c.body == b"first, ")
        assert (await Connection(app).run()).problem == "in-progress"
        gate.set()

    replay = await Connection(app).run()
    assert (replay.body, replay.is_replay) == (b"first, last", True)


async def test_a_bypass_says_so(world: World) -> None:
    """By a header."""
    desk = Desk(world, on_store_error="bypass")
    desk.router.post("/")(plain(desk))
    world.store.fail(Fault.LOST_REQUEST, on="create")

    sent = await Connection(desk.app).run()

    assert (sent.body, sent.header("idempotency-bypassed")) == (b"1", "store-unavailable")


# --- where it is put ------------------------------------------------------------------------------------------------


async def test_nested_routers_keep_the_class_of_their_routes(desk: Desk) -> None:
    """Through prefixes, and in an application that is mounted."""
    desk.router.post("/pay")(plain(desk))
    middle = APIRouter(prefix="/v1")
    middle.include_router(desk.router, prefix="/eu")
    inner = FastAPI()
    inner.include_router(middle, prefix="/api")
    app = FastAPI()
    app.mount("/sub", inner)

    first, replay = await twice(app, path="/sub/api/v1/eu/pay")

    assert (first.body, replay.body, replay.is_replay) == (b"1", b"1", True)


async def test_a_route_steps_aside_for_a_middleware_further_outside(world: World, desk: Desk) -> None:
    """One claim for one request."""
    desk.router.post("/")(plain(desk))
    _, replay = await twice(IdempotencyMiddleware(desk.app, engine=world.engine))

    assert replay.is_replay
    assert world.calls == ["create", "swap", "create"]


async def test_uncovered_methods_of_a_covered_route_pass(world: World, desk: Desk) -> None:
    """A GET runs each time."""
    desk.router.api_route("/", methods=["GET", "POST"])(plain(desk))
    app = desk.app
    answers = [(await Connection(app, method=m).run()).body for m in ("GET", "GET", "POST", "POST")]

    assert answers == [b"1", b"2", b"3", b"3"]


async def test_a_request_within_a_request_is_one_of_its_own(world: World, desk: Desk) -> None:
    """What an endpoint, or a dependency, calls in the same process makes no use of its claim."""
    app = FastAPI()
    calls: list[tuple[str, bool]] = []

    async def call(method: str, key: str) -> None:
        sent = await Connection(app, path="/inner", method=method, key=key).run()
        calls.append((sent.body.decode(), sent.is_replay))

    async def dependency() -> None:
        await call("GET", "k")

    @desk.router.api_route("/inner", methods=["GET", "POST"])
    async def inner() -> str:
        return "inner"

    @desk.router.post("/outer", dependencies=[Depends(dependency)])
    async def outer() -> str:
        for _ in range(2):
            await call("POST", "another")
        await call("GET", "k")
        return "outer"

    app.include_router(desk.router)
    first, replay = await twice(app, path="/outer")

    assert (first.body, replay.body, replay.is_replay) == (b'"outer"', b'"outer"', True)
    assert calls == [('"inner"', False), ('"inner"', False), ('"inner"', True), ('"inner"', False), ('"inner"', False)]


async def test_options_of_one_route_come_on_top(desk: Desk) -> None:
    """With the same engine, so with the same keys."""
    lax = desk.idempotency.with_options(require_key=False)
    assert lax.engine is desk.idempotency.engine
    desk.router = APIRouter(route_class=lax.route_class)
    desk.router.post("/")(plain(desk))

    assert (await Connection(desk.app, key=None).run()).body == b"1"


def test_wrong_options_fail_when_they_are_written() -> None:
    """With the nearest right name."""
    with pytest.raises(ConfigurationError, match="did you mean lease_seconds"):
        Idempotency(store="memory://", lease_secnds=1)
