"""Which answers are not the view's: given in its place, when nothing was begun."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch

from idem_middleware.keeping import method_refused
from idem_middleware.messages import HeaderPairs

__all__ = ["from_view"]

_BEFORE_THE_HANDLER = frozenset({"authentication_failed", "not_acceptable", "not_authenticated", "throttled"})


def from_view(request: HttpRequest, response: HttpResponseBase, headers: HeaderPairs) -> bool:
    """Whether the view itself gave this answer."""
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return not method_refused(headers, request.method or "")
    if response.status_code == HTTPStatus.FOUND:
        return not _is_login(request, response)
    return not (getattr(response, "exception", False) and _refused_by_rest_framework(response))


def _is_login(request: HttpRequest, response: HttpResponseBase) -> bool:
    """`login_required` and the like send whoever is not logged in to the login page, and from there back here.

    A view that has done its work may send its client to the login page as well; but not back.
    """
    try:
        login = resolve_url(settings.LOGIN_URL)
    except NoReverseMatch:
        return False
    target = urlsplit(response.get("Location", ""))
    back = QueryDict(target.query).get(REDIRECT_FIELD_NAME, "")
    return target.path == urlsplit(login).path and urlsplit(back).path == request.path


def _refused_by_rest_framework(response: Any) -> bool:
    """By the code that its exceptions leave in the answer.

    A request that can't be parsed is refused when the view first asks for its data. A view may raise the same exception
    for reasons of its own; then the request was parsed, or was not looked at.
    """
    from rest_framework.request import Empty  # noqa: PLC0415 - it is there, or this answer would not be

    data = response.data
    code = getattr(data.get("detail"), "code", None) if isinstance(data, dict) else None
    if code in _BEFORE_THE_HANDLER:
        return True
    parsed = vars(response.renderer_context["request"]).get("_data", Empty)
    if code == "parse_error":
        return parsed is not Empty and not parsed
    return code == "unsupported_media_type" and parsed is Empty
