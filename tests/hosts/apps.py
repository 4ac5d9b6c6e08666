"""One service for servers of either kind: ASGI by Starlette, WSGI by Flask. Set up by the environment."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["IDEM_HOST_FOLDER"])
OPTIONS: dict[str, Any] = {
    "store": os.environ["IDEM_HOST_STORE"],
    "caller": "shared",
    "lease_seconds": 1,
    "max_execution_seconds": 60,
}
_LOOK_SECONDS = 0.02


def begin(attempt: int) -> str:
    """Note that the handler runs; gives the answer."""
    with (FOLDER / "runs").open("a") as runs:
        runs.write(f"{attempt}\n")
    return json.dumps({"attempt": attempt, "process": os.getpid()})


def held() -> bool:
    """Whether handlers are to wait: until the test lets them go."""
    return not (FOLDER / "go").exists()


def make_asgi() -> Any:
    """With the middleware."""
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import Response  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    from idem_starlette import IdempotencyMiddleware  # noqa: PLC0415 - the environment may have one framework only

    async def pay(request: Request) -> Response:
        answer = begin(request.state.idempotency.attempt)
        while held():  # noqa: ASYNC110 - it waits for another process
            await asyncio.sleep(_LOOK_SECONDS)
        return Response(answer, 201)

    app = Starlette(routes=[Route("/payments", pay, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, **OPTIONS)
    return app


def make_wsgi() -> Any:
    """With the extension."""
    from flask import Flask, g  # noqa: PLC0415

    from idem_flask import Idempotency  # noqa: PLC0415

    app = Flask(__name__)
    Idempotency(app, **OPTIONS)

    @app.post("/payments")
    def pay() -> tuple[str, int]:
        answer = begin(g.idempotency.attempt)
        while held():
            time.sleep(_LOOK_SECONDS)
        return answer, 201

    return app
