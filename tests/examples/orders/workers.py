"""Workers of the orders example that kill themselves where a request says so, and are replaced.

    python -m tests.examples.orders.workers PORT WORKERS

A request's header `X-Die` names the place: "CALL before", "CALL during" or "CALL after" for a call to DynamoDB,
"answer" for the moment before the answer's first byte. Whatever else the worker does then, dies with it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import uvicorn

from example_apps.orders_starlette.app import app
from idem_middleware.stores.dynamodb.client import Boto3Transport
from idem_middleware.stores.dynamodb.requests import Request

_CALLS = {"put_item": "claim", "update_item": "settlement", "transact_write_items": "transaction"}
_ON_ITS_WAY_SECONDS = 0.004  # about what DynamoDB Local takes: some die before it is done, some after

_place: ContextVar[str] = ContextVar("_place", default="")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _die_at(place: str) -> None:
    if _place.get() == place:
        _die()


def _watch_calls() -> None:
    call = Boto3Transport.__call__

    def watched(self: Boto3Transport, operation: str, request: Request) -> Mapping[str, Any]:
        name = _CALLS.get(operation, operation)
        _die_at(f"{name} before")
        if _place.get() == f"{name} during":
            threading.Timer(_ON_ITS_WAY_SECONDS, _die).start()
        answer = call(self, operation, request)
        _die_at(f"{name} after")
        return answer

    Boto3Transport.__call__ = watched  # type: ignore[method-assign]


async def mortal(scope: Any, receive: Any, send: Any) -> None:
    """The app, with the place of its death taken from the request."""

    async def sender(message: Any) -> None:
        if message["type"] == "http.response.start":
            _die_at("answer")
        await send(message)

    if scope["type"] == "http":
        _place.set(dict(scope["headers"]).get(b"x-die", b"").decode())
    await app(scope, receive, sender)


def _serve(listener: socket.socket) -> None:
    _watch_calls()
    config = uvicorn.Config(mortal, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


def _forked(listener: socket.socket) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            _serve(listener)
        finally:
            os._exit(0)
    return child


def main(port: int, workers: int) -> None:
    """Keep so many workers alive until the standard input's other end is asked to stop by SIGTERM."""
    listener = socket.create_server(("127.0.0.1", port), backlog=512)
    children = {_forked(listener) for _ in range(workers)}

    def stop(*_: object) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)  # noqa: T201
    while True:
        ended, _ = os.wait()
        children.discard(ended)
        children.add(_forked(listener))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
