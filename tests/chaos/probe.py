"""A probe that leaves a trail: which request began its handler and when, how it ended, what the product said.

`IDEM_CHAOS_CLOCK_OFFSET` sets the clock of all its processes wrong by so many seconds, before anything has asked for
the time; the monotonic clock is left alone.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

OFFSET_VARIABLE = "IDEM_CHAOS_CLOCK_OFFSET"
TRAIL_VARIABLE = "IDEM_CHAOS_TRAIL"
MACHINE_VARIABLE = "IDEM_CHAOS_MACHINE"
TRY_HEADER = "X-Try"


def set_clock_wrong(seconds: float) -> None:
    """Shift the machine's clock for this process, as far as Python code reads it by `time.time`."""
    right_time, right_time_ns = time.time, time.time_ns
    time.time = lambda: right_time() + seconds
    time.time_ns = lambda: right_time_ns() + int(seconds * 1e9)


# Before the product is imported, which keeps the function that it finds.
if os.environ.get(OFFSET_VARIABLE):
    set_clock_wrong(float(os.environ[OFFSET_VARIABLE]))

from tests.chaos.history import End, Line, Run, Told, Up, dumped  # noqa: E402
from tests.probe import runs, server  # noqa: E402
from tests.probe.__main__ import main  # noqa: E402
from tests.probe.settings import ASGI_FRAMEWORKS, Settings  # noqa: E402

# The try that this code runs for, and when it came.
_current: ContextVar[tuple[str, float] | None] = ContextVar("current", default=None)


@cache
def _trail() -> int:
    return os.open(os.environ[TRAIL_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def leave(line: Line) -> None:
    """Append to the trail by one write: it is there however the process ends."""
    os.write(_trail(), dumped(line))


class Watching(logging.Handler):
    """Turns the product's log, which tells its events from warnings on, into lines of the trail."""

    def emit(self, record: logging.LogRecord) -> None:
        """Leave a line."""
        event = getattr(record, "idempotency_event", None)
        if event is None and record.exc_info is None:
            return
        reason = getattr(record, "idempotency_reason", None)
        if event is None:
            reason = f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()
        leave(
            Told(
                pid=os.getpid(),
                at=time.monotonic(),
                event=event or "internal_error",
                digest=getattr(record, "idempotency_key_digest", None),
                reason=reason,
                code=getattr(record, "dynamo_error_code", None),
            )
        )


class WsgiTrail:
    """Around a WSGI app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Let the app answer, and note its end."""
        identity = environ.get("HTTP_X_TRY")
        if identity is None:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        seen: list[int] = []

        def start(status: str, *rest: Any) -> Any:
            seen.append(int(status.partition(" ")[0]))
            return start_response(status, *rest)

        _current.set((identity, time.monotonic()))
        try:
            return self._noting(identity, seen, self._app(environ, start))
        except BaseException:
            _end(identity, None)
            raise

    @staticmethod
    def _noting(identity: str, seen: list[int], pieces: Iterable[bytes]) -> Iterator[bytes]:
        raised = True
        try:
            yield from pieces
            raised = False
        except GeneratorExit:  # the client has left
            raised = False
            raise
        finally:
            try:
                getattr(pieces, "close", lambda: None)()
            finally:
                _end(identity, None if raised or not seen else seen[-1])


class AsgiTrail:
    """Around an ASGI app."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let the app answer, and note its end."""
        headers = dict(scope.get("headers", ()))
        identity = headers.get(TRY_HEADER.lower().encode(), b"").decode()
        if scope["type"] != "http" or not identity:
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        _current.set((identity, time.monotonic()))
        try:
            await self._app(scope, receive, noting)
        except BaseException:
            _end(identity, None)
            raise
        _end(identity, status)


def _end(identity: str, status: int | None) -> None:
    leave(End(id=identity, pid=os.getpid(), at=time.monotonic(), status=status))


def _logging_the_try(append: Callable[..., int]) -> Callable[..., int]:
    """Leave a line before the probe's own log has one, so that nothing is in that alone."""

    def append_both(self: runs.RunLog, name: str, *, method: str, path: str, body_sha256: str) -> int:
        identity, arrived_at = _current.get() or ("", time.monotonic())
        pid = os.getpid()
        leave(Run(id=identity, name=name, pid=pid, arrived_at=arrived_at, at=time.monotonic(), body=body_sha256))
        return append(self, name, method=method, path=path, body_sha256=body_sha256)

    return append_both


def _with_trail(build: Callable[[Settings], Any]) -> Callable[[Settings], Any]:
    def build_with_trail(settings: Settings) -> Any:
        app = build(settings)
        logging.getLogger("idem_middleware").addHandler(Watching(logging.WARNING))
        leave(Up(pid=os.getpid(), at=time.monotonic(), machine=int(os.environ[MACHINE_VARIABLE])))
        return AsgiTrail(app) if settings.framework in ASGI_FRAMEWORKS else WsgiTrail(app)

    return build_with_trail


# Where this module is imported by a worker that was spawned, too.
if TRAIL_VARIABLE in os.environ:
    runs.RunLog.append = _logging_the_try(runs.RunLog.append)  # type: ignore[method-assign]
    server.build_app = _with_trail(server.build_app)  # type: ignore[assignment]  # mypy wants the very function

if __name__ == "__main__":
    sys.exit(main())
