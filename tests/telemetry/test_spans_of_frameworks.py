"""The span that a framework's instrumentation made for a request is told of it, by every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from opentelemetry.trace import Tracer

from idem_middleware.telemetry.opentelemetry import OpenTelemetryObserver
from tests.telemetry.test_opentelemetry import Spans

OPTIONS: dict[str, Any] = {"store": "memory://", "caller": "shared", "observers": [OpenTelemetryObserver()]}
HEADERS = {"Idempotency-Key": "order-7"}


def ask_starlette(tracer: Tracer) -> None:
    """One request; its span is made around the application, as the instrumentation for ASGI does."""
    pytest.importorskip("starlette")
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    from idem_starlette import IdempotencyMiddleware  # noqa: PLC0415

    async def pay(request: Request) -> Response:
        return Response("paid", 201)

    app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, **OPTIONS)

    async def traced(scope: Any, receive: Any, send: Any) -> None:
        with tracer.start_as_current_span("POST /payments"):
            await app(scope, receive, send)

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(traced), base_url="http://service") as client:
            return (await client.post("/payments", headers=HEADERS)).status_code

    assert asyncio.run(ask()) == 201


def ask_flask(tracer: Tracer) -> None:
    """The same for WSGI."""
    pytest.importorskip("flask")
    from flask import Flask  # noqa: PLC0415

    from idem_flask import Idempotency  # noqa: PLC0415

    app = Flask(__name__)
    Idempotency(app, **OPTIONS)
    app.post("/payments")(lambda: ("paid", 201))

    def traced(environ: Any, start_response: Any) -> list[bytes]:
        with tracer.start_as_current_span("POST /payments"):
            return list(app(environ, start_response))

    with httpx.Client(transport=httpx.WSGITransport(traced), base_url="http://service") as client:
        assert client.post("/payments", headers=HEADERS).status_code == 201


@pytest.mark.parametrize("ask", [ask_starlette, ask_flask])
def test_the_requests_span_is_told(ask: Callable[[Tracer], None]) -> None:
    """From the claim to the record."""
    spans = Spans()
    ask(spans.tracer)
    span = spans.ended()
    assert [event.name for event in span.events] == ["idempotency.claimed", "idempotency.completed"]
    attributes = span.attributes or {}
    assert (attributes["idempotency.decision"], attributes["idempotency.outcome"]) == ("claimed", "completed")
