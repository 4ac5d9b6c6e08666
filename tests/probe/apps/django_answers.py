"""What the probes on Django share: reading a request, and giving the planned answer its form."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from tests.probe.answers import NO_BODY_SHA256, Execution, Form, grouped, pieces
from tests.probe.plan import Plan
from tests.probe.runs import RunLog


class RepeatableHeaders(HttpResponseBase):
    """A response that can send a header more than once.

    Django keeps one value for each name; the servers' handlers ask `items()`, and this adds the others there,
    as projects that need `Link` or `Set-Cookie` twice do.
    """

    repeated: tuple[tuple[str, str], ...] = ()

    def items(self) -> Iterable[tuple[str, str]]:
        """Give all headers for sending."""
        return [*super().items(), *self.repeated]


class PlannedResponse(RepeatableHeaders, HttpResponse):
    """An answer with its whole body."""


class PlannedStream(RepeatableHeaders, StreamingHttpResponse):
    """An answer in pieces."""


def answer(plan: Plan, body: bytes, *, asynchronous: bool) -> HttpResponseBase:
    """Give the planned answer."""
    response: PlannedResponse | PlannedStream
    if plan.chunks:
        content = stream_asynchronously(plan, body) if asynchronous else stream(plan, body)
        response = PlannedStream(content, status=plan.status, content_type=plan.content_type)
    else:
        response = PlannedResponse(body, status=plan.status, content_type=plan.content_type)
    dress(response, plan)
    return response


def dress(response: RepeatableHeaders, plan: Plan) -> None:
    """Add the planned headers and cookies."""
    repeated: list[tuple[str, str]] = []
    for name, value in plan.headers:
        if response.has_header(name) or name.lower() == "set-cookie":
            repeated.append((name, value))
        else:
            response[name] = value
    response.repeated = tuple(repeated)
    for name, value in plan.cookies.items():
        response.set_cookie(name, value)


def stream(plan: Plan, body: bytes) -> Iterator[bytes]:
    """Stream the body in the plan's pieces."""
    for piece in pieces(plan, body):
        if piece.wait_seconds:
            time.sleep(piece.wait_seconds)
        yield piece.data


async def stream_asynchronously(plan: Plan, body: bytes) -> AsyncIterator[bytes]:
    """Stream the body in the plan's pieces, on the event loop."""
    for piece in pieces(plan, body):
        if piece.wait_seconds:
            await asyncio.sleep(piece.wait_seconds)
        yield piece.data


def refuse(status: int) -> HttpResponseBase:
    """Answer with this status in Django's way: by an exception where it has one, else by a response."""
    if status == 404:
        raise Http404("planned")
    if status == 403:
        raise PermissionDenied("planned")
    return HttpResponse(status=status)


def execute(log: RunLog, request: HttpRequest, name: str, plan: Plan) -> Execution:
    """Log the execution, before anything else of it happens, and tell what it saw."""
    body_sha256 = body_digest(request, plan)
    method = request.method or ""
    run = log.append(name, method=method, path=request.path, body_sha256=body_sha256)
    if plan.exit:
        os._exit(137)
    lease = getattr(request, "idempotency", None)
    return Execution(
        run=run,
        name=name,
        method=method,
        path=request.path,
        query=request.META["QUERY_STRING"],
        body_sha256=body_sha256,
        form=read_form(request) if plan.read == "form" else Form(),
        attempt=None if lease is None else lease.attempt,
    )


def body_digest(request: HttpRequest, plan: Plan) -> str:
    """Read the raw body in the way that the plan names and give its SHA-256."""
    if plan.read == "body":
        return hashlib.sha256(request.body).hexdigest()
    if plan.read == "stream":
        digest = hashlib.sha256()
        while chunk := request.read(65536):
            digest.update(chunk)
        return digest.hexdigest()
    return NO_BODY_SHA256


def read_form(request: HttpRequest) -> Form:
    """Read the form through the framework, files included."""
    return Form(
        fields=grouped((name, text) for name, texts in request.POST.lists() for text in texts),
        files=grouped((name, described(upload)) for name, uploads in request.FILES.lists() for upload in uploads),
    )


def described(upload: UploadedFile[Any]) -> tuple[Any, Any, str]:
    """Give name, size and SHA-256 of an uploaded file."""
    digest = hashlib.sha256()
    for chunk in upload.chunks():
        digest.update(chunk)
    return upload.name, upload.size, digest.hexdigest()
