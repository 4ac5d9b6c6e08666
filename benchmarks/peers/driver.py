"""Calls an application as a server calls it, without one, and measures."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.questions import QUESTIONS, Keys, Sent, unexpected

__all__ = ["Driver", "LoopCallers", "ThreadCallers"]

Reply = tuple[int, bytes]
_LOOK = Sent("GET", "/gate", None, b"")
_OPEN = Sent("GET", "/gate/open", None, b"")
_PATIENCE_SECONDS = 30.0


async def _asgi(app: Any, sent: Sent) -> Reply:
    """One request, from its head to the end of its answer."""
    status, content = 0, b""
    body = sent.body
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if sent.key is not None:
        headers.append((b"idempotency-key", f'"{sent.key}"'.encode()))
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:  # nobody hangs up
            await asyncio.sleep(_PATIENCE_SECONDS)
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": sent.path,
        "raw_path": sent.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return status, content


def _wsgi(app: Any, sent: Sent) -> Reply:
    """The same, for what blocks."""
    statuses: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], error: object = None) -> Callable[[bytes], object]:  # noqa: ARG001
        statuses.append(status)
        return statuses.append  # type: ignore[return-value]

    environ = {
        "REQUEST_METHOD": sent.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": sent.path,
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(sent.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(sent.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if sent.key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = f'"{sent.key}"'
    answer = app(environ, start_response)
    content = b"".join(answer)
    close = getattr(answer, "close", None)
    if close is not None:
        close()
    return int(statuses[-1].split()[0]), content


class LoopCallers:
    """Callers on an event loop."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._runner = asyncio.Runner()
        self._held: asyncio.Task[Reply] | None = None

    def one(self, sent: Sent) -> Reply:
        """Carry out one."""
        return self._runner.run(_asgi(self._app, sent))

    def each(self, requests: list[Sent]) -> None:
        """Carry them out one after the other, with nothing around them."""
        self._runner.run(self._each(requests))

    async def _each(self, requests: list[Sent]) -> None:
        for sent in requests:
            await _asgi(self._app, sent)

    def hold(self, sent: Sent) -> None:
        """Begin one that will stay."""
        self._held = self._runner.get_loop().create_task(_asgi(self._app, sent))

    def held(self) -> Reply:
        """Its answer."""
        assert self._held is not None
        return self._runner.run(asyncio.wait_for(self._held, _PATIENCE_SECONDS))

    def many(self, requests: list[Sent], in_flight: int, note: Callable[[int, int], None]) -> None:
        """Carry them out, so many at a time; `note` is told each one's status and nanoseconds."""
        waiting = iter(requests)

        async def client() -> None:
            for sent in waiting:
                began = time.perf_counter_ns()
                status, _ = await _asgi(self._app, sent)
                note(status, time.perf_counter_ns() - began)

        async def clients() -> None:
            await asyncio.gather(*[client() for _ in range(in_flight)])

        self._runner.run(client() if in_flight == 1 else clients())


class ThreadCallers:
    """Callers in threads; where there is one at a time, it is the one that asks."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._holder = ThreadPoolExecutor(1)

    def one(self, sent: Sent) -> Reply:
        """Carry out one."""
        return _wsgi(self._app, sent)

    def each(self, requests: list[Sent]) -> None:
        """Carry them out one after the other, with nothing around them."""
        for sent in requests:
            _wsgi(self._app, sent)

    def hold(self, sent: Sent) -> None:
        """Begin one that will stay."""
        self._held = self._holder.submit(_wsgi, self._app, sent)

    def held(self) -> Reply:
        """Its answer."""
        return self._held.result(_PATIENCE_SECONDS)

    def many(self, requests: list[Sent], in_flight: int, note: Callable[[int, int], None]) -> None:
        """Carry them out, so many at a time; `note` is told each one's status and nanoseconds."""

        def call(sent: Sent) -> None:
            began = time.perf_counter_ns()
            status, _ = _wsgi(self._app, sent)
            note(status, time.perf_counter_ns() - began)

        if in_flight == 1:
            for sent in requests:
                call(sent)
            return
        if in_flight not in self._pools:
            self._pools[in_flight] = ThreadPoolExecutor(in_flight)
        for _ in self._pools[in_flight].map(call, requests):
            pass


class Driver:
    """Asks one application its questions: each is prepared, asked and put away, so that each part can be counted."""

    def __init__(self, app: Any, *, on_a_loop: bool, protected: bool) -> None:
        self._callers = LoopCallers(app) if on_a_loop else ThreadCallers(app)
        self._protected = protected
        self._keys = Keys()
        self._asked = QUESTIONS["new"]
        self._sent: list[Sent] = []
        self._holds = False

    def prepare(self, question: str, requests: int) -> dict[str, Any]:
        """Make so many requests, and send the one that they presuppose."""
        self._asked = QUESTIONS[question]
        first, self._sent = self._keys.requests(self._asked, requests, protected=self._protected)
        if first is None:
            return {}
        if not self._asked.is_held:
            status, content = self._callers.one(first)
            assert status == 201, (status, content)  # noqa: PLR2004
            return {}
        self._callers.hold(first)
        self._holds = True
        until = time.monotonic() + _PATIENCE_SECONDS
        while not json.loads(self._callers.one(_LOOK)[1])["inside"]:
            assert time.monotonic() < until, "nobody came to the gate"
            time.sleep(0.001)
        return {}

    def measure(self, in_flight: int) -> dict[str, Any]:
        """What the requests cost, each: microseconds of this process's CPU and of time; and the memory meanwhile."""
        latencies: list[float] = []
        statuses: list[int] = []

        def note(status: int, nanoseconds: int) -> None:
            statuses.append(status)
            latencies.append(nanoseconds / 1000)

        gc.collect()
        _forget_peak()
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        self._callers.many(self._sent, in_flight, note)
        cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
        return {
            "cpu_us": cpu / len(self._sent) / 1000,
            "wall_us": wall / len(self._sent) / 1000,
            "peak_mb": _peak_mb(),
            "latencies_us": latencies,
            "unexpected": unexpected(self._asked, statuses, protected=self._protected),
        }

    def put_away(self) -> dict[str, Any]:
        """Let go whoever was held."""
        if self._holds:
            self._callers.one(_OPEN)
            self._callers.held()
            self._holds = False
        return {}


def _forget_peak() -> None:
    """From here on the highest resident size counts anew (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mb() -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) / 1024 if found else 0.0
