"""One request on its way through the middleware: where it is claimed, and what its answer has to know of that."""

from __future__ import annotations

import logging
from typing import Any, assert_never

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest

from idem_django.callers import caller_of, caller_of_async
from idem_django.conf import Configuration
from idem_django.inputs import Input
from idem_django.leases import as_async, as_blocking
from idem_django.marks import Mark, View, mark_of
from idem_django.messages import ExactResponse, key_lines, to_request, to_response
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.lease import Lease
from idem_middleware.body import BodyTooLarge
from idem_middleware.claims import BaseLease
from idem_middleware.identity import Admitted, CallerUnknown, Passed
from idem_middleware.messages import HeaderPairs
from idem_middleware.options import NEVER_COVERED, Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.problems import Problem, ProblemType

__all__ = ["LEASE_ATTRIBUTE", "Exchange", "exchange_of", "exchange_on", "native_request"]

LEASE_ATTRIBUTE = "idempotency"
"""Of a request: where its view finds its lease."""

logger = logging.getLogger("idem_middleware")

_ATTRIBUTE = "_idempotency_exchange"


class Exchange:
    """Attached to its request. Claims at most once, wherever the first to ask stands."""

    def __init__(
        self, configuration: Configuration, request: HttpRequest, owner: object, *, outer: BaseLease | None = None
    ) -> None:
        """`owner` is the middleware that acts; `outer` the lease, if somebody around Django protects the request."""
        self._configuration = configuration
        self._owner = owner
        self._request: Any = request
        self._acted = outer is not None
        self.mark: Mark | None = None
        self.options: Options = configuration.engine.options
        self.lease: Lease | AsyncLease | None = None
        self.headers: HeaderPairs = ()
        self.client_gone = False
        self.input = Input(request)
        self.coverable = outer is None and request.method not in NEVER_COVERED
        setattr(request, LEASE_ATTRIBUTE, outer)
        setattr(request, _ATTRIBUTE, self)
        if self.coverable:
            self.input.watch()

    @property
    def running(self) -> bool:
        """Whether work is going on that has to be recorded."""
        return self.lease is not None and not self.lease.settled

    @property
    def blocking_lease(self) -> Lease | None:
        """The lease, while its work is to be recorded."""
        return as_blocking(self.lease) if self.lease is not None and not self.lease.settled else None

    @property
    def async_lease(self) -> AsyncLease | None:
        """As `blocking_lease`."""
        if self.lease is None or self.lease.settled:
            return None
        return as_async(self.lease, self._configuration.asynchronous)

    def begins(self, view: View, owner: object) -> bool:
        """Django is about to call this view: whether the claim is to be made in front of it."""
        if owner is not self._owner or not self.coverable or self._acted:
            return False
        self.mark = mark_of(view, self._request.method)
        if self.mark is not None and self.mark.exempt:
            self.input.release()
        return self.mark is None

    def waits_for(self, mark: Mark) -> bool:
        """Whether it is the wrapper with this mark that has to claim."""
        return self.coverable and not self._acted and self.mark in (None, mark)

    def claim(self, view: View, *marks: Mark) -> HttpResponse | None:
        """Claim, with these marks' options: the answer to give in the view's place, or None to let it run."""
        admission = self._admit(marks)
        if not isinstance(admission, Admitted):
            return admission
        try:
            body = self.input.complete(self.options.max_request_bytes)
            caller = caller_of(self._configuration.engine, admission, self._request)
        except (BodyTooLarge, CallerUnknown, OSError, ImproperlyConfigured) as error:
            return self._turned_away(error)
        request = to_request(self._request, body)
        return self._decided(self._configuration.engine.acquire(request, admission, caller), view)

    async def claim_async(self, view: View, *marks: Mark) -> HttpResponse | None:
        """As `claim`, on an event loop."""
        admission = self._admit(marks)
        if not isinstance(admission, Admitted):
            return admission
        try:
            body = await self.input.complete_async(self.options.max_request_bytes)
            caller = await caller_of_async(admission, self._request)
        except (BodyTooLarge, CallerUnknown, OSError, ImproperlyConfigured) as error:
            return self._turned_away(error)
        request = to_request(self._request, body)
        return self._decided(await self._configuration.asynchronous.acquire(request, admission, caller), view)

    def _admit(self, marks: tuple[Mark, ...]) -> Admitted | HttpResponse | None:
        """By the head alone: a request that is refused for its key need not send its body."""
        request = self._request
        self.options = options = self._configuration.options_for(*marks)
        lines = key_lines(request, options.header)
        admission = self._configuration.engine.admit(options, request.method, request.path_info, lines)
        match admission:
            case Passed():
                self.input.release()
                return None
            case Refused(_, response):
                self._acted = True
                return ExactResponse(response)
            case Admitted():
                self._acted = True
                return admission
            case _:
                assert_never(admission)

    def _turned_away(self, error: BodyTooLarge | CallerUnknown | OSError | ImproperlyConfigured) -> HttpResponse | None:
        """Nothing was claimed.

        Raises:
            ImproperlyConfigured: the request can't be told from another; while only observing it is logged.
        """
        engine = self._configuration.engine
        if isinstance(error, ImproperlyConfigured):
            if self.options.mode != "observe":
                raise error
            logger.error("a request could not be observed: %s", error)
            return None
        if isinstance(error, OSError):  # the client left while it was sending: nobody reads this
            return None if self.options.mode == "observe" else HttpResponseBadRequest()
        kind = ProblemType.REQUEST_TOO_LARGE if isinstance(error, BodyTooLarge) else ProblemType.CALLER_UNKNOWN
        return self._decided(engine.enforced(engine.refuse(Problem(kind), self.options), self.options), None)

    def _decided(
        self, outcome: Lease | AsyncLease | Replayed | Refused | Unprotected, view: View | None
    ) -> HttpResponse | None:
        match outcome:
            case Replayed(response) | Refused(_, response):
                return ExactResponse(response)
            case Unprotected(headers):
                self.headers = headers
            case Lease() | AsyncLease():
                outcome.translate_with(to_response)
                self.lease = outcome
                on_loop = iscoroutinefunction(view) if view is not None else isinstance(outcome, AsyncLease)
                setattr(self._request, LEASE_ATTRIBUTE, self.async_lease if on_loop else self.blocking_lease)
            case _:
                assert_never(outcome)
        return None


def native_request(values: tuple[object, ...]) -> HttpRequest | None:
    """Django's request among a view's first arguments: a method's comes after its object's."""
    for value in values[:2]:
        if isinstance(value, HttpRequest):
            return value
        inner = getattr(value, "_request", None)  # REST framework wraps it
        if isinstance(inner, HttpRequest):
            return inner
    return None


def exchange_on(request: HttpRequest) -> Exchange | None:
    """The exchange of a request that came through the middleware."""
    found = getattr(request, _ATTRIBUTE, None)
    return found if isinstance(found, Exchange) else None


def exchange_of(request: HttpRequest | None, what: object) -> Exchange | None:
    """The exchange of a request that comes to this protected view; None where there is nothing to protect.

    Raises:
        ImproperlyConfigured: the middleware, without which nothing is recorded, is missing.
    """
    found = None if request is None else exchange_on(request)
    if found is not None:
        return found
    if request is not None and request.method in NEVER_COVERED:
        return None
    name = getattr(what, "__qualname__", type(what).__qualname__)
    raise ImproperlyConfigured(
        f"{name} is to be protected by idem_django, but this request did not come through its middleware, where "
        'answers are recorded. Add "idem_django.IdempotencyMiddleware" as the last entry of MIDDLEWARE.'
    )
