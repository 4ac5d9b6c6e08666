"""FastAPI: a route class that claims after the dependencies have run, and tells OpenAPI about it.

The middleware stands before routing, and so before any security dependency. A route of this class claims where the
endpoint would be called: whoever fails a dependency or the validation never sees a stored answer.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, assert_never

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as NativeRequest
from starlette.responses import Response as NativeResponse
from starlette.types import Message, Receive, Scope, Send

try:
    from fastapi.routing import APIRoute
except ImportError as error:
    raise ImportError("idem_starlette.fastapi needs FastAPI: pip install 'idem-middleware[fastapi]'") from error

from idem_middleware.aio.engine import AsyncEngine
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.engine import Engine
from idem_middleware.body import BodyTooLarge, RequestBody
from idem_middleware.errors import ConfigurationError
from idem_middleware.identity import Admitted, CallerUnknown, Passed
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_starlette.messages import (
    WITHOUT_LENGTH,
    ClientGone,
    adding,
    field_lines,
    raw_headers,
    read_body,
    respond,
    to_request,
)
from idem_starlette.middleware import ACTING
from idem_starlette.openapi import described
from idem_starlette.receiving import BodyReplay
from idem_starlette.recording import Recorder, without_zero_copy

__all__ = ["Idempotency"]


class Idempotency:
    """Protects the routes of a router: `APIRouter(route_class=Idempotency(store=…, **options).route_class)`.

    Several can share one engine; `with_options` gives one with a few options changed. The endpoint finds its lease at
    `request.state.idempotency`.

    Raises:
        ConfigurationError: wrong or unknown options, or neither a store nor an engine.
    """

    def __init__(self, store: Store | str | None = None, *, engine: Engine | None = None, **options: Any) -> None:
        self.engine, self.options = build(store, engine, options)

    def with_options(self, **options: Any) -> Idempotency:
        """The same engine, with these options on top."""
        return Idempotency(engine=self.engine, **{**_given(self.options), **options})

    @functools.cached_property
    def route_class(self) -> type[APIRoute]:
        """For `APIRouter(route_class=…)`."""
        engine, options = self.engine.asynchronous, self.options

        class IdempotentRoute(APIRoute):
            """Runs each covered request of its endpoint once."""

            def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
                methods = {method.upper() for method in settings.get("methods") or ("GET",)}
                if methods & options.methods:
                    endpoint = _claiming(endpoint)
                    settings = described(settings, options)
                super().__init__(path, endpoint, **settings)

            async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
                if ACTING in scope:
                    await super().handle(scope, receive, send)
                    return
                await _Exchange(engine, options, scope, send).run(super().handle, receive)

        return IdempotentRoute


class _Exchange:
    """One request from the route's door to its answer."""

    def __init__(self, engine: AsyncEngine, options: Options, scope: Scope, send: Send) -> None:
        self._engine = engine
        self._options = options
        self._scope = scope
        self._send: Send = send
        self._admission: Admitted | Refused | None = None
        self._body: RequestBody | None = None
        self._receive: BodyReplay | None = None
        self._recorder: Recorder | None = None

    async def run(self, handle: Callable[[Scope, Receive, Send], Any], receive: Receive) -> None:
        """Let FastAPI handle the request, with everything ready for a claim at its endpoint."""
        admission = self._engine.admit(
            self._options,
            self._scope["method"],
            self._scope["path"],
            field_lines(self._scope, self._options.header.lower().encode()),
        )
        if isinstance(admission, Passed):
            await handle(self._scope, receive, self._send)
            return
        self._admission = admission
        if isinstance(admission, Refused):  # told at the endpoint: whoever may not call it, learns that first
            await self._handled(handle, receive)
            return
        try:
            self._body = await read_body(self._scope, receive, self._options.max_request_bytes)
        except ClientGone:
            return
        except BodyTooLarge:
            await respond(self._send, self._refusal(ProblemType.REQUEST_TOO_LARGE))
            return
        with self._body:
            self._receive = BodyReplay(self._body, receive)
            await self._handled(handle, self._receive)

    async def _handled(self, handle: Callable[[Scope, Receive, Send], Any], receive: Receive) -> None:
        self._scope[ACTING] = True
        token = _exchange.set(self)
        try:
            await handle(self._scope, receive, self._forward)
        except BaseException as error:
            if self._recorder is not None:
                await self._recorder.close(error)
            raise
        finally:
            _exchange.reset(token)
        if self._recorder is not None:
            await self._recorder.close(None)

    async def claim(self) -> NativeResponse | None:
        """Called in the endpoint's place: the answer to give instead, or None if it may run."""
        if isinstance(self._admission, Refused):
            return _native(self._admission.response)
        assert self._admission is not None
        assert self._body is not None
        assert self._receive is not None
        native = NativeRequest(self._scope)
        try:
            caller = await self._engine.caller(self._admission, native)
        except CallerUnknown:
            return _native(self._refusal(ProblemType.CALLER_UNKNOWN))
        outcome = await self._engine.acquire(to_request(self._scope, self._body, native), self._admission, caller)
        match outcome:
            case Replayed(response) | Refused(_, response):
                return _native(response)
            case Unprotected(headers):
                self._send = adding(headers, self._send)
                self._scope.setdefault("state", {})["idempotency"] = None
                return None
            case AsyncLease():
                self._scope.setdefault("state", {})["idempotency"] = outcome
                without_zero_copy(self._scope)
                self._recorder = Recorder(self._scope, self._send, self._receive, outcome, self._options)
                return None
            case _:
                assert_never(outcome)

    async def _forward(self, message: Message) -> None:
        await (self._recorder or self._send)(message)

    def _refusal(self, kind: ProblemType) -> Response:
        return self._engine.refuse(Problem(kind), self._options).response


_exchange: ContextVar[_Exchange | None] = ContextVar("idempotency_exchange", default=None)


def _claiming(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """The endpoint behind a claim; FastAPI calls it when all dependencies are solved and all input is valid."""
    if hasattr(endpoint, "__idempotent__"):  # an older FastAPI builds the routes of an included router once more
        return endpoint
    if inspect.isgeneratorfunction(endpoint) or inspect.isasyncgenfunction(endpoint):
        raise ConfigurationError(
            [
                f"{endpoint.__qualname__} yields its answer: FastAPI sends its head before it is called, too late for "
                "a route class to replay or refuse. Return a StreamingResponse, or protect it by IdempotencyMiddleware"
            ]
        )

    @functools.wraps(endpoint)
    async def claiming(*args: Any, **values: Any) -> Any:
        exchange = _exchange.get()
        if exchange is not None:
            answer = await exchange.claim()
            if answer is not None:
                return answer
        if inspect.iscoroutinefunction(endpoint):
            return await endpoint(*args, **values)
        return await run_in_threadpool(endpoint, *args, **values)

    # FastAPI resolves annotations that are strings among the globals of what it calls, so they are resolved here.
    try:
        claiming.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    except NameError:
        pass  # a name for type checkers alone: FastAPI's own way says best what is wrong with it
    claiming.__idempotent__ = True  # type: ignore[attr-defined]
    return claiming


def _native(response: Response) -> NativeResponse:
    answer = NativeResponse(response.body, status_code=response.status)
    length = [] if response.status in WITHOUT_LENGTH else [(b"content-length", b"%d" % len(response.body))]
    kept = [pair for pair in raw_headers(response.headers) if pair[0].lower() != b"content-length"]
    answer.raw_headers = [*kept, *length]
    return answer


def _given(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in Options.names()}
