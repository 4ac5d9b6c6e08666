"""The probe on Starlette: one middleware for the app, and one for each route that differs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.background import BackgroundTasks
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.probe.answers import (
    METHODS,
    NO_BODY_SHA256,
    Execution,
    Form,
    PlannedError,
    body_of,
    grouped,
    pieces,
)
from tests.probe.plan import MalformedPlanError, Plan, parse_plan
from tests.probe.routes import OWN_OPTIONS, bearer
from tests.probe.runs import RunLog
from tests.probe.settings import Settings

if TYPE_CHECKING:
    from idem_middleware import Engine

# Where the middleware of the app leaves requests alone: for good, or to a middleware of the route.
EXEMPT_PATHS = ("/exempt/", "/log/", "/healthz", *(f"/{route}/" for route in OWN_OPTIONS))


def build(settings: Settings) -> ASGIApp:
    """Build the app with the product, or bare."""
    probe = StarletteProbe(RunLog(settings.log_path))
    protection = Unprotected() if settings.bare else Protection(settings)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"framework": settings.framework, "pid": os.getpid()})

    return Starlette(
        middleware=protection.of_app(),
        routes=[
            *(
                Route(f"/{route}/{{name}}", probe.handle, methods=list(METHODS), middleware=protection.of_route(route))
                for route in ("probe", "exempt", *OWN_OPTIONS)
            ),
            Route("/log/{name}", probe.log),
            Route("/healthz", healthz),
        ],
    )


class Unprotected:
    """No product in front of anything; authorisation stays."""

    def of_app(self) -> list[Middleware]:
        """The middleware around the whole app."""
        return []

    def of_route(self, route: str) -> list[Middleware]:
        """The middleware of one route, the outermost first."""
        return [Middleware(RequireGoodToken)] if route == "login" else []


class Protection(Unprotected):
    """The product, as an app's authors would put it in."""

    def __init__(self, settings: Settings) -> None:
        from tests.probe.product import engine  # noqa: PLC0415  # a bare probe needs no product

        self._engine: Engine = engine(settings)
        self._exempt_paths = (*EXEMPT_PATHS, *settings.options.get("exempt_paths", ()))

    def of_app(self) -> list[Middleware]:
        return [self._idempotency(exempt_paths=self._exempt_paths)]

    def of_route(self, route: str) -> list[Middleware]:
        # Authorisation stands outside, so that nobody sees a replay without it.
        authorisation = super().of_route(route)
        if route not in OWN_OPTIONS:
            return authorisation
        return [*authorisation, self._idempotency(**OWN_OPTIONS[route])]

    def _idempotency(self, **options: Any) -> Middleware:
        from idem_starlette import IdempotencyMiddleware  # noqa: PLC0415  # as above

        return Middleware(IdempotencyMiddleware, engine=self._engine, **options)


class RequireGoodToken:
    """Authorisation as a middleware of its own: whoever shows no good token gets a 403."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if bearer(Request(scope)) is None:
            await PlainTextResponse("Forbidden", status_code=403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class StarletteProbe:
    """The handler that follows the plan; FastAPI's probe has the same one."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    def runs(self, name: str) -> int:
        """Tell how often the handler ran under a name."""
        return self._log.count(name)

    async def log(self, request: Request) -> Response:
        """Answer `/log/NAME`."""
        return JSONResponse({"runs": self.runs(request.path_params["name"])})

    async def handle(self, request: Request) -> Response:
        """Answer as an endpoint of Starlette."""
        background = BackgroundTasks()
        response = await self.follow_plan(request, background)
        if background.tasks:
            response.background = background
        return response

    async def follow_plan(self, request: Request, background: BackgroundTasks) -> Response:
        """Log the execution, then do what the plan says."""
        try:
            plan = parse_plan(request.headers.get("x-plan"))
        except MalformedPlanError as error:
            await self._execution(request, Plan())
            return PlainTextResponse(str(error), status_code=500)
        execution = await self._execution(request, plan)
        if plan.delay:
            await anyio.sleep(plan.delay)
        if plan.raises is not None:
            raise PlannedError(plan.raises)
        if plan.abort is not None:
            raise HTTPException(plan.abort)
        if plan.background is not None:
            background.add_task(self.after_the_answer, plan, execution)
        return planned_response(plan, execution)

    async def _execution(self, request: Request, plan: Plan) -> Execution:
        name = request.path_params["name"]
        body_sha256 = await body_digest(request, plan)
        run = self._log.append(name, method=request.method, path=request.url.path, body_sha256=body_sha256)
        if plan.exit:
            os._exit(137)
        lease = getattr(request.state, "idempotency", None)
        return Execution(
            run=run,
            name=name,
            method=request.method,
            path=request.url.path,
            query=request.scope["query_string"].decode("latin-1"),
            body_sha256=body_sha256,
            form=await read_form(request) if plan.read == "form" else Form(),
            attempt=None if lease is None else lease.attempt,
        )

    async def after_the_answer(self, plan: Plan, execution: Execution) -> None:
        """The background task."""
        await anyio.sleep(plan.background or 0)
        if plan.background_raise:
            raise PlannedError("planned failure of the background task")
        self._log.append(
            f"{execution.name}.background",
            method=execution.method,
            path=execution.path,
            body_sha256=execution.body_sha256,
        )


def planned_response(plan: Plan, execution: Execution) -> Response:
    """Give the answer its form."""
    body = body_of(plan, execution)
    headers = {"content-type": plan.content_type}
    response: Response
    if plan.chunks:
        response = StreamingResponse(stream(plan, body), status_code=plan.status, headers=headers)
    else:
        response = Response(body, status_code=plan.status, headers=headers)
    for name, value in plan.headers:
        response.headers.append(name, value)
    for name, value in plan.cookies.items():
        response.set_cookie(name, value)
    return response


async def body_digest(request: Request, plan: Plan) -> str:
    """Read the raw body in the way that the plan names and give its SHA-256."""
    if plan.read == "body":
        return hashlib.sha256(await request.body()).hexdigest()
    if plan.read == "stream":
        digest = hashlib.sha256()
        async for chunk in request.stream():
            digest.update(chunk)
        return digest.hexdigest()
    return NO_BODY_SHA256


async def read_form(request: Request) -> Form:
    """Read the form through the framework, files included."""
    async with request.form() as form:
        items = form.multi_items()
        files = [(field, upload) for field, upload in items if isinstance(upload, UploadFile)]
        return Form(
            fields=grouped((field, text) for field, text in items if isinstance(text, str)),
            files=grouped([(field, await described(upload)) for field, upload in files]),
        )


async def described(upload: UploadFile) -> tuple[str | None, int, str]:
    """Give name, size and SHA-256 of an uploaded file."""
    digest, size = hashlib.sha256(), 0
    while chunk := await upload.read(65536):
        digest.update(chunk)
        size += len(chunk)
    return upload.filename, size, digest.hexdigest()


async def stream(plan: Plan, body: bytes) -> AsyncIterator[bytes]:
    """Stream the body in the plan's pieces."""
    for piece in pieces(plan, body):
        if piece.wait_seconds:
            await anyio.sleep(piece.wait_seconds)
        yield piece.data
