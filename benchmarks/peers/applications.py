"""One application in each framework, as little as a view can do that reads its body.

    POST, GET /charges    a small answer
    POST /exports         one of 100 KB
    POST /held            stays until somebody opens the gate: what a conflict meets
    GET /gate             whether somebody stays there
    GET /gate/open        lets him go

What protects a function and no application (a guard) is called in the view, with the key, the body and the work.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from threading import Event
from types import ModuleType
from typing import Any

Answer = tuple[int, dict[str, Any]]
Work = Callable[[], dict[str, Any]]
Guard = Callable[[str, bytes, Work], Answer]
AsyncGuard = Callable[[str, bytes, Work], Awaitable[Answer]]

ANSWER = {"id": "ch_1", "status": "succeeded", "amount": 1200, "currency": "EUR"}


def _export(characters: int) -> str:
    """Charges, as a report lists them."""
    chance = random.Random(1)  # noqa: S311  # any numbers, always the same
    lines = (
        f"ch_{chance.randbytes(8).hex()},{chance.randrange(100_000)},EUR,succeeded,2026-11-29" for _ in range(3000)
    )
    return " ".join(lines)[:characters]


LARGE_ANSWER = {"data": _export(100_000)}
"""It compresses to a third."""


class _Gate:
    """Holds whoever comes until it is opened, a minute at most."""

    def __init__(self) -> None:
        self._entered, self._opened = Event(), Event()

    def wait(self) -> dict[str, Any]:
        self._opened.clear()
        self._entered.set()
        self._opened.wait(60)
        self._entered.clear()
        return ANSWER

    def open(self) -> dict[str, Any]:
        self._opened.set()
        return {}

    def look(self) -> dict[str, Any]:
        return {"inside": self._entered.is_set()}


_GATE = _Gate()
_WORKS: dict[str, Work] = {
    "/charges": lambda: ANSWER,
    "/exports": lambda: LARGE_ANSWER,
    "/held": _GATE.wait,
    "/gate": _GATE.look,
    "/gate/open": _GATE.open,
}
_METHODS = ["GET", "POST"]


def _answered(guard: Guard | None, path: str, key: str | None, body: bytes) -> Answer:
    work = _WORKS[path]
    return (201, work()) if guard is None or key is None else guard(key, body, work)


async def _answered_on_a_loop(guard: AsyncGuard | None, path: str, key: str | None, body: bytes) -> Answer:
    work = _WORKS[path]
    if guard is not None and key is not None:
        return await guard(key, body, work)
    return 201, await asyncio.to_thread(work) if path == "/held" else work()


def in_threads(guard: Guard) -> AsyncGuard:
    """What blocks, beside an event loop."""

    async def guarded(key: str, body: bytes, work: Work) -> Answer:
        return await asyncio.to_thread(guard, key, body, work)

    return guarded


def starlette_app(guard: AsyncGuard | None = None) -> Any:
    """In Starlette."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def view(request: Request) -> JSONResponse:
        body = await request.body()
        key = request.headers.get("idempotency-key")
        status, answer = await _answered_on_a_loop(guard, request.url.path, key, body)
        return JSONResponse(answer, status)

    return Starlette(routes=[Route(path, view, methods=_METHODS) for path in _WORKS])


def fastapi_app() -> Any:
    """In FastAPI, by its own routes."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    app = FastAPI()

    async def view(request: Any) -> Any:
        body = await request.body()
        key = request.headers.get("idempotency-key")
        status, answer = await _answered_on_a_loop(None, request.url.path, key, body)
        return JSONResponse(answer, status)

    view.__annotations__ = {"request": Request}  # which FastAPI would look for among the names of this module
    for path in _WORKS:
        app.add_api_route(path, view, methods=_METHODS)
    return app


def flask_app(guard: Guard | None = None) -> Any:
    """In Flask."""
    from flask import Flask, jsonify, request

    app = Flask(__name__)

    def view() -> Any:
        body = request.get_data()
        status, answer = _answered(guard, request.path, request.headers.get("idempotency-key"), body)
        return jsonify(answer), status

    for path in _WORKS:
        app.add_url_rule(path, view_func=view, methods=_METHODS)
    return app


def django_app(*, on_a_loop: bool, middleware: list[str], **settings: Any) -> Any:
    """In Django: one of its two handlers. The first that is made in a process says what the settings are."""
    import django
    from django.conf import settings as configured
    from django.core.handlers.asgi import ASGIHandler
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpRequest, JsonResponse
    from django.test.utils import override_settings
    from django.urls import path as route

    def view(request: HttpRequest) -> JsonResponse:
        status, answer = _answered(None, request.path, None, request.body)
        return JsonResponse(answer, status=status)

    async def view_on_a_loop(request: HttpRequest) -> JsonResponse:
        status, answer = await _answered_on_a_loop(None, request.path, None, request.body)
        return JsonResponse(answer, status=status)

    if not configured.configured:
        chosen: Any = view_on_a_loop if on_a_loop else view
        urls = ModuleType("urls_of_this_benchmark")
        urls.__dict__["urlpatterns"] = [route(path.removeprefix("/"), chosen) for path in _WORKS]
        configured.configure(ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], **settings)
        django.setup(set_prefix=False)
    with override_settings(MIDDLEWARE=middleware):
        return ASGIHandler() if on_a_loop else WSGIHandler()
