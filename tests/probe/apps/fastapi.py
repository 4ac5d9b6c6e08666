"""The probe on FastAPI: the app's middleware, and routers whose routes claim after the dependencies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from tests.probe.answers import METHODS, principal
from tests.probe.apps.starlette import EXEMPT_PATHS, StarletteProbe
from tests.probe.routes import OWN_OPTIONS
from tests.probe.runs import RunLog
from tests.probe.settings import Settings

if TYPE_CHECKING:
    from idem_middleware import Engine

# The routers whose routes claim by themselves, with their options.
_ROUTER_OPTIONS: Mapping[str, Mapping[str, Any]] = {**OWN_OPTIONS, "router": {}}

_BEARER = HTTPBearer(auto_error=False)


def build(settings: Settings) -> ASGIApp:
    """Build the app with the product, or bare."""
    protection = Unprotected() if settings.bare else Protection(settings)
    app = FastAPI(middleware=protection.of_app())
    probe = StarletteProbe(RunLog(settings.log_path))

    async def handle(name: str, request: Request, background: BackgroundTasks) -> Response:
        return await probe.follow_plan(request, background)

    for route in ("probe", "exempt", *_ROUTER_OPTIONS):
        router = APIRouter(
            prefix=f"/{route}",
            route_class=protection.route_class(route),
            dependencies=[Depends(require_good_token)] if route == "login" else [],
        )
        router.add_api_route("/{name}", handle, methods=list(METHODS), response_model=None, include_in_schema=False)
        app.include_router(router)

    @app.get("/log/{name}")
    async def log(name: str) -> dict[str, int]:
        return {"runs": probe.runs(name)}

    @app.get("/healthz")
    async def healthz() -> dict[str, str | int]:
        return {"framework": settings.framework, "pid": os.getpid()}

    return app


async def require_good_token(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
    """Let nobody past without a good token: FastAPI's idea of authorisation is a dependency."""
    if credentials is None or principal(f"{credentials.scheme} {credentials.credentials}") is None:
        raise HTTPException(403, "Forbidden")


class Unprotected:
    """No product in front of anything."""

    def of_app(self) -> list[Middleware]:
        """The middleware around the whole app."""
        return []

    def route_class(self, route: str) -> type[APIRoute]:
        """The class of this router's routes."""
        return APIRoute


class Protection(Unprotected):
    """The product, as an app's authors would put it in."""

    def __init__(self, settings: Settings) -> None:
        from tests.probe.product import engine  # noqa: PLC0415  # a bare probe needs no product

        self._engine: Engine = engine(settings)
        self._exempt_paths = (*EXEMPT_PATHS, "/router/", *settings.options.get("exempt_paths", ()))

    def of_app(self) -> list[Middleware]:
        from idem_starlette import IdempotencyMiddleware  # noqa: PLC0415  # as above

        return [Middleware(IdempotencyMiddleware, engine=self._engine, exempt_paths=self._exempt_paths)]

    def route_class(self, route: str) -> type[APIRoute]:
        if route not in _ROUTER_OPTIONS:
            return APIRoute
        from idem_starlette.fastapi import Idempotency  # noqa: PLC0415  # as above

        return Idempotency(engine=self._engine, **_ROUTER_OPTIONS[route]).route_class
