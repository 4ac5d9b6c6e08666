"""Handlers that raise, are cancelled, or give no answer; and what goes on in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from idem_middleware import MemoryStore
from idem_middleware.records import Record, Status
from idem_middleware.stores.base import AsyncStore, Found, Gone, Written
from idem_middleware.stores.direct import DirectStore
from idem_starlette import IdempotencyMiddleware
from tests.adapters.support.asgi import Connection, app_of, body, start
from tests.adapters.support.worlds import World

pytestmark = pytest.mark.anyio


class Interrupted(BaseException):
    """As KeyboardInterrupt and SystemExit are, and asyncio's cancellation is."""


class Broken(Exception):
    """What a handler raises."""


class Flaky:
    """An application that does what its number of the call says, and answers 201 after that."""

    def __init__(self, *raises: BaseException | None, before: tuple[Any, ...] = ()) -> None:
        self.calls = 0
        self._raises = raises
        self._before = before

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        if self.calls <= len(self._raises):
            for message in self._before:
                await send(message)
            error = self._raises[self.calls - 1]
            if error is not None:
                raise error
            return
        await send(start(201))
        await send(body(b"done"))


@pytest.mark.parametrize(
    "before",
    [
        (),
        (start(200),),
        (start(200), body(b"half", more=True)),
        (start(200, ("content-length", "9")), body(b"h", more=True)),
    ],
    ids=["before its answer", "after the head", "in the middle", "in the middle of a declared length"],
)
async def test_an_exception_comes_out_unchanged_and_the_next_try_runs(world: World, before: tuple[Any, ...]) -> None:
    """The very object, so that error reporters outside see what they know (snok/asgi-idempotency-header#16)."""
    error = Broken("on the first call")
    flaky = Flaky(error, before=before)
    protected = IdempotencyMiddleware(flaky, engine=world.engine)

    with pytest.raises(Broken) as raised:
        await Connection(protected).run()
    second = await Connection(protected).run()
    third = await Connection(protected).run()

    assert raised.value is error
    assert (second.status, second.is_replay) == (201, False)
    assert (third.status, third.is_replay) == (201, True)
    assert flaky.calls == 2


async def test_an_exception_is_an_unknown_outcome_where_the_options_say_so() -> None:
    """A provider's time-out usually is one."""
    world = World(on_error="refuse")
    protected = IdempotencyMiddleware(Flaky(Broken()), engine=world.engine)
    with pytest.raises(Broken):
        await Connection(protected).run()

    assert (await Connection(protected).run()).problem == "outcome-unknown"


async def test_an_exception_after_the_end_undoes_nothing(world: World) -> None:
    """The answer is out, and a retry gets it."""
    protected = IdempotencyMiddleware(Flaky(Broken(), before=(start(201), body(b"first"))), engine=world.engine)
    with pytest.raises(Broken):
        await Connection(protected).run()

    assert (await Connection(protected).run()).body == b"first"


async def test_an_application_that_gives_no_answer_has_failed(world: World) -> None:
    """Its client gets the server's 500, and the next try runs (useautumn/autumn#1851)."""
    protected = IdempotencyMiddleware(Flaky(None), engine=world.engine)

    assert (await Connection(protected).run()).sent == []
    assert (await Connection(protected).run()).status == 201


async def test_an_application_that_stops_in_the_middle_of_its_answer_is_not_run_again(world: World) -> None:
    """Its client saw a success begin: what is missing is the answer, not the work."""
    protected = IdempotencyMiddleware(
        Flaky(None, before=(start(201, ("location", "/orders/1")), body(b"half", more=True))), engine=world.engine
    )
    await Connection(protected).run()
    retry = await Connection(protected).run()

    assert (retry.problem, retry.header("location")) == ("response-not-stored", "/orders/1")


async def test_an_application_that_stops_in_the_middle_of_a_failure_is_run_again(world: World) -> None:
    """A torn 500 is a 500."""
    protected = IdempotencyMiddleware(Flaky(None, before=(start(500), body(b"half", more=True))), engine=world.engine)
    await Connection(protected).run()

    assert (await Connection(protected).run()).status == 201


@pytest.mark.parametrize("before", [(), (start(200), body(b"half", more=True))], ids=["before", "in the middle"])
async def test_whoever_is_interrupted_half_way_leaves_the_claim_to_lapse(world: World, before: tuple[Any, ...]) -> None:
    """Nobody knows what was done: neither released nor recorded (elchin92/avito-mcp#60)."""
    error = Interrupted()
    protected = IdempotencyMiddleware(Flaky(error, before=before), engine=world.engine)

    with pytest.raises(Interrupted) as raised:
        await Connection(protected).run()
    at_once = await Connection(protected).run()
    world.pass_by(70)
    later = await Connection(protected).run()

    assert raised.value is error
    assert at_once.problem == "in-progress"
    assert (later.status, later.is_replay) == (201, False)
    assert "taken_over" in world.kinds


async def test_a_handler_that_is_cancelled_leaves_the_claim_to_lapse(world: World) -> None:
    """As by a server's time-out; the cancellation comes out."""
    began = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await anyio.sleep_forever()

    protected = IdempotencyMiddleware(app, engine=world.engine)
    task = asyncio.ensure_future(Connection(protected).run())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert world.record.status is Status.PENDING
    assert world.kinds == ["claimed", "abandoned"]


# --- cancelled while the store is written ---------------------------------------------------------------------------


class GatedStore(MemoryStore):
    """Its asynchronous face waits at a gate before it writes an answer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()

    def to_async(self) -> AsyncStore:
        return _Gated(self)


class _Gated(DirectStore):
    waits = True

    def __init__(self, store: GatedStore) -> None:
        super().__init__(store)
        self._gated = store

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        self._gated.arrived.set()
        await self._gated.gate.wait()
        return await super().swap(old, new, deadline)


async def cancelled_while_recording(store: GatedStore, protected: IdempotencyMiddleware) -> None:
    """The handler is done; its client's request is cancelled while the answer is written."""
    task = asyncio.ensure_future(Connection(protected).run())
    with anyio.fail_after(20):
        await store.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_recording_goes_on_though_its_request_is_cancelled() -> None:
    """The work is done, so a retry must not do it again (caura-ai/caura#1629)."""
    store = GatedStore()
    protected = IdempotencyMiddleware(app_of(start(201), body(b"done")), store=store, caller="shared")
    await cancelled_while_recording(store, protected)

    assert (await Connection(protected).run()).problem == "in-progress"
    store.gate.set()
    await anyio.wait_all_tasks_blocked()

    assert (await Connection(protected).run()).is_replay


async def test_shutdown_waits_for_recordings() -> None:
    """An application is down when nothing is left to be written."""
    store = GatedStore()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await app_of(start(201), body(b"done"))(scope, receive, send)

    protected = IdempotencyMiddleware(app, store=store, caller="shared")
    await cancelled_while_recording(store, protected)
    seen: list[str] = []

    async def send(message: Any) -> None:
        seen.append(message["type"])

    async def never() -> Any:
        await anyio.sleep_forever()

    async def run() -> None:
        await protected({"type": "lifespan"}, never, send)

    async with asyncio.TaskGroup() as group:
        group.create_task(run())
        await anyio.wait_all_tasks_blocked()
        assert seen == ["lifespan.startup.complete"]
        store.gate.set()

    assert seen == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (await Connection(protected).run()).is_replay


# --- in Starlette ---------------------------------------------------------------------------------------------------


def application(world: World, *handlers: Any, debug: bool = False, **settings: Any) -> Starlette:
    """An application whose one endpoint does something else with every call."""
    calls = iter(handlers)

    async def endpoint(request: Request) -> Response:
        response: Response = await next(calls)(request)
        return response

    return Starlette(
        debug=debug,
        routes=[Route("/", endpoint, methods=["POST"])],
        middleware=[Middleware(IdempotencyMiddleware, engine=world.engine)],
        **settings,
    )


async def raises(request: Request) -> Response:
    """Fail as code fails."""
    raise Broken("on the first call")


async def succeeds(request: Request) -> Response:
    """Answer."""
    return PlainTextResponse("done", 201)


def aborts(status: int) -> Any:
    """Fail as a framework lets one fail."""

    async def handler(request: Request) -> Response:
        raise HTTPException(status, "so it is")

    return handler


async def tell(request: Request, error: Exception) -> Response:
    """A handler of exceptions."""
    return JSONResponse({"error": str(error)}, 500)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("handlers", [{}, {Exception: tell}, {500: tell}], ids=["none", "for Exception", "for 500"])
async def test_an_unhandled_exception_is_a_500_and_the_next_try_runs(
    world: World, handlers: dict[Any, Any], *, debug: bool
) -> None:
    """The 500 is made further outside, where no middleware of ours sees it (Kludex/starlette#1175)."""
    app = application(world, raises, succeeds, debug=debug, exception_handlers=handlers)

    sent = Connection(app)
    with pytest.raises(Broken):  # Starlette shows it, and lets the server see the exception
        await sent.run()

    assert sent.status == 500
    assert (await Connection(app).run()).status == 201
    assert (await Connection(app).run()).is_replay


async def test_a_handled_exception_is_its_handlers_answer(world: World) -> None:
    """One that an application knows is as good as an answer."""

    async def conflict(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "sold out"}, 409)

    app = application(world, raises, exception_handlers={Broken: conflict})

    assert (await Connection(app).run()).status == 409
    assert (await Connection(app).run()).is_replay


@pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
async def test_a_refusal_of_the_view_is_final(world: World, status: int) -> None:
    """A booking lost to another stays lost, though the place is free again by now (paveg/hono-idempotency#178)."""
    app = application(world, aborts(status), succeeds)

    first = await Connection(app).run()
    retry = await Connection(app).run()

    assert (first.status, retry.status, retry.is_replay) == (status, status, True)
    assert retry.body == first.body


@pytest.mark.parametrize("status", [401, 403, 408, 421, 425, 429, 500, 502, 503])
async def test_what_is_true_for_the_moment_is_not_pinned_to_the_key(world: World, status: int) -> None:
    """The next try runs (LabsCrypt/remitlend#1329)."""
    app = application(world, aborts(status), succeeds)

    assert (await Connection(app).run()).status == status
    assert (await Connection(app).run()).status == 201


async def test_a_stream_that_breaks_is_run_again(world: World) -> None:
    """Its client saw it break."""

    async def breaks(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            raise Broken

        return StreamingResponse(pieces())

    app = application(world, breaks, succeeds)
    with pytest.raises((Broken, ExceptionGroup)):
        await Connection(app).run()

    assert (await Connection(app).run()).status == 201


# --- background tasks -----------------------------------------------------------------------------------------------


async def test_a_background_task_holds_nothing_and_runs_once(world: World) -> None:
    """A retry need not wait for it, and does not start it again (Kludex/starlette#1438, #2688)."""
    began, gate, ran = anyio.Event(), anyio.Event(), []

    async def task() -> None:
        began.set()
        await gate.wait()
        ran.append("task")

    async def handler(request: Request) -> Response:
        return PlainTextResponse("done", 201, background=BackgroundTask(task))

    app = application(world, handler)
    async with asyncio.TaskGroup() as group:
        first = Connection(app).begun_in(group)
        await began.wait()
        retry = await Connection(app).run()
        gate.set()

    assert (first.status, retry.is_replay, ran) == (201, True, ["task"])


async def test_a_background_task_that_fails_undoes_nothing(world: World) -> None:
    """The client has its 201 (VibeTensor/attestix#128)."""

    async def task() -> None:
        raise Broken

    async def handler(request: Request) -> Response:
        return PlainTextResponse("done", 201, background=BackgroundTask(task))

    app = application(world, handler)
    with pytest.raises(Broken):
        await Connection(app).run()

    assert (await Connection(app).run()).is_replay
