"""One process, one framework, many requests: what of its memory, threads, files and connections grows with them.

The application is called in this process, without a server: what grows is ours or the framework's.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import io
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from idem_middleware.upkeep import process_upkeep
from tests.probe.server import build_app
from tests.probe.settings import ASGI_FRAMEWORKS, Settings

_AT_ONCE = 16
_ESTABLISHED = "01"
_OPEN_FILES = Path("/proc/self/fd")
# In turn: what clients send. A new request, its retry, the same key for something else, a failure and its retry, a
# large answer and its retry, one in pieces, and a client that leaves.
_CYCLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("new", {"status": 201, "echo": True}),
    ("same", {"status": 201, "echo": True}),
    ("reused", {"status": 201}),
    ("new", {"status": 500, "body": "it broke"}),
    ("same", {"status": 201}),
    ("new", {"status": 201, "size": 20_000}),
    ("same", {"status": 201}),
    ("new", {"status": 201, "size": 5_000, "chunks": 3}),
    ("same", {"status": 201}),
    ("leaves", {"status": 201, "size": 5_000, "chunks": 3}),
)


# Pools that begin with no threads and get more when all are busy, up to their bounds: the product's, with the thread
# that schedules; asyncio's own, where Django under ASGI logs what it refuses; and that of whoever sends requests here.
_POOLS = ("idem-store", "idempotency-renewal", "idempotency-recording", "idempotency-upkeep", "asyncio_", "requests_")
_POOLED_AT_MOST = 50 + 16 + 8 + 4 + 1 + 32 + _AT_ONCE


@dataclass(frozen=True, slots=True)
class Sample:
    """What the process holds after so many requests."""

    requests: int
    resident_kib: int
    objects: int
    threads: int
    pooled: int
    files: int
    connections: int
    renewals: int
    upkeep_entries: int

    @property
    def unpooled(self) -> int:
        """The threads that belong to no pool with a bound."""
        return self.threads - self.pooled

    def told(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Call:
    """One request, made of its number."""

    key: str
    body: bytes
    plan: bytes
    leaves: bool


def call(number: int) -> Call:
    """Make the request of that number."""
    cycle, step = divmod(number, len(_CYCLE))
    kind, plan = _CYCLE[step]
    first = step
    while _CYCLE[first][0] in ("same", "reused"):
        first -= 1
    body = b'{"amount": 13}' if kind == "reused" else b'{"amount": 12}'
    return Call(f"k-{cycle}-{first}", body, json.dumps(plan).encode(), kind == "leaves")


class Driver(Protocol):
    """Sends requests to an application in this process."""

    def send(self, numbers: range) -> None:
        """Send those requests, several at once."""

    def close(self) -> None:
        """Stop the application."""


class WsgiDriver:
    """Calls a WSGI application from threads."""

    def __init__(self, app: Any, at_once: int = _AT_ONCE) -> None:
        self._app = app
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="requests")
        self._at_once = at_once

    def send(self, numbers: range) -> None:
        # Each thread has the requests of whole cycles, in their order.
        parts = [[n for n in numbers if n // len(_CYCLE) % self._at_once == part] for part in range(self._at_once)]
        for future in [self._pool.submit(self._send_all, part) for part in parts]:
            future.result()

    def close(self) -> None:
        self._pool.shutdown()

    def _send_all(self, numbers: list[int]) -> None:
        for number in numbers:
            self._send(call(number))

    def _send(self, request: Call) -> None:
        environ = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/probe/worn",
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(request.body)),
            "HTTP_HOST": "127.0.0.1",
            "HTTP_IDEMPOTENCY_KEY": request.key,
            "HTTP_X_PLAN": request.plan.decode(),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(request.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        pieces = self._app(environ, lambda status, headers, exc_info=None: lambda data: None)
        try:
            for piece in pieces:
                if piece and request.leaves:
                    return
        finally:
            getattr(pieces, "close", lambda: None)()


class AsgiDriver:
    """Calls an ASGI application on an event loop of its own thread."""

    def __init__(self, app: Any, at_once: int = _AT_ONCE) -> None:
        self._app = app
        self._at_once = at_once
        self._runner = asyncio.Runner()

    def send(self, numbers: range) -> None:
        self._runner.run(self._send_all(numbers))

    def replace_loop(self) -> None:
        """Go on with another event loop, as after a server's own restart inside of the process."""
        self._runner.close()
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    async def _send_all(self, numbers: range) -> None:
        async def part(which: int) -> None:
            for number in numbers:
                if number // len(_CYCLE) % self._at_once == which:
                    await self._send(call(number))

        await asyncio.gather(*(part(which) for which in range(self._at_once)))

    async def _send(self, request: Call) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/probe/worn",
            "raw_path": b"/probe/worn",
            "root_path": "",
            "query_string": b"",
            "headers": [
                (b"host", b"127.0.0.1"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(request.body)).encode()),
                (b"idempotency-key", request.key.encode()),
                (b"x-plan", request.plan),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        messages = iter([{"type": "http.request", "body": request.body, "more_body": False}])
        gone = asyncio.Event()

        async def receive() -> Any:
            message = next(messages, None)
            if message is not None:
                return message
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if request.leaves and message["type"] == "http.response.body":
                gone.set()
            if not message.get("more_body", True):
                gone.set()

        application: Callable[..., Awaitable[None]] = self._app
        await application(scope, receive, send)


def driver(framework: str, store: str, folder: Path, options: dict[str, Any] | None = None) -> Driver:
    """Build the framework's probe in this process."""
    settings = Settings(
        framework=framework,
        host="127.0.0.1",
        port=0,
        workers=1,
        store=store,
        # The log of what ran is of no interest here; it would only grow.
        log=os.devnull,
        options=options or {},
        bare=False,
        state_folder=str(folder),
    )
    app = build_app(settings)
    return AsgiDriver(app) if framework in ASGI_FRAMEWORKS else WsgiDriver(app)


def sample(requests: int) -> Sample:
    """Look at this process."""
    gc.collect()
    # What the C library keeps of freed memory is no growth of ours.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    upkeep = process_upkeep()
    return Sample(
        requests=requests,
        resident_kib=_resident_kib(),
        objects=len(gc.get_objects()),
        threads=threading.active_count(),
        pooled=sum(thread.name.startswith(_POOLS) for thread in threading.enumerate()),
        files=sum(1 for _ in _OPEN_FILES.iterdir()),
        connections=sum(1 for _ in _connections()),
        renewals=len(upkeep),
        upkeep_entries=len(upkeep._due),
    )


def _resident_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _connections() -> Iterator[str]:
    """The established connections of this process."""
    sockets = set()
    for file in _OPEN_FILES.iterdir():
        with suppress(OSError):
            sockets.add(str(file.readlink()))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _ESTABLISHED and f"socket:[{fields[9]}]" in sockets:
                yield fields[2]


# How much more there may be at the end than after the warm-up. Threads, files and connections are counted; memory
# breathes, with what is on its way and with what the allocator keeps.
_BREATHES = {"objects": (0.02, 0.02), "resident_kib": (0.05, 0.02)}  # a part of what there is, or so many a request


def growth(samples: list[Sample]) -> list[str]:
    """Say what grew between the first of these samples, after the warm-up, and the last; nothing if all is flat."""
    first, last = samples[0], samples[-1]
    found = []
    for name in ("unpooled", "files", "connections"):
        before, after = max(getattr(one, name) for one in samples[: len(samples) // 2]), getattr(last, name)
        if after > before:
            found.append(f"{name} grew from {before} to {after}")
    if last.pooled > _POOLED_AT_MOST:
        found.append(f"the pools have {last.pooled} threads, more than their bounds together")
    if last.renewals:
        found.append(f"{last.renewals} renewals are left of requests that have ended")
    for name, (part, per_request) in _BREATHES.items():
        before, after = getattr(first, name), getattr(last, name)
        if after > before + max(part * before, per_request * (last.requests - first.requests)):
            found.append(f"{name} grew from {before} to {after}")
    return found
