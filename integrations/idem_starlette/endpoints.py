"""An endpoint of FastAPI with a question before it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import get_name

from idem_middleware.errors import ConfigurationError

__all__ = ["before"]

_MARK = "__idempotent__"


def before(endpoint: Callable[..., Any], ask: Callable[[], Awaitable[Response | None]]) -> Callable[..., Any]:
    """The endpoint, called only if `ask` gives no answer; FastAPI calls it when all input is there and valid.

    Raises:
        ConfigurationError: it yields its answer.
    """
    if hasattr(endpoint, _MARK):  # an older FastAPI builds the routes of an included router once more
        return endpoint
    name = get_name(endpoint)
    faces = _faces(endpoint)
    if any(inspect.isgeneratorfunction(face) or inspect.isasyncgenfunction(face) for face in faces):
        problem = (
            f"{name} yields its answer: FastAPI sends its head before it is called, too late for a route class to "
            "replay or refuse. Return a StreamingResponse, or protect it by IdempotencyMiddleware"
        )
        raise ConfigurationError([problem])
    is_coroutine = any(inspect.iscoroutinefunction(face) for face in faces)

    @functools.wraps(endpoint)
    async def asking(*args: Any, **values: Any) -> Any:
        answer = await ask()
        if answer is not None:
            return answer
        if is_coroutine:
            return await endpoint(*args, **values)
        return await run_in_threadpool(endpoint, *args, **values)

    asking.__name__ = name  # a partial or an object has none to copy
    # An older FastAPI resolves annotations that are strings among the globals of what it calls, so they are resolved
    # here. A name that only type checkers know: FastAPI's own way says best what is wrong with it.
    with suppress(NameError):
        asking.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    setattr(asking, _MARK, True)
    return asking


def _faces(endpoint: Callable[..., Any]) -> tuple[Any, ...]:
    """Where it may show what kind of function it is: FastAPI, too, looks into partials, decorators and objects."""
    inner = endpoint
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    return endpoint, inner, type(inner).__call__
