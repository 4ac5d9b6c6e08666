"""The ASGI middleware: translates, and decides nothing."""

from __future__ import annotations

from typing import Any, assert_never

from starlette.requests import Request as NativeRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idem_middleware.aio.engine import AsyncEngine
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.engine import Engine
from idem_middleware.body import BodyTooLarge
from idem_middleware.identity import Admitted, CallerUnknown, Passed
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_starlette.messages import ClientGone, adding, field_lines, read_body, respond, to_request
from idem_starlette.receiving import BodyReplay
from idem_starlette.recording import Recorder, without_zero_copy

__all__ = ["ACTING", "IdempotencyMiddleware"]

ACTING = "idem_middleware.acting"
"""In a request's scope: an instance further outside protects it already."""


class IdempotencyMiddleware:
    """Runs each covered request once.

    For the whole application by `app.add_middleware(IdempotencyMiddleware, store=…, **options)`, for one route by
    `Route(…, middleware=[Middleware(IdempotencyMiddleware, …)])`. `engine` shares one engine between several; the
    options given here then come on top of its own. The handler finds its lease at `request.state.idempotency`.

    Raises:
        ConfigurationError: wrong or unknown options, or neither a store nor an engine.
    """

    def __init__(
        self, app: ASGIApp, /, store: Store | str | None = None, *, engine: Engine | None = None, **options: Any
    ) -> None:
        self.app = app
        self.engine, self.options = build(store, engine, options)
        self._engine: AsyncEngine = self.engine.asynchronous
        self._header = self.options.header.lower().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] not in self.options.methods or ACTING in scope:
                await self.app(scope, receive, send)
                return
            await self._protect(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, self._draining(send))
        else:
            await self.app(scope, receive, send)

    async def _protect(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission = self._engine.admit(
            self.options, scope["method"], scope["path"], field_lines(scope, self._header)
        )
        match admission:
            case Passed():
                await self.app(scope, receive, send)
            case Refused(_, response):
                await respond(send, response)
            case Admitted():
                await self._admitted(admission, scope, receive, send)
            case _:
                assert_never(admission)

    async def _admitted(self, admission: Admitted, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(scope, receive, self.options.max_request_bytes)
        except ClientGone:
            return
        except BodyTooLarge:
            await self._refuse(ProblemType.REQUEST_TOO_LARGE, send)
            return
        with body:
            native = NativeRequest(scope)
            try:
                caller = await self._engine.caller(admission, native)
            except CallerUnknown:
                await self._refuse(ProblemType.CALLER_UNKNOWN, send)
                return
            outcome = await self._engine.acquire(to_request(scope, body, native), admission, caller)
            replay = BodyReplay(body, receive)
            match outcome:
                case Replayed(response) | Refused(_, response):
                    await respond(send, response)
                case Unprotected(headers):
                    scope[ACTING] = True
                    scope.setdefault("state", {})["idempotency"] = None
                    await self.app(scope, replay, adding(headers, send))
                case AsyncLease():
                    scope[ACTING] = True
                    await self._run(outcome, scope, replay, send)
                case _:
                    assert_never(outcome)

    async def _run(self, lease: AsyncLease, scope: Scope, receive: BodyReplay, send: Send) -> None:
        scope.setdefault("state", {})["idempotency"] = lease
        without_zero_copy(scope)
        recorder = Recorder(scope, send, receive, lease, self.options)
        try:
            await self.app(scope, receive, recorder)
        except BaseException as error:
            await recorder.close(error)
            raise
        await recorder.close(None)

    async def _refuse(self, kind: ProblemType, send: Send) -> None:
        await respond(send, self._engine.refuse(Problem(kind), self.options).response)

    def _draining(self, send: Send) -> Send:
        """Recordings that go on in the background are finished before the application says that it is down."""

        async def sender(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                await self._engine.drain_async()
            await send(message)

        return sender
