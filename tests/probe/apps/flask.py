"""The probe on Flask: the extension for the app, decorators for the views that differ."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from functools import wraps
from typing import Any, cast

from flask import Flask, Response, abort, g, jsonify, request, session
from werkzeug.datastructures import FileStorage
from werkzeug.exceptions import default_exceptions

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
from tests.probe.apps.guards import Guard, NoGuard, View, guarded_views
from tests.probe.plan import MalformedPlanError, Plan, parse_plan
from tests.probe.routes import bearer
from tests.probe.runs import RunLog
from tests.probe.settings import Settings


def build(settings: Settings) -> Flask:
    """Build the app with the product, or bare."""
    app = Flask(__name__)
    app.secret_key = "the probe's sessions are nobody's"
    log = RunLog(settings.log_path)
    guard = _guard(app, settings)
    views = guarded_views(lambda: planned_view(log), guard)
    # The authorisation is outside of the decorator that claims: nobody sees a replay without it.
    views["login"] = authorised(views["login"])
    views["probe"] = planned_view(log)
    for route, view in views.items():
        app.add_url_rule(
            f"/{route}/<name>", endpoint=route, view_func=view, methods=METHODS, provide_automatic_options=False
        )

    @app.get("/log/<name>")
    @guard.not_idempotent
    def runs(name: str) -> Response:
        return jsonify(runs=log.count(name))

    @app.get("/healthz")
    @guard.not_idempotent
    def healthz() -> Response:
        return jsonify(framework=settings.framework, pid=os.getpid())

    return app


def _guard(app: Flask, settings: Settings) -> Guard:
    if settings.bare:
        return NoGuard()
    import idem_flask  # noqa: PLC0415  # a bare probe needs no product

    idem_flask.Idempotency(app, store=settings.store, **settings.options)
    return cast("Guard", idem_flask)


def authorised(view: View) -> View:
    """Let nobody past without a good token."""

    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if bearer(request) is None:
            abort(403)
        return view(*args, **kwargs)

    return wrapper


def planned_view(log: RunLog) -> View:
    """Make a view that follows the plan."""

    def view(name: str) -> Response:
        try:
            plan = parse_plan(request.headers.get("X-Plan"))
        except MalformedPlanError as error:
            execute(log, name, Plan())
            return Response(str(error), status=500, content_type="text/plain")
        execution = execute(log, name, plan)
        if plan.delay:
            time.sleep(plan.delay)
        if plan.raises is not None:
            raise PlannedError(plan.raises)
        if plan.abort is not None:
            # Werkzeug knows an exception for the usual statuses; for the others abort() takes a response.
            abort(plan.abort if plan.abort in default_exceptions else Response(status=plan.abort))
        if plan.session is not None:
            session.update(plan.session)
        return planned_response(plan, execution)

    return view


def execute(log: RunLog, name: str, plan: Plan) -> Execution:
    """Log the execution, before anything else of it happens, and tell what it saw."""
    body_sha256 = body_digest(plan)
    run = log.append(name, method=request.method, path=request.path, body_sha256=body_sha256)
    if plan.exit:
        os._exit(137)
    lease = g.get("idempotency")
    return Execution(
        run=run,
        name=name,
        method=request.method,
        path=request.path,
        query=request.query_string.decode("latin-1"),
        body_sha256=body_sha256,
        form=read_form() if plan.read == "form" else Form(),
        attempt=None if lease is None else lease.attempt,
    )


def body_digest(plan: Plan) -> str:
    """Read the raw body in the way that the plan names and give its SHA-256."""
    if plan.read == "body":
        return hashlib.sha256(request.get_data()).hexdigest()
    if plan.read == "stream":
        digest = hashlib.sha256()
        while chunk := request.stream.read(65536):
            digest.update(chunk)
        return digest.hexdigest()
    return NO_BODY_SHA256


def read_form() -> Form:
    """Read the form through the framework, files included."""
    return Form(
        fields=grouped(request.form.items(multi=True)),
        files=grouped((name, described(upload)) for name, upload in request.files.items(multi=True)),
    )


def described(upload: FileStorage) -> tuple[str | None, int, str]:
    """Give name, size and SHA-256 of an uploaded file."""
    digest, size = hashlib.sha256(), 0
    while chunk := upload.stream.read(65536):
        digest.update(chunk)
        size += len(chunk)
    return upload.filename, size, digest.hexdigest()


def planned_response(plan: Plan, execution: Execution) -> Response:
    """Give the answer its form."""
    body = body_of(plan, execution)
    content = stream(plan, body) if plan.chunks else body
    response = Response(content, status=plan.status, content_type=plan.content_type)
    for name, value in plan.headers:
        response.headers.add(name, value)
    for name, value in plan.cookies.items():
        response.set_cookie(name, value)
    return response


def stream(plan: Plan, body: bytes) -> Iterator[bytes]:
    """Stream the body in the plan's pieces."""
    for piece in pieces(plan, body):
        if piece.wait_seconds:
            time.sleep(piece.wait_seconds)
        yield piece.data
