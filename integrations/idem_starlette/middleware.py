"""The ASGI middleware: translates, and decides nothing."""

from __future__ import annotations

from typing import Any, assert_never, overload

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idem_middleware.blocking.engine import Engine
from idem_middleware.identity import Admitted, Passed
from idem_middleware.outcomes import Refused
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_starlette.exchange import ACTING, Exchange
from idem_starlette.messages import app_path, field_lines, in_lower_case, respond
from idem_starlette.receiving import ClientGone

__all__ = ["IdempotencyMiddleware"]


class IdempotencyMiddleware:
    """Runs each covered request once.

    For the whole application by `app.add_middleware(IdempotencyMiddleware, store=…, **options)`, for one route by
    `Route(…, middleware=[Middleware(IdempotencyMiddleware, …)])`. `engine` shares one engine between several; the
    options given here then come on top of its own. The handler finds its lease at `request.state.idempotency`.

    Raises:
        ConfigurationError: wrong or unknown options, or neither a store nor an engine.
    """

    # An older Starlette gives the application by name, and the types of a newer one want it without.
    @overload
    def __init__(
        self, app: ASGIApp, /, store: Store | str | None = None, *, engine: Engine | None = None, **options: Any
    ) -> None: ...

    @overload
    def __init__(
        self, *, app: ASGIApp, store: Store | str | None = None, engine: Engine | None = None, **options: Any
    ) -> None: ...

    def __init__(  # type: ignore[misc] # no option is called app
        self, app: ASGIApp, store: Store | str | None = None, *, engine: Engine | None = None, **options: Any
    ) -> None:
        self.app = app
        self.engine, written = build(store, engine, options)
        self.options = in_lower_case(written)
        self._engine = self.engine.asynchronous
        self._methods = self.options.methods if self.options.mode != "off" else frozenset[str]()
        self._header = self.options.header.lower().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["method"] in self._methods and ACTING not in scope:
                await self._protect(scope, receive, send)
                return
        elif scope["type"] == "lifespan":
            send = self._draining(send)
        await self.app(scope, receive, send)

    async def _protect(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission = self._engine.admit(self.options, scope["method"], app_path(scope), field_lines(scope, self._header))
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
        with Exchange(self._engine, admission, scope, receive, send) as exchange:
            try:
                answer = await exchange.claim()
            except ClientGone:
                return
            if answer is None:
                await exchange.run(self.app)
            else:
                await respond(send, answer)

    def _draining(self, send: Send) -> Send:
        """Recordings that go on in the background are finished before the application says that it is down."""

        async def sender(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                await self._engine.drain_async()
            await send(message)

        return sender
