"""The engine for callers on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, assert_never

from idem_middleware.aio.acquisition import AsyncAcquisition
from idem_middleware.aio.concurrency import Recordings, in_thread
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.lease import Lease
from idem_middleware.body import SPOOL_BYTES
from idem_middleware.engine_base import BaseEngine
from idem_middleware.errors import RequestRefused
from idem_middleware.events import told
from idem_middleware.identity import Admitted, CallerUnknown, Identity, Passed, call_caller, caller_name
from idem_middleware.messages import Request, Response
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected, function_identity, remembered
from idem_middleware.runtime import Runtime
from idem_middleware.settling import Superseded
from idem_middleware.stores.base import Store

__all__ = ["AsyncEngine"]

T = TypeVar("T")

logger = logging.getLogger("idem_middleware")


class AsyncEngine(BaseEngine):
    """Runs a piece of work once, on any event loop, on several in one process too.

    Arguments are those of `Engine`, of which `Engine.asynchronous` gives this twin.
    """

    def __init__(self, store: Store | str, options: Options | None = None, *, runtime: Runtime | None = None) -> None:
        super().__init__(store, options, runtime=runtime)
        self._async_store = self.store.to_async()
        self._recordings = Recordings()

    async def caller(self, admitted: Admitted, native: object) -> str | None:
        """Who sends this request, by the configured function, which may be a coroutine function.

        Raises:
            CallerUnknown: it gave nothing, or raised.
        """
        answer = call_caller(admitted.options, native)
        if inspect.isawaitable(answer):
            try:
                answer = await answer
            except Exception as error:
                logger.error("the caller function raised %s", told(error))  # noqa: TRY400 - its text may hold a token
                raise CallerUnknown from error
        return caller_name(admitted.options, answer)

    async def acquire(
        self, request: Request, admitted: Admitted, caller: str | None = None
    ) -> AsyncLease | Replayed | Refused | Unprotected:
        """Claim the right to run this request, or say what its client gets instead."""
        if request.body.size > SPOOL_BYTES:  # it lies in a file, and reading that would block the loop
            identity = await asyncio.to_thread(self.identify, request, admitted, caller)
        else:
            identity = self.identify(request, admitted, caller)
        return await self.claim(identity) if isinstance(identity, Identity) else identity

    def lease_of(self, lease: Lease) -> AsyncLease:
        """The same lease, for code of the request that runs on an event loop."""
        return AsyncLease(lease.claim, self._async_store, self._recordings)

    async def claim(self, identity: Identity) -> AsyncLease | Replayed | Refused | Unprotected:
        """As `acquire`, for work that is identified already."""
        attempt = self.runtime.attempt(identity)
        outcome: AsyncLease | Replayed | Refused | Unprotected | None = remembered(self.runtime, attempt)
        if outcome is None:
            outcome = await AsyncAcquisition(self.runtime, self._async_store, self._recordings, attempt).run()
        return outcome if isinstance(outcome, AsyncLease) else self.enforced(outcome, identity.options)

    async def run(self, request: Request, handler: Callable[[AsyncLease | None], Awaitable[Response]]) -> Response:
        """As `Engine.run`."""
        admission = self.admit_request(request)
        if isinstance(admission, Passed):
            return await handler(None)
        if isinstance(admission, Refused):
            return admission.response
        outcome: AsyncLease | Replayed | Refused | Unprotected
        try:
            caller = await self.caller(admission, request.native)
        except CallerUnknown:
            outcome = self.refuse_caller(admission)
        else:
            outcome = await self.acquire(request, admission, caller)
        match outcome:
            case Replayed(response) | Refused(_, response):
                return response
            case Unprotected(headers):
                response = await handler(None)
                return Response(response.status, response.headers + headers, response.body)
            case AsyncLease():
                response = await _guarded(outcome, handler)
                settled = await outcome.settle(response)
                return settled.response or response if isinstance(settled, Superseded) else response
            case _:
                assert_never(outcome)

    async def run_once(
        self,
        key: str,
        payload: object,
        function: Callable[[AsyncLease | None], Awaitable[T]],
        *,
        caller: str | None = None,
    ) -> T:
        """As `Engine.run_once`."""
        if self.options.mode == "off":
            return await function(None)
        outcome = await self.claim(function_identity(key, payload, self.options, caller))
        match outcome:
            case Replayed(response):
                return json.loads(response.body)  # type: ignore[no-any-return]
            case Refused(problem, _):
                raise RequestRefused(problem)
            case Unprotected():
                return await function(None)
            case AsyncLease():
                result = await _guarded(outcome, function)
                if outcome.settled:
                    return result
                try:
                    body = json.dumps(result).encode()
                except Exception:
                    await outcome.omit()
                    raise
                settled = await outcome.complete(Response(200, (), body))
                if isinstance(settled, Superseded) and settled.response is not None:
                    return json.loads(settled.response.body)  # type: ignore[no-any-return]
                return result
            case _:
                assert_never(outcome)

    async def drain_async(self, timeout_seconds: float = 5.0) -> bool:
        """As `drain`, of what this loop records too; leaves the loop free."""
        done = await self._recordings.drain(timeout_seconds)
        return await in_thread(self.drain, timeout_seconds) and done


async def _guarded(lease: AsyncLease, function: Callable[[AsyncLease | None], Awaitable[T]]) -> T:
    """What it raises settles the lease and comes out unchanged."""
    try:
        return await function(lease)
    except Exception:
        await lease.settle_exception()
        raise
    except BaseException:  # cancelled half-way: nobody knows what was done
        lease.abandon()
        raise
