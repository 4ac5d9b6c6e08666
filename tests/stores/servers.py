"""Endpoints that are no DynamoDB: one that answers everything, one that answers nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Lock, Thread
from typing import Any


class StubServer(ThreadingHTTPServer):
    """Answers every call with an empty object at once, and counts connections."""

    request_queue_size = 256
    daemon_threads = True

    def __init__(self, gather: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections = 0
        self.lock = Lock()
        # Holds the first requests back until so many are there at once.
        self.gate = Barrier(gather) if gather else None

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StubServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self._is_first = True
        with self.server.lock:
            self.server.connections += 1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.server.gate is not None and self._is_first:
            self.server.gate.wait(timeout=30)
        self._is_first = False
        self.send_response(200)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Say nothing."""


@contextmanager
def stub_server(gather: int = 0) -> Iterator[StubServer]:
    """A stub that runs for the length of the block."""
    with StubServer(gather) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def black_hole() -> Iterator[str]:
    """An endpoint that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
