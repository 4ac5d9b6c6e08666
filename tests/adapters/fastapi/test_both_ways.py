"""What holds for an endpoint of FastAPI, whether the middleware protects it or a route class."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware

from idem_middleware.records import Status
from idem_starlette import IdempotencyMiddleware
from idem_starlette.fastapi import Idempotency
from tests.adapters.support.asgi import Connection
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio


class Timeout(BaseException):
    """As those of gevent and of servers: raised into a handler from outside, and no `Exception`."""


class Charge(BaseModel):
    """What is to be paid."""

    amount: int
    secret: str = "internal"


class Protected:
    """A router of a FastAPI application that is protected in one of the two ways."""

    def __init__(self, world: World, *, by_route: bool) -> None:
        self.world = world
        self.by_route = by_route
        self.router = APIRouter(route_class=Idempotency(engine=world.engine).route_class) if by_route else APIRouter()
        self.runs = 0

    def app(self, **settings: Any) -> FastAPI:
        """The application; what is added to it later stands further outside."""
        app = FastAPI(**settings)
        app.include_router(self.router)
        if not self.by_route:
            app.add_middleware(IdempotencyMiddleware, engine=self.world.engine)
        return app


@pytest.fixture(params=[False, True], ids=["middleware", "route class"])
def protected(request: pytest.FixtureRequest, world: World) -> Protected:
    """Both ways."""
    return Protected(world, by_route=request.param)


def json_request(body: bytes = b'{"amount": 12}') -> dict[str, Any]:
    """The parts of a request with a JSON body, in two pieces."""
    return {
        "headers": [("content-type", "application/json"), ("content-length", str(len(body)))],
        "pieces": [body[:5], body[5:]],
    }


async def twice(app: Any, **request: Any) -> tuple[Connection, Connection]:
    """The same request twice; it is replayed byte by byte."""
    first, again = await Connection(app, **request).run(), await Connection(app, **request).run()
    assert (again.status, again.body, again.is_replay) == (first.status, first.body, True)
    assert again.header("content-type") == first.header("content-type")
    return first, again


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_is_disconnected_tells_the_truth(protected: Protected) -> None:
    """False while the client is there, true when it left; the work is recorded all the same.

    Sources: vectorize-io/hindsight#2131, 1rgs/claude-code-proxy#114.
    """
    seen: list[bool] = []
    sent: Connection

    @protected.router.post("/", status_code=201)
    async def pay(charge: Charge, request: Request) -> int:
        seen.append(await request.is_disconnected())
        sent.leave()
        seen.append(await request.is_disconnected())
        return charge.amount

    sent = Connection(protected.app(), **json_request())
    await sent.run()
    assert seen == [False, True]
    again = await Connection(sent.app, **json_request()).run()
    assert (again.body, again.is_replay) == (b"12", True)


@pytest.mark.parametrize("reads", ["the body", "as a stream", "nothing"])
async def test_a_middleware_that_reads_the_body_leaves_it_to_the_endpoint(protected: Protected, reads: str) -> None:
    """Starlette's own kind of middleware keeps what it read for those further inside (IBM/mcp-context-forge#3313)."""

    async def looks(request: Request, call_next: Callable[..., Any]) -> Response:
        if reads == "the body":
            assert await request.body() == b'{"amount": 12}'
        elif reads == "as a stream":
            assert b"".join([piece async for piece in request.stream()]) == b'{"amount": 12}'
        answer: Response = await call_next(request)
        return answer

    @protected.router.post("/", status_code=201)
    async def pay(charge: Charge) -> int:
        protected.runs += 1
        return charge.amount

    app = protected.app()
    app.add_middleware(BaseHTTPMiddleware, dispatch=looks)
    if reads == "as a stream":  # used up for everybody, with us as without
        assert (await Connection(app, **json_request()).run()).status in (400, 422)
        assert protected.runs == 0
        assert protected.world.kinds.count("completed") == 0
    else:
        assert (await twice(app, **json_request()))[0].body == b"12"
        assert protected.runs == 1


async def test_what_the_endpoint_does_to_its_request_changes_no_identity(protected: Protected) -> None:
    """A key or a fingerprint that was made again at the end was another one.

    Sources: aws-powertools/powertools-lambda-typescript#5715, aws-powertools/powertools-lambda-python#1093.
    """

    @protected.router.post("/", status_code=201)
    async def pay(charge: Charge, request: Request) -> int:
        charge.amount += 1
        request.scope.update(path="/elsewhere", query_string=b"b=1", method="PUT")
        request.scope["headers"].clear()
        if protected.world.kinds == ["claimed"]:
            raise HTTPException(503)
        return charge.amount

    app = protected.app()
    assert (await Connection(app, **json_request()).run()).status == 503
    assert (await twice(app, **json_request()))[0].body == b"13"


async def test_websockets_and_the_lifespan_pass(protected: Protected) -> None:
    """Neither has a method or a key (simonw/asgi-csrf#15, vllm-project/vllm#38294)."""

    @protected.router.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    app = protected.app()
    sent: list[Any] = []
    arriving = [{"type": "websocket.connect"}]

    async def receive() -> Any:
        return arriving.pop(0) if arriving else await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"idempotency-key", b"k")]
    scope = {"type": "websocket", "path": "/live", "raw_path": b"/live", "root_path": "", "scheme": "ws"}
    await app({**scope, "query_string": b"", "headers": headers, "subprotocols": []}, receive, send)
    assert [message["type"].rpartition(".")[2] for message in sent] == ["accept", "send", "close"]

    sent.clear()
    arriving = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_what_the_response_model_leaves_out_is_in_no_replay(protected: Protected) -> None:
    """What is kept is the answer as it was sent."""

    class Public(BaseModel):
        amount: int

    @protected.router.post("/", response_model=Public, status_code=201)
    async def pay(charge: Charge) -> Charge:
        return charge

    assert (await twice(protected.app(), **json_request()))[0].body == b'{"amount":12}'


async def test_a_file_is_replayed_though_the_server_offers_to_send_it_itself(
    protected: Protected, tmp_path: Path
) -> None:
    """`http.response.pathsend`: a body that bypasses us could not be recorded, so the offer is withdrawn."""
    file = tmp_path / "receipt.bin"
    file.write_bytes(bytes(range(256)) * 1000)

    @protected.router.post("/")
    async def receipt() -> FileResponse:
        return FileResponse(file, filename="receipt.bin")

    offers: dict[str, Any] = {"http.response.pathsend": {}, "http.response.trailers": {}}
    first, again = await twice(protected.app(), extensions=offers)
    assert first.body == file.read_bytes()
    for name in ("content-disposition", "etag", "last-modified"):
        assert again.header(name) == first.header(name)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_streamed_answer_is_replayed_whole(protected: Protected, kind: str) -> None:
    """From generators of both kinds, in many pieces."""

    async def asynchronous() -> AsyncIterator[bytes]:
        for number in range(100):
            yield b"%d," % number

    @protected.router.post("/")
    async def numbers() -> StreamingResponse:
        pieces: Any = asynchronous() if kind == "async" else (b"%d," % number for number in range(100))
        return StreamingResponse(pieces, media_type="text/csv")

    first, _ = await twice(protected.app())
    assert first.kinds.count("more") > 50
    assert first.body.startswith(b"0,1,")


async def test_compression_outside_gives_each_client_what_it_can_read(protected: Protected) -> None:
    """What is kept is not compressed."""

    @protected.router.post("/")
    async def text() -> str:
        return "x" * 5000

    app = protected.app()
    app.add_middleware(GZipMiddleware)
    packed, plain = [await Connection(app, headers=[("accept-encoding", c)]).run() for c in ("gzip", "identity")]
    assert (packed.header("content-encoding"), plain.header("content-encoding")) == ("gzip", None)
    assert (plain.body, plain.is_replay) == (b'"' + b"x" * 5000 + b'"', True)


# --- control flow -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True])
async def test_an_exception_comes_out_unchanged_and_the_next_try_runs(protected: Protected, *, debug: bool) -> None:
    """With a page for developers and without (snok/asgi-idempotency-header#16)."""
    mine = ValueError("mine")

    @protected.router.post("/", status_code=201)
    async def pay() -> int:
        protected.runs += 1
        if protected.runs == 1:
            raise mine
        return protected.runs

    app = protected.app(debug=debug)
    sent = Connection(app)
    with pytest.raises(ValueError, match="mine") as raised:
        await sent.run()
    assert raised.value is mine
    assert sent.status == 500
    assert (await twice(app))[0].body == b"2"


async def test_an_exception_that_the_application_knows_is_its_handlers_answer(protected: Protected) -> None:
    """A conflict of the domain is final (paveg/hono-idempotency#178)."""

    @protected.router.post("/")
    async def book() -> None:
        raise LookupError("sold")

    app = protected.app()

    @app.exception_handler(LookupError)
    async def sold(request: Request, error: LookupError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 409)

    assert (await twice(app))[0].status == 409


async def test_a_time_out_that_is_no_exception_leaves_the_outcome_open(protected: Protected) -> None:
    """Nobody knows how far it came (elchin92/avito-mcp#60)."""

    @protected.router.post("/")
    async def pay() -> None:
        raise Timeout

    app = protected.app()
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - FastAPI's exit stack may wrap what is no exception
        await Connection(app).run()
    assert isinstance(raised.value, Timeout) or raised.group_contains(Timeout)
    assert protected.world.kinds[-1] == "abandoned"
    assert (await Connection(app).run()).problem == "in-progress"


async def test_an_endpoint_that_is_cancelled_leaves_the_outcome_open(protected: Protected) -> None:
    """As by a server's time-out."""
    begun = anyio.Event()

    @protected.router.post("/")
    async def pay() -> None:
        begun.set()
        await anyio.sleep_forever()

    app = protected.app()
    task = asyncio.create_task(Connection(app).run())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert protected.world.kinds[-1] == "abandoned"


async def test_a_dependency_that_fails_when_it_is_finished_leaves_a_settled_record(protected: Protected) -> None:
    """Before or after the answer is sent, as FastAPI's release has it; never a key that is locked for nothing."""

    async def session() -> AsyncIterator[None]:
        yield
        raise RuntimeError("commit failed")

    @protected.router.post("/", status_code=201, dependencies=[Depends(session)])
    async def pay() -> int:
        protected.runs += 1
        return protected.runs

    app = protected.app()
    sent = Connection(app)
    with pytest.raises(RuntimeError, match="commit failed"):
        await sent.run()
    assert protected.world.record.status is (Status.COMPLETED if sent.status == 201 else Status.FAILED)


async def test_a_background_task_that_fails_undoes_nothing(protected: Protected) -> None:
    """It runs once, when the answer is out (VibeTensor/attestix#128, Kludex/starlette#2688)."""
    states: list[Status] = []

    def audit() -> None:
        states.append(protected.world.record.status)
        raise RuntimeError("no audit")

    @protected.router.post("/", status_code=201)
    async def pay(background: BackgroundTasks) -> int:
        background.add_task(audit)
        return 1

    app = protected.app()
    first = Connection(app)
    with pytest.raises(RuntimeError, match="no audit"):
        await first.run()
    again = await Connection(app).run()
    assert (first.status, again.body, again.is_replay) == (201, first.body, True)
    assert states == [Status.COMPLETED]


async def test_a_protected_application_that_is_mounted_is_protected(protected: Protected) -> None:
    """Its paths are those that its clients send, and two mounts are two resources."""

    @protected.router.post("/pay", status_code=201)
    async def pay() -> int:
        protected.runs += 1
        return protected.runs

    outer = FastAPI()
    outer.mount("/v1", protected.app())
    outer.mount("/v2", protected.app())
    assert (await twice(outer, path="/v1/pay"))[0].body == b"1"
    assert (await Connection(outer, path="/v2/pay").run()).problem == "key-reused"
    assert (await Connection(outer, path="/v3/pay").run()).status == 404
