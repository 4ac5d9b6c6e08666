"""A small shop over HTTP, and its server."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

Application = Callable[..., Iterable[bytes]]


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 50


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # the base class's name
        pass


@contextmanager
def served(application: Application) -> Iterator[str]:
    """On loopback, a thread for each request."""
    server = make_server("127.0.0.1", 0, application, _Threaded, _Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Shop:
    """Takes orders; slow or failing where a header asks for it, and counting."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.runs = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/runs":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [str(self.runs).encode()]
        if environ["REQUEST_METHOD"] != "POST":
            start_response("405 Method Not Allowed", [])
            return []
        with self._lock:
            self.runs = number = next(self._numbers)
        if "HTTP_X_SLOW" in environ:
            time.sleep(0.8)
        if "HTTP_X_FAIL" in environ:
            start_response("500 Failed", [])
            return []
        start_response("201 Created", [("Content-Type", "application/json"), ("Location", f"/orders/{number}")])
        return [b'{"id": %d}' % number]


def user_of(environ: dict[str, Any]) -> str:
    return str(environ.get("HTTP_X_USER", "anna"))
