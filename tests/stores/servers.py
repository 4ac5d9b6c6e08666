"""Endpoints that are no DynamoDB: one that answers everything, one that answers nothing."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Barrier, Lock, Thread
from typing import Any
from zlib import crc32


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


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer, and what goes wrong with it."""

    status: int = 200
    content: Mapping[str, Any] | bytes = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    """The connection ends in the middle of the body."""
    is_damaged: bool = False
    """A byte of the body is not what was sent."""


HANG_UP = Reply(status=0)
"""No answer: the connection is closed as soon as the request is there."""


class ScriptedServer(ThreadingHTTPServer):
    """Answers calls from a list, the last of it for ever, and keeps what was asked."""

    request_queue_size = 256
    daemon_threads = True

    def __init__(self, *replies: Reply | Callable[[], Reply], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _ScriptedHandler)
        self.replies = list(replies) or [Reply()]
        self.seen: list[Seen] = []
        self.connections = 0
        self._tls = tls

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; the handshake is left to its thread."""
        accepted, address = super().get_request()
        if self._tls is not None:
            accepted = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        return accepted, address

    def next_reply(self) -> Reply:
        """The first of the list, as long as there are others."""
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply() if callable(reply) else reply

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that refuse our certificate are no news."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"


class _ScriptedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_CONNECT(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.path, headers, body))
        reply = self.server.next_reply()
        if reply is HANG_UP:
            self.close_connection = True
            return
        content = reply.content if isinstance(reply.content, bytes) else json.dumps(reply.content).encode()
        self.send_response_only(reply.status)
        answered = {"content-type": "application/x-amz-json-1.0", "x-amz-crc32": str(crc32(content))}
        for name, value in {**answered, "date": self.date_time_string(), **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if reply.is_damaged:
            content = content[:-2] + b"\t" + content[-1:]
        if reply.is_cut:
            content = content[: len(content) // 2]
            self.close_connection = True
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Say nothing."""


@contextmanager
def scripted_server(
    *replies: Reply | Callable[[], Reply], tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    """A server of these replies that runs for the length of the block."""
    with ScriptedServer(*replies, tls=tls) as server:
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
