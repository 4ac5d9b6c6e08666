"""A payments API on Starlette that charges once, however often a request comes.

    IDEMPOTENCY_STORE=dynamodb://TABLE uvicorn example_apps.payments_starlette.app:app

Without IDEMPOTENCY_STORE the keys are remembered in memory: enough for one process, and until it ends.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from idem_starlette import IdempotencyMiddleware

STORE = os.environ.get("IDEMPOTENCY_STORE", "memory://")
LEASE_SECONDS = float(os.environ.get("PAYMENTS_LEASE_SECONDS", "60"))
PROVIDER_URL = os.environ.get("PAYMENTS_PROVIDER_URL", "http://127.0.0.1:8001")

# An API key may be replaced between a request and its retry; the account that it belongs to stays.
ACCOUNTS = {"key-of-anna": "anna", "key-of-bob": "bob"}


class ApiKeys(AuthenticationBackend):
    """`Authorization: Bearer API-KEY` says which account asks."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        account = ACCOUNTS.get(conn.headers.get("authorization", "").removeprefix("Bearer "))
        if account is None:
            raise AuthenticationError("this needs an API key")
        return AuthCredentials(["payments"]), SimpleUser(account)


async def create_charge(request: Request) -> Response:
    """Charge `{"amount": 1200, "currency": "eur"}`."""
    try:
        order = await request.json()
    except ValueError:
        order = None
    match order:
        case {"amount": int(amount), "currency": str(currency)} if amount > 0:
            return await ask_provider(request, "POST", "/charges", amount=amount, currency=currency)
    return JSONResponse({"error": "a charge has an amount above 0 and a currency"}, 400)


async def refund(request: Request) -> Response:
    """Give the money of one charge back."""
    return await ask_provider(request, "POST", f"/charges/{request.path_params['charge']:d}/refund")


async def list_charges(request: Request) -> Response:
    """All charges of the account."""
    return await ask_provider(request, "GET", "/charges")


async def ask_provider(request: Request, method: str, path: str, **order: Any) -> Response:
    """Pass its answer on. A 502 is not kept: the retry of the same request asks again."""
    headers = {"X-Account": request.user.display_name}
    lease = getattr(request.state, "idempotency", None)  # a GET has none
    if lease is not None:
        # The same in every attempt: should we crash after the provider has charged, and before that is recorded, the
        # provider can tell by it that our next attempt is no new charge.
        headers["Idempotency-Key"] = lease.derive_key("provider")
    try:
        answer = await request.state.provider.request(method, path, json=order or None, headers=headers)
    except httpx.HTTPError:
        return JSONResponse({"error": "the payment provider does not answer"}, 502)
    if answer.is_server_error:
        return JSONResponse({"error": "the payment provider has failed"}, 502)
    return JSONResponse(answer.json(), answer.status_code)


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """One pool of connections to the provider."""
    async with httpx.AsyncClient(base_url=PROVIDER_URL, timeout=10) as provider:
        yield {"provider": provider}


app = Starlette(
    lifespan=lifespan,
    middleware=[
        # First who asks, then whether it was asked before: nobody gets an answer again that is not theirs.
        Middleware(
            AuthenticationMiddleware,
            backend=ApiKeys(),
            on_error=lambda _, error: JSONResponse({"error": str(error)}, 401, {"WWW-Authenticate": "Bearer"}),
        ),
        Middleware(
            IdempotencyMiddleware,
            store=STORE,
            caller=lambda request: request.user.display_name,
            lease_seconds=LEASE_SECONDS,
        ),
    ],
    routes=[
        Route("/charges", create_charge, methods=["POST"]),
        Route("/charges", list_charges),
        Route("/charges/{charge:int}/refund", refund, methods=["POST"]),
    ],
)
