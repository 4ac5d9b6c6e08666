"""The middleware: decides where a request is claimed, and sees that what came of it is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from idem_django.conf import configuration
from idem_django.exchange import LEASE_ATTRIBUTE, Exchange, exchange_on
from idem_django.finishing import finished
from idem_django.marks import View
from idem_django.recording import record, record_async
from idem_middleware.claims import BaseLease
from idem_middleware.options import NEVER_COVERED
from idem_middleware.wsgi.claiming import LEASE

__all__ = ["IdempotencyMiddleware"]


class IdempotencyMiddleware:
    """Runs each covered request once. The last entry of `MIDDLEWARE`; the setting `IDEMPOTENCY` holds its options.

    A request is claimed when Django is about to call its view, after all other middleware had its say; or where
    `@idempotent` or `IdempotentMixin` says. The view finds its lease at `request.idempotency`.

    Raises:
        ImproperlyConfigured: the setting is missing or wrong.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._configuration = configuration()
        self._asynchronous = iscoroutinefunction(get_response)
        self.process_view: Callable[..., Any] = self._process_view
        if self._asynchronous:
            markcoroutinefunction(self)
            self.process_view = self._process_view_async

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._asynchronous:
            return self.__acall__(request)
        exchange = self._begun(request)
        response: HttpResponseBase
        if exchange is None:
            response = self.get_response(request)
            return response
        try:
            response = self.get_response(request)
        except BaseException as error:
            lease = exchange.blocking_lease
            if lease is not None and isinstance(error, Exception):
                lease.settle_exception()
            elif lease is not None:
                lease.abandon()
            exchange.input.finish()
            raise
        return record(exchange, request, response)

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        """As `__call__`, on an event loop."""
        exchange = self._begun(request)
        response: HttpResponseBase
        if exchange is None:
            response = await self.get_response(request)
            return response
        try:
            response = await finished(exchange, lambda: self.get_response(request))
        except BaseException as error:
            lease = exchange.async_lease
            if lease is not None and isinstance(error, Exception):
                await lease.settle_exception()
            elif lease is not None:
                lease.abandon()
            exchange.input.finish()
            raise
        return await record_async(exchange, request, response)

    def _process_view(
        self, request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        exchange = exchange_on(request)
        return exchange.claim(view) if exchange is not None and exchange.begins(view, self) else None

    async def _process_view_async(
        self, request: HttpRequest, view: View, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        exchange = exchange_on(request)
        return await exchange.claim_async(view) if exchange is not None and exchange.begins(view, self) else None

    def _begun(self, request: HttpRequest) -> Exchange | None:
        """This middleware's exchange with the request; None where it has nothing to do but to pass it on."""
        if request.method in NEVER_COVERED:
            setattr(request, LEASE_ATTRIBUTE, None)  # views that answer several methods look there
            return None
        if exchange_on(request) is not None:
            return None  # an instance further outside acts
        exchange = Exchange(self._configuration, request, self, outer=_outer_lease(request))
        return exchange if exchange.coverable else None


def _outer_lease(request: HttpRequest) -> BaseLease | None:
    """The lease of a middleware of another kind, around Django's whole application."""
    scope = getattr(request, "scope", None)
    lease = request.META.get(LEASE) if scope is None else (scope.get("state") or {}).get("idempotency")
    return lease if isinstance(lease, BaseLease) else None
