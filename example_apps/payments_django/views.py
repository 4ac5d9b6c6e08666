"""The payments API: it charges once, however often a request comes."""

from __future__ import annotations

import json
from typing import Any

import httpx
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

provider = httpx.Client(base_url=settings.PAYMENTS_PROVIDER_URL, timeout=10)


@require_http_methods(["GET", "POST"])
def charges(request: HttpRequest) -> JsonResponse:
    """GET: all charges of the account. POST: charge `{"amount": 1200, "currency": "eur"}`."""
    if request.method == "GET":
        return ask_provider(request, "/charges")
    try:
        order = json.loads(request.body)
    except ValueError:
        order = None
    match order:
        case {"amount": int(amount), "currency": str(currency)} if amount > 0:
            return ask_provider(request, "/charges", amount=amount, currency=currency)
    return JsonResponse({"error": "a charge has an amount above 0 and a currency"}, status=400)


@require_POST
def refund(request: HttpRequest, charge: int) -> JsonResponse:
    """Give the money of one charge back."""
    return ask_provider(request, f"/charges/{charge:d}/refund")


def ask_provider(request: HttpRequest, path: str, **order: Any) -> JsonResponse:
    """Pass its answer on. A 502 is not kept: the retry of the same request asks again."""
    headers = {"X-Account": request.account}  # type: ignore[attr-defined]
    lease = getattr(request, "idempotency", None)  # a GET has none
    if lease is not None:
        # The same in every attempt: should we crash after the provider has charged, and before that is recorded, the
        # provider can tell by it that our next attempt is no new charge.
        headers["Idempotency-Key"] = lease.derive_key("provider")
    try:
        answer = provider.request(request.method or "GET", path, json=order or None, headers=headers)
    except httpx.HTTPError:
        return JsonResponse({"error": "the payment provider does not answer"}, status=502)
    if answer.is_server_error:
        return JsonResponse({"error": "the payment provider has failed"}, status=502)
    return JsonResponse(answer.json(), status=answer.status_code, safe=False)
