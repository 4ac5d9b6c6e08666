"""One admitted request, from its body to its settled claim: the same for the middleware and for the route class."""

from __future__ import annotations

from types import TracebackType
from typing import Self, assert_never

from starlette.requests import Request as NativeRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idem_middleware.aio.engine import AsyncEngine
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.body import BodyTooLarge
from idem_middleware.identity import Admitted, CallerUnknown
from idem_middleware.messages import Response
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType
from idem_starlette.messages import adding, declared_length, to_request, to_response
from idem_starlette.receiving import Incoming
from idem_starlette.recording import Recorder, withdraw_offers

__all__ = ["ACTING", "Exchange"]

ACTING = "idem_middleware.acting"
"""In a request's scope: an instance further outside protects it already."""


class Exchange:
    """Nothing but translation; what to do is decided by the engine.

    The scope that an application gets is the server's own, with a few members more: copies would hide from whoever
    stands outside what the router finds out.
    """

    def __init__(self, engine: AsyncEngine, admitted: Admitted, scope: Scope, receive: Receive, send: Send) -> None:
        self._engine = engine
        self._admitted = admitted
        self._options = admitted.options
        self._scope = scope
        self._send: Send = send
        # What only observes lets everything run, and reports what is too large when it has all of it.
        self.max_bytes = None if self._options.mode == "observe" else self._options.max_request_bytes
        self._incoming = Incoming(receive, max_bytes=self.max_bytes)
        self._recorder: Recorder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._incoming.body.close()

    async def read(self) -> Response | None:
        """Have the whole body; gives the answer to one that is too large.

        Raises:
            ClientGone: there is no whole body, and nobody to answer.
        """
        if await self._fits():
            return None
        outcome = self._too_large()
        return outcome.response if isinstance(outcome, Refused) else None

    async def claim(self) -> Response | None:
        """The answer to give instead of running the application, or None if that may run.

        Raises:
            ClientGone: as `read`.
        """
        outcome = await self._outcome()
        match outcome:
            case Replayed(response) | Refused(_, response):
                return response
            case Unprotected(headers):
                self._set_lease(None)
                self._send = adding(headers, self._send)
                return None
            case AsyncLease():
                outcome.translate_with(to_response)
                self._set_lease(outcome)
                withdraw_offers(self._scope)
                self._recorder = Recorder(self._scope, self._send, self._incoming.departure, outcome, self._options)
                return None
            case _:
                assert_never(outcome)

    async def run(self, app: ASGIApp) -> None:
        """Let the application handle the request; the claim may be made before, or by the application."""
        self._scope[ACTING] = True
        try:
            # Where the claim is made already, there is nothing to choose for each message.
            await app(self._scope, self._incoming, self._recorder or self._forward)
        except BaseException as error:
            if self._recorder is not None:
                await self._recorder.close(error)
            raise
        finally:
            self._scope.pop(ACTING, None)
        if self._recorder is not None:
            await self._recorder.close(None)

    async def _outcome(self) -> AsyncLease | Replayed | Refused | Unprotected:
        if not await self._fits():
            return self._too_large()
        native, caller = None, None
        if self._options.looks_at_native:
            native = NativeRequest(self._scope, self._incoming.again())
            try:
                caller = await self._engine.caller(self._admitted, native)
            except CallerUnknown:
                return self._engine.refuse_caller(self._admitted)
        request = to_request(self._scope, self._incoming.body, native)
        return await self._engine.acquire(request, self._admitted, caller)

    def _too_large(self) -> Replayed | Refused | Unprotected:
        problem = Problem(ProblemType.REQUEST_TOO_LARGE)
        return self._engine.enforced(self._engine.refuse(problem, self._options), self._options)

    async def _fits(self) -> bool:
        if self.max_bytes is not None and (declared_length(self._scope) or 0) > self.max_bytes:
            return False
        try:
            body = await self._incoming.complete()
        except BodyTooLarge:
            return False
        limit = self._options.max_request_bytes
        return limit is None or body.size <= limit

    def _set_lease(self, lease: AsyncLease | None) -> None:
        """Where handlers look for it; None where the request is covered, but runs unprotected."""
        self._scope.setdefault("state", {})["idempotency"] = lease

    async def _forward(self, message: Message) -> None:
        await (self._recorder or self._send)(message)
