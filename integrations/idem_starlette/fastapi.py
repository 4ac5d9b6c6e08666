"""FastAPI: a route class that claims after the dependencies have run, and tells OpenAPI about it.

The middleware stands before routing, and so before any security dependency. A route of this class claims where the
endpoint would be called: whoever fails a dependency or the validation never sees a stored answer.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from starlette.responses import Response as NativeResponse
from starlette.types import Receive, Scope, Send

try:
    from fastapi.routing import APIRoute
except ImportError as error:
    raise ImportError("idem_starlette.fastapi needs FastAPI: pip install 'idem-middleware[fastapi]'") from error

from idem_middleware.blocking.engine import Engine
from idem_middleware.identity import Passed
from idem_middleware.messages import Response
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused
from idem_middleware.setup import build
from idem_middleware.stores.base import Store
from idem_starlette.endpoints import before
from idem_starlette.exchange import ACTING, Exchange
from idem_starlette.messages import app_path, field_lines, framed_headers, in_lower_case, respond
from idem_starlette.openapi import described
from idem_starlette.receiving import ClientGone

__all__ = ["Idempotency"]

_claim: ContextVar[Callable[[], Awaitable[Response | None]] | None] = ContextVar("idempotency_claim", default=None)
"""What the endpoint of the request that is handled here has to ask before it runs: the answer to give instead."""


class Idempotency:
    """Protects the routes of a router: `APIRouter(route_class=Idempotency(store=…, **options).route_class)`.

    Several can share one engine; `with_options` gives one with a few options changed. The endpoint finds its lease at
    `request.state.idempotency`.

    Raises:
        ConfigurationError: wrong or unknown options, or neither a store nor an engine.
    """

    def __init__(self, store: Store | str | None = None, *, engine: Engine | None = None, **options: Any) -> None:
        self.engine, written = build(store, engine, options)
        self.options = in_lower_case(written)

    def with_options(self, **options: Any) -> Idempotency:
        """The same engine, with these options on top."""
        own = {name: getattr(self.options, name) for name in Options.names()}
        return Idempotency(engine=self.engine, **{**own, **options})

    @functools.cached_property
    def route_class(self) -> type[APIRoute]:
        """For `APIRouter(route_class=…)`."""
        idempotency, options = self, self.options

        class IdempotentRoute(APIRoute):
            """Runs each covered request of its endpoint once."""

            def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
                methods = {method.upper() for method in settings.get("methods") or ("GET",)}
                if methods & options.methods:
                    endpoint = before(endpoint, _instead)
                    settings = described(settings, options)
                super().__init__(path, endpoint, **settings)

            async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
                await idempotency._handle(super().handle, scope, receive, send)

        return IdempotentRoute

    async def _handle(self, handle: _Handle, scope: Scope, receive: Receive, send: Send) -> None:
        """Let FastAPI handle the request, with everything ready for a claim at its endpoint."""
        engine, options = self.engine.asynchronous, self.options
        if ACTING in scope:
            await _claiming(None, handle)(scope, receive, send)
            return
        lines = field_lines(scope, options.header.lower().encode())
        admission = engine.admit(options, scope["method"], app_path(scope), lines)
        if isinstance(admission, Passed):
            await _claiming(None, handle)(scope, receive, send)
            return
        if isinstance(admission, Refused):  # told at the endpoint: whoever may not call it, learns that first
            await _claiming(_telling(admission.response), handle)(scope, receive, send)
            return
        with Exchange(engine, admission, scope, receive, send) as exchange:
            try:
                # A limit is for what FastAPI reads, too; without one the body comes as FastAPI asks for it.
                answer = await exchange.read() if exchange.max_bytes is not None else None
                if answer is None:
                    await exchange.run(_claiming(exchange.claim, handle))
                else:
                    await respond(send, answer)
            except ClientGone:
                return


_Handle = Callable[[Scope, Receive, Send], Awaitable[None]]


def _claiming(claim: Callable[[], Awaitable[Response | None]] | None, handle: _Handle) -> _Handle:
    """The same, for an endpoint that asks this first. None: it asks nothing, not even what is around it."""

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        token = _claim.set(claim)
        try:
            await handle(scope, receive, send)
        finally:
            _claim.reset(token)

    return handler


def _telling(response: Response) -> Callable[[], Awaitable[Response | None]]:
    async def tell() -> Response | None:
        return response

    return tell


async def _instead() -> NativeResponse | None:
    """Called in the endpoint's place: the answer to give instead of its own, or None if it may run."""
    claim = _claim.get()
    if claim is None:
        return None
    _claim.set(None)  # what the endpoint calls in this process is no part of this request
    answer = await claim()
    return None if answer is None else _native(answer)


def _native(response: Response) -> NativeResponse:
    native = NativeResponse(response.body, status_code=response.status)
    native.raw_headers = framed_headers(response)
    return native
