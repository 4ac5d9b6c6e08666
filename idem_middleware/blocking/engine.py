"""The engine for callers that may block: threads, WSGI, scripts, queue consumers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, assert_never
from uuid import UUID

from idem_middleware.blocking.acquisition import Acquisition
from idem_middleware.blocking.lease import Lease
from idem_middleware.engine_base import BaseEngine
from idem_middleware.erasure import Erasure, erase
from idem_middleware.errors import RequestRefused
from idem_middleware.identity import Admitted, CallerUnknown, Identity, Passed, call_caller, caller_name
from idem_middleware.keys import parse_key, record_pk, validate_key
from idem_middleware.messages import Request, Response
from idem_middleware.outcomes import (
    Refused,
    Replayed,
    Unprotected,
    function_identity,
    function_pk,
    remembered,
)
from idem_middleware.settling import Superseded

if TYPE_CHECKING:
    from idem_middleware.aio.engine import AsyncEngine

__all__ = ["Engine"]

T = TypeVar("T")


class Engine(BaseEngine):
    """Runs a piece of work once. Safe under threads; one engine serves a whole process.

    `store` is a store or its URL (`dynamodb://TABLE?region=…`, `memory://`).
    """

    @cached_property
    def asynchronous(self) -> AsyncEngine:
        """The same engine, for callers on an event loop."""
        from idem_middleware.aio.engine import AsyncEngine  # noqa: PLC0415 - only where there are event loops

        return AsyncEngine(self.store, self.options, runtime=self.runtime)

    def caller(self, admitted: Admitted, native: object) -> str | None:
        """Who sends this request, by the configured function.

        Raises:
            CallerUnknown: it gave nothing, or raised.
        """
        return caller_name(admitted.options, call_caller(admitted.options, native))

    def acquire(
        self, request: Request, admitted: Admitted, caller: str | None = None
    ) -> Lease | Replayed | Refused | Unprotected:
        """Claim the right to run this request, or say what its client gets instead."""
        identity = self.identify(request, admitted, caller)
        return self.claim(identity) if isinstance(identity, Identity) else identity

    def claim(self, identity: Identity) -> Lease | Replayed | Refused | Unprotected:
        """As `acquire`, for work that is identified already."""
        attempt = self.runtime.attempt(identity)
        outcome: Lease | Replayed | Refused | Unprotected | None = remembered(self.runtime, attempt)
        if outcome is None:
            outcome = Acquisition(self.runtime, attempt).run()
        return outcome if isinstance(outcome, Lease) else self.enforced(outcome, identity.options)

    def run(self, request: Request, handler: Callable[[Lease | None], Response]) -> Response:
        """Run a handler once for this request, or give the answer that it gave, or the refusal.

        The handler gets its lease, or None where the request is not protected. What it raises comes out unchanged.
        """
        admission = self.admit_request(request)
        if isinstance(admission, Passed):
            return handler(None)
        if isinstance(admission, Refused):
            return admission.response
        outcome: Lease | Replayed | Refused | Unprotected
        try:
            caller = self.caller(admission, request.native)
        except CallerUnknown:
            outcome = self.refuse_caller(admission)
        else:
            outcome = self.acquire(request, admission, caller)
        match outcome:
            case Replayed(response) | Refused(_, response):
                return response
            case Unprotected(headers):
                response = handler(None)
                return Response(response.status, response.headers + headers, response.body)
            case Lease():
                response = _guarded(outcome, handler)
                settled = outcome.settle(response)
                return settled.response or response if isinstance(settled, Superseded) else response
            case _:
                assert_never(outcome)

    def erase(self, key: str, *, caller: str | int | UUID | None = None, function: bool = False) -> Erasure:
        """Erase the answer that is kept for this key of this caller; that the work was done stays known.

        `caller` is what the caller function gives (in Django without one: `django:auth.user:PRIMARY_KEY`), `function`
        says that the work came by `run_once`. The key may be in quotes, as a client may have sent it.

        Raises:
            StoreUnavailable: perhaps not erased; call it again.
            KeyInvalid: it is no key.
        """
        parsed = parse_key([key]) if key.startswith('"') else validate_key(key)
        name = None if caller is None else str(caller)
        pk = record_pk(self.options.namespace, name, parsed or "")
        pk = function_pk(pk) if function else pk
        pk = self.runtime.name_of(pk, self.options.namespace, name)
        try:
            return erase(self.store, pk)
        finally:
            self.runtime.cache.drop(pk)

    def run_once(
        self, key: str, payload: object, function: Callable[[Lease | None], T], *, caller: str | None = None
    ) -> T:
        """Run a function once for this key: work that does not come by HTTP.

        The function gets its lease, or None where it runs unprotected (by `mode`, or by `on_store_error="bypass"`).

        What it gives must be JSON; a repeated call gets it read back from JSON. `payload` is what makes two calls the
        same: the same key with another payload is refused. `caller` is whose work it is: an account, a tenant.

        Raises:
            RequestRefused: it is running elsewhere, its outcome is unknown, the key was used for something else, …
            KeyInvalid: the key is not 1 to 255 printable ASCII characters.
        """
        if self.options.mode == "off":
            return function(None)
        outcome = self.claim(function_identity(key, payload, self.options, caller))
        match outcome:
            case Replayed(response):
                return json.loads(response.body)  # type: ignore[no-any-return]
            case Refused(problem, _):
                raise RequestRefused(problem)
            case Unprotected():
                return function(None)
            case Lease():
                result = _guarded(outcome, function)
                if outcome.settled:
                    return result
                try:
                    body = json.dumps(result).encode()
                except Exception:
                    outcome.omit()  # it has run, so it must not run again
                    raise
                settled = outcome.complete(Response(200, (), body))
                if isinstance(settled, Superseded) and settled.response is not None:
                    return json.loads(settled.response.body)  # type: ignore[no-any-return]
                return result
            case _:
                assert_never(outcome)


def _guarded(lease: Lease, function: Callable[[Lease | None], T]) -> T:
    """What it raises settles the lease and comes out unchanged."""
    try:
        return function(lease)
    except Exception:
        lease.settle_exception()
        raise
    except BaseException:  # half-way, by a signal or a time-out: nobody knows what was done
        lease.abandon()
        raise
