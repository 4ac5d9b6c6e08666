"""Who asks: `Authorization: Bearer API-KEY` says which account."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase, JsonResponse

# An API key may be replaced between a request and its retry; the account that it belongs to stays.
ACCOUNTS = {"key-of-anna": "anna", "key-of-bob": "bob"}


class ApiKeyMiddleware:
    """Puts the account's name on the request; nobody without one gets further."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        account = ACCOUNTS.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if account is None:
            return JsonResponse({"error": "this needs an API key"}, status=401, headers={"WWW-Authenticate": "Bearer"})
        request.account = account  # type: ignore[attr-defined]
        return self.get_response(request)
