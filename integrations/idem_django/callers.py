"""Who sends a request: the configured function's answer, or else the authenticated user."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest
from django.utils.functional import LazyObject, empty

from idem_middleware.blocking.engine import Engine
from idem_middleware.events import told
from idem_middleware.identity import Admitted, CallerUnknown, caller_name

__all__ = ["caller_of", "caller_of_async"]

logger = logging.getLogger("idem_middleware")

# Importing the middleware itself would need the apps to be ready.
_AUTHENTICATION = "django.contrib.auth.middleware"


def caller_of(engine: Engine, admitted: Admitted, request: HttpRequest) -> str | None:
    """The caller; None where nobody is logged in and no function is configured.

    Raises:
        CallerUnknown: the configured function gave nothing, or raised.
    """
    if admitted.options.caller is None:
        return _user_name(getattr(request, "user", None))
    return engine.caller(admitted, request)


async def caller_of_async(admitted: Admitted, request: HttpRequest) -> str | None:
    """As `caller_of`. A function that turns out to use the database is run where Django allows it.

    Raises:
        CallerUnknown: as `caller_of`.
    """
    function = admitted.options.caller
    if function is None:
        return _user_name(await _user(request))
    return caller_name(admitted.options, await _answer(function, request) if callable(function) else None)


async def _answer(function: Callable[[Any], object], request: HttpRequest) -> object:
    try:
        try:
            answer = function(request)
        except SynchronousOnlyOperation:
            answer = await sync_to_async(function)(request)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        logger.error("the caller function raised %s", told(error))  # noqa: TRY400 - its text may hold a token
        raise CallerUnknown from error


async def _user(request: HttpRequest) -> object:
    user: Any = getattr(request, "user", None)
    if not isinstance(user, LazyObject) or getattr(user, "_wrapped", None) is not empty:
        return user  # already known
    if getattr(vars(user).get("_setupfunc"), "__module__", None) == _AUTHENTICATION:
        if hasattr(request, "auser"):
            return await request.auser()
        if request.session.session_key is None:  # Django 4.2: nobody, and no thread is needed to find that out
            return None
    return await sync_to_async(lambda: user if user.is_authenticated else None)()


def _user_name(user: object) -> str | None:
    """A name that no other kind of user, and hardly a function of the project's, gives to somebody else."""
    key = getattr(user, "pk", None)
    if key is None or not getattr(user, "is_authenticated", False):
        return None
    meta = getattr(user, "_meta", None)
    kind = type(user).__qualname__ if meta is None else meta.concrete_model._meta.label_lower  # noqa: SLF001
    return f"django:{kind}:{key}"
