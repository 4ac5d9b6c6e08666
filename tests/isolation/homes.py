"""One service, in every framework and at every place where it can claim; who may do what is said by one directory.

A guarded home asks who comes, and whether they may, before it claims. An open one has its middleware outside of all
that: there the caller's function says who comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

from django.conf import settings as django_settings
from django.http import HttpRequest, HttpResponse
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi import Request as FastAPIRequest
from fastapi.routing import APIRoute
from flask import Flask, abort
from flask import request as flask_request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import PlainTextResponse
from starlette.responses import Response as StarletteResponse
from starlette.routing import Route

from idem_flask import Idempotency as FlaskIdempotency
from idem_flask import idempotent as flask_idempotent
from idem_middleware import MemoryStore
from idem_middleware.testing import FaultyStore
from idem_middleware.wsgi import IdempotencyMiddleware as WsgiMiddleware
from idem_starlette import IdempotencyMiddleware as AsgiMiddleware
from idem_starlette.fastapi import Idempotency as FastAPIIdempotency
from tests.fuzz.wire import Answer, AsgiApp, Send, Wild, WsgiApp, over_asgi, over_wsgi

if not django_settings.configured:
    from tests.adapters.django import conftest as _configures_django  # noqa: F401 - one set of settings a process

from tests.fuzz.test_wild_django import SENDERS, project

__all__ = ["GUARDED", "HOMES", "OPEN", "Directory", "House"]

ANSWER = "the answer"


class Directory:
    """Who has which token, and who may do the work."""

    def __init__(self) -> None:
        self.accounts: dict[str, object] = {
            "ann-1": "acme/ann",
            "ann-2": "acme/ann",  # the same user, after a refresh
            "bob-1": "acme/bob",
            "other-ann": "globex/ann",
            "support-as-ann": "acme/ann as seen by support",
        }
        self.forbidden: set[object] = set()

    def account(self, token: str | None) -> object:
        """Whose token this is; None where it is nobody's."""
        return self.accounts.get(token or "")

    def verdict(self, token: str | None) -> int:
        """200 where the work may be done, 401 or 403 where not."""
        account = self.account(token)
        if account is None:
            return 401
        return 403 if account in self.forbidden else 200


@dataclass
class House:
    """One service as its clients meet it."""

    directory: Directory = field(default_factory=Directory)
    runs: list[str | None] = field(default_factory=list)
    store: FaultyStore = field(default_factory=lambda: FaultyStore(MemoryStore()))
    _send: Send | None = None

    def work(self, token: str | None) -> str:
        """What is to be done once."""
        self.runs.append(token)
        return ANSWER

    def send(self, token: str | None, key: str = "k", body: bytes = b"{}", **more: bytes) -> Answer:
        """One POST; `token` None: without credentials."""
        headers = [("Idempotency-Key", f'"{key}"'.encode()), ("Content-Type", b"application/json")]
        headers += [("Authorization", token.encode("utf-8"))] if token is not None else []
        headers += list(more.items())
        assert self._send is not None
        return self._send(Wild(b"/run/a", b"", tuple(headers), body))

    @property
    def calls(self) -> list[str]:
        """What the store was asked since this was asked last."""
        calls: list[str] = [call.operation for call in self.store.calls]
        self.store.calls.clear()
        return calls

    @property
    def records(self) -> int:
        """How many keys are taken."""
        return len(self.store.store)  # type: ignore[arg-type]


Home = Callable[..., AbstractContextManager[House]]


def token_of(headers: Mapping[str, str]) -> str | None:
    """The credentials of a request: UTF-8 octets, which frameworks give as Latin-1."""
    value = headers.get("authorization")
    return None if value is None else value.encode("latin-1").decode("utf-8")


def _named(house: House, options: dict[str, Any], token: Callable[[Any], str | None]) -> dict[str, Any]:
    """Options with the caller's function, unless they have one: `asks` is any function of the token."""
    asks = options.pop("asks", house.directory.account)
    return options if "caller" in options else {**options, "caller": lambda native: asks(token(native))}


# --- Starlette and FastAPI --------------------------------------------------------------------------------------------


def _header_token(request: Any) -> str | None:
    return token_of(request.headers)


class _AsgiGuard:
    def __init__(self, app: AsgiApp, directory: Directory) -> None:
        self._app = app
        self._directory = directory

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        verdict = self._directory.verdict(_header_token(StarletteRequest(scope)))
        answer = self._app if verdict == 200 else PlainTextResponse("no", verdict)
        await answer(scope, receive, send)


def _starlette(house: House, options: dict[str, Any], *, guarded: bool) -> Send:
    async def view(request: StarletteRequest) -> StarletteResponse:
        token = _header_token(request)
        verdict = house.directory.verdict(token) if checks else 200
        return PlainTextResponse(house.work(token), 201) if verdict == 200 else PlainTextResponse("no", verdict)

    checks = options.pop("checks", True)
    protection = Middleware(AsgiMiddleware, store=house.store, **_named(house, options, _header_token))
    if guarded:
        guard = Middleware(_AsgiGuard, directory=house.directory)
        route = Route("/run/{name}", view, methods=["POST"], middleware=[guard, protection])
        return partial(over_asgi, Starlette(routes=[route]))
    route = Route("/run/{name}", view, methods=["POST"])
    return partial(over_asgi, Starlette(routes=[route], middleware=[protection]))


def _fastapi(house: House, options: dict[str, Any], *, guarded: bool) -> Send:
    def may(request: FastAPIRequest) -> None:
        verdict = house.directory.verdict(_header_token(request)) if checks else 200
        if verdict != 200:
            raise HTTPException(verdict)

    checks = options.pop("checks", True)
    named = {"store": house.store, **_named(house, options, _header_token)}
    route_class = FastAPIIdempotency(**named).route_class if guarded else APIRoute
    router = APIRouter(dependencies=[Depends(may)], route_class=route_class)

    @router.post("/run/{name}", status_code=201)
    async def view(request: FastAPIRequest, name: str) -> str:
        return house.work(_header_token(request))

    app = FastAPI()
    app.include_router(router)
    if not guarded:
        app.add_middleware(AsgiMiddleware, **named)
    return partial(over_asgi, app)


# --- Flask and plain WSGI ---------------------------------------------------------------------------------------------


def _flask(house: House, options: dict[str, Any], *, guarded: bool) -> Send:
    app = Flask("house")
    checks = options.pop("checks", True)
    named = _named(house, options, _header_token)
    FlaskIdempotency(app, store=house.store, **({"exempt_paths": ["/"], **named} if guarded else named))

    def authorised(view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def checked(**values: Any) -> Any:
            verdict = house.directory.verdict(_header_token(flask_request)) if checks else 200
            return view(**values) if verdict == 200 else abort(verdict)

        return checked

    def view(name: str) -> tuple[str, int]:
        return house.work(_header_token(flask_request)), 201

    app.post("/run/<path:name>")(authorised(flask_idempotent(view) if guarded else view))
    return partial(over_wsgi, app.wsgi_app)


def _environ_token(environ: Mapping[str, Any]) -> str | None:
    value = environ.get("HTTP_AUTHORIZATION")
    return token_of({} if value is None else {"authorization": value})


def _wsgi(house: House, options: dict[str, Any], *, guarded: bool) -> Send:
    def guard(inner: WsgiApp) -> WsgiApp:
        def checked(environ: dict[str, Any], start: Any) -> Any:
            verdict = house.directory.verdict(_environ_token(environ)) if checks else 200
            if verdict == 200:
                return inner(environ, start)
            start(f"{verdict} No", [("Content-Type", "text/plain")])
            return [b"no"]

        return checked

    def view(environ: dict[str, Any], start: Any) -> Any:
        start("201 Created", [("Content-Type", "text/plain")])
        return [house.work(_environ_token(environ)).encode()]

    checks = options.pop("checks", True)
    named = {"store": house.store, **_named(house, options, _environ_token)}
    app: Any = guard(WsgiMiddleware(view, **named)) if guarded else WsgiMiddleware(guard(view), **named)
    return partial(over_wsgi, app)


# --- Django and REST framework ----------------------------------------------------------------------------------------


def _django_view(house: House, *, guarded: bool, checks: bool) -> Callable[..., Any]:
    from idem_django import idempotent  # noqa: PLC0415 - Django must be set up before

    def work(request: HttpRequest) -> HttpResponse:
        return HttpResponse(house.work(_header_token(request)), status=201)

    inner = idempotent(work) if guarded else work

    @wraps(inner)
    def view(request: HttpRequest) -> HttpResponse:
        verdict = house.directory.verdict(_header_token(request)) if checks else 200
        return inner(request) if verdict == 200 else HttpResponse("no", status=verdict)

    return view


def _rest_view(house: House, *, guarded: bool, checks: bool) -> Callable[..., Any]:
    from rest_framework.permissions import BasePermission  # noqa: PLC0415 - as above
    from rest_framework.response import Response as RestResponse  # noqa: PLC0415
    from rest_framework.views import APIView  # noqa: PLC0415

    from idem_django.rest_framework import IdempotentMixin  # noqa: PLC0415

    class MayWork(BasePermission):
        def has_permission(self, request: Any, view: Any) -> bool:
            return not checks or house.directory.verdict(_header_token(request)) == 200

    def post(view: object, request: Any) -> RestResponse:
        return RestResponse(house.work(_header_token(request)), 201)

    bases: tuple[type, ...] = (IdempotentMixin, APIView) if guarded else (APIView,)
    made: Any = type("House", bases, {"authentication_classes": (), "permission_classes": (MayWork,), "post": post})
    view: Callable[..., Any] = made.as_view()
    return view


@contextmanager
def _at_home(house: House, options: dict[str, Any], *, view: Callable[..., Any], mode: str) -> Iterator[Send]:
    with project(view, STORE=house.store, **_named(house, options, _header_token)):
        yield SENDERS[mode]()


# --- all of them ------------------------------------------------------------------------------------------------------


def _home(make: Callable[..., Send], *, guarded: bool) -> Home:
    @contextmanager
    def at_home(**options: Any) -> Iterator[House]:
        house = House()
        house._send = make(house, options, guarded=guarded)
        yield house

    return at_home


def _django_home(make: Callable[..., Callable[..., Any]], mode: str, *, guarded: bool) -> Home:
    @contextmanager
    def at_home(**options: Any) -> Iterator[House]:
        house = House()
        view = make(house, guarded=guarded, checks=options.pop("checks", True))
        chosen = {"EXEMPT_PATHS": ["/"], **options} if guarded else options
        with _at_home(house, chosen, view=view, mode=mode) as send:
            house._send = send
            yield house

    return at_home


def _homes(*, guarded: bool) -> dict[str, Home]:
    return {
        "starlette": _home(_starlette, guarded=guarded),
        "fastapi": _home(_fastapi, guarded=guarded),
        "flask": _home(_flask, guarded=guarded),
        "wsgi": _home(_wsgi, guarded=guarded),
        "django-wsgi": _django_home(_django_view, "wsgi", guarded=guarded),
        "django-asgi": _django_home(_django_view, "asgi", guarded=guarded),
        "drf": _django_home(_rest_view, "wsgi", guarded=guarded),
    }


GUARDED = _homes(guarded=True)
OPEN = _homes(guarded=False)
HOMES = {f"{name}-guarded": home for name, home in GUARDED.items()} | {
    f"{name}-open": home for name, home in OPEN.items()
}
