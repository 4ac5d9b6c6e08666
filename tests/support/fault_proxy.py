"""A proxy before DynamoDB Local: it knows every call that went through, and fails those that it is told to fail."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from tests.support.ports import LOOPBACK

_UPSTREAM_TIMEOUT_SECONDS = 30
# Those that belong to one connection; the length is written anew.
_NOT_PASSED_ON = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding"})
# SO_LINGER with no time left: close() sends a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call of DynamoDB's, as it came.

    `status` and `error` are what DynamoDB itself answered, whatever the caller was told; both are None where the call
    did not get there.
    """

    operation: str
    request: Mapping[str, Any]
    status: int | None = None
    error: str | None = None

    @property
    def pk(self) -> str:
        """The item that it is about, the first of several; empty where it is about a table."""
        request = self._own
        key = request.get("Key") or request.get("Item")
        if key is None and self.operation == "BatchGetItem":
            key = next(iter(request["RequestItems"].values()))["Keys"][0]
        return str((key or {}).get("pk", {}).get("S", ""))

    @property
    def _own(self) -> Mapping[str, Any]:
        """The request about the first item, where it is about several at once."""
        parts = self.request.get("TransactItems")
        return next(iter(parts[0].values())) if parts else self.request

    @property
    def failed_condition(self) -> bool:
        """Whether the condition of this write did not hold."""
        return self.error == "ConditionalCheckFailedException"

    def writes(self, attribute: str) -> str | None:
        """Give what a put or an update writes into an attribute that is text or a number."""
        values = {
            **self._own.get("Item", {}),
            **{name[1:]: value for name, value in self._own.get("ExpressionAttributeValues", {}).items()},
        }
        typed = values.get(attribute, {})
        return cast("str | None", typed.get("S", typed.get("N")))


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a call: whether DynamoDB gets it, and what its caller gets.

    That is an error answer, DynamoDB's own answer spoilt, silence until the fault is over (`held`), or else the end of
    the connection. `late_seconds` is how long it takes until DynamoDB gets it, `gone` says that the proxy takes no
    connections any more until the fault is over.
    """

    applied: bool
    answer: tuple[int, str] | None = None
    spoilt: Literal["malformed", "half"] | None = None
    held: bool = False
    late_seconds: float = 0.0
    gone: bool = False


LOST_REPLY = Fault(applied=True)
"""DynamoDB does it, and its reply gets lost."""

REFUSED = Fault(applied=False)
"""The connection is reset, and DynamoDB hears nothing of the call."""

HANGING = Fault(applied=False, held=True)
"""Nothing happens until the caller loses patience, and DynamoDB hears nothing of the call."""


MALFORMED = Fault(applied=True, spoilt="malformed")
"""DynamoDB does it, and its answer is no JSON."""

HALF = Fault(applied=True, spoilt="half")
"""DynamoDB does it, and half of its answer comes."""

UNREACHABLE = Fault(applied=False, gone=True)
"""Nobody listens there any more, from this call on, until the fault is over."""


def delayed(seconds: float) -> Fault:
    """DynamoDB gets it so much later, when its caller may have given up."""
    return Fault(applied=True, late_seconds=seconds)


def answering(status: int, code: str, *, applied: bool = False) -> Fault:
    """Answer with one of DynamoDB's errors, after the call was carried out or instead of that."""
    return Fault(applied=applied, answer=(status, code))


@dataclass(eq=False, slots=True)
class Failing:
    """A fault that is in force, and how often it struck."""

    fault: Fault
    matches: Callable[[StoreCall], bool]
    times_left: int | None
    struck: int = 0
    over: threading.Event = field(default_factory=threading.Event)


class FaultProxy:
    """Stands between AWS clients and DynamoDB Local at `upstream`."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._lock = threading.Lock()
        self._calls: list[StoreCall] = []
        self._failing: list[Failing] = []
        self._server = _Server(self)
        self._thread = self._new_thread()
        self._away = False

    @property
    def url(self) -> str:
        """The endpoint for AWS clients."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def start(self) -> None:
        """Take calls."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more, and let go of those that hang."""
        with self._lock:
            for failing in self._failing:
                failing.over.set()
        self._close()

    @property
    def is_away(self) -> bool:
        """Whether it takes no calls, on old connections neither."""
        return self._away

    def go_away(self) -> None:
        """Take no connections, until it is told to come back."""
        with self._lock:
            away, self._away = self._away, True
        if not away:
            self._close()

    def come_back(self) -> None:
        """Take connections again, where it took them before."""
        if self._away:
            self._server = _Server(self, self._server.server_address[1])
            self._thread = self._new_thread()
            self.start()
            self._away = False

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def _close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def calls(self, pk: str) -> list[StoreCall]:
        """Give the calls about one record and its chunks so far, in their order."""
        with self._lock:
            return [call for call in self._calls if call.pk == pk or call.pk.startswith(f"{pk}#")]

    def operations(self, pk: str) -> list[str]:
        """Give the names of those calls."""
        return [call.operation for call in self.calls(pk)]

    @contextmanager
    def failing(
        self,
        fault: Fault,
        *,
        pk: str,
        chunks: bool = False,
        operation: str | None = None,
        times: int | None = None,
        matching: Callable[[StoreCall], bool] = lambda call: True,
    ) -> Iterator[Failing]:
        """Fail the calls about one record for the length of the block, or the next `times` of them.

        `chunks` says that those are meant, too, that write or read the pieces of its body.

        Other records are left alone: what still goes on in the background for an earlier test takes no fault away
        from this one.
        """

        def matches(call: StoreCall) -> bool:
            mine = call.pk == pk or (chunks and call.pk.startswith(f"{pk}#"))
            return mine and operation in (None, call.operation) and matching(call)

        failing = Failing(fault, matches, times)
        with self._lock:
            self._failing.append(failing)
        try:
            yield failing
        finally:
            with self._lock:
                self._failing.remove(failing)
            failing.over.set()
            if fault.gone:
                self.come_back()

    def fault_for(self, call: StoreCall) -> Failing | None:
        """Take the fault that this call meets, if there is one."""
        with self._lock:
            for failing in self._failing:
                if failing.times_left != 0 and failing.matches(call):
                    failing.struck += 1
                    if failing.times_left is not None:
                        failing.times_left -= 1
                    return failing
        return None

    def note(self, call: StoreCall) -> None:
        """Remember a call, before its caller hears of the outcome."""
        with self._lock:
            self._calls.append(call)

    def forward(self, headers: Mapping[str, str], body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """Let DynamoDB do it. Each call has a connection of its own: a stale one would make it uncertain."""
        connection = http.client.HTTPConnection(
            str(self._upstream.hostname), self._upstream.port, timeout=_UPSTREAM_TIMEOUT_SECONDS
        )
        try:
            connection.request("POST", "/", body, dict(headers))
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()


@contextmanager
def running_fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Give a proxy that runs for the length of the block."""
    proxy = FaultProxy(upstream)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


class _Server(ThreadingTCPServer):
    request_queue_size = 128
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, proxy: FaultProxy, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.proxy = proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that lose patience are no news."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of a caller."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        call = StoreCall(operation, json.loads(body))
        with suppress(OSError):  # the caller has left
            self._carry_out(call, body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Say nothing."""

    def _carry_out(self, call: StoreCall, body: bytes) -> None:
        proxy = self.server.proxy
        if proxy.is_away:
            self._reset()
            return
        failing = proxy.fault_for(call)
        if failing is not None and not failing.fault.applied:
            proxy.note(call)
            self._fail(failing)
            return
        if failing is not None:
            failing.over.wait(failing.fault.late_seconds)
        passed_on = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        response, answer = proxy.forward(passed_on, body)
        proxy.note(StoreCall(call.operation, call.request, response.status, _error_of(response.status, answer)))
        if failing is not None and failing.fault.spoilt is None and not failing.fault.late_seconds:
            self._fail(failing)
            return
        headers = [(name, value) for name, value in response.getheaders() if name.lower() not in _NOT_PASSED_ON]
        spoilt = None if failing is None else failing.fault.spoilt
        if spoilt == "malformed":
            answer = b"<" * len(answer)
        self._answer(response.status, headers, answer, sent=len(answer) // 2 if spoilt == "half" else None)

    def _fail(self, failing: Failing) -> None:
        if failing.fault.answer is not None:
            status, code = failing.fault.answer
            error = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as planned"}
            headers = [("Content-Type", "application/x-amz-json-1.0"), ("Date", self.date_time_string())]
            self._answer(status, headers, json.dumps(error).encode())
            return
        if failing.fault.held:
            failing.over.wait()
        if failing.fault.gone:
            self.server.proxy.go_away()
        self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])
        if sent is not None:
            self.close_connection = True


def _error_of(status: int, answer: bytes) -> str | None:
    if status < http.client.BAD_REQUEST:
        return None
    return str(json.loads(answer).get("__type", "")).rpartition("#")[2]
