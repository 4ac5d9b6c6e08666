"""Child processes that listen on a port of loopback: started, awaited within bounds, stopped by their own pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from example_apps.demo.errors import DemoError

__all__ = ["LOOPBACK", "Server", "require_free"]

LOOPBACK = "127.0.0.1"
_CHECKOUT = Path(__file__).resolve().parents[2]

_START_SECONDS = 30
_STOP_SECONDS = 5
_POLL_SECONDS = 0.02
# Between choosing a free port and binding it another process may take it.
_TRIES = 3
_SHOWN_LINES = 15


class Server:
    """One child process; `{port}` in its arguments is filled in.

    It starts at once; `wait` waits until it listens. What it writes is kept, and shown if it does not start.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        port: int | None = None,
        shows_output: bool = False,
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._fixed_port = port
        self._output = None if shows_output else tempfile.TemporaryFile()  # noqa: SIM115  # closed in stop()
        self._spawn()

    def _spawn(self) -> None:
        self.port = self._fixed_port or _free_port()
        self._child = subprocess.Popen(  # noqa: S603  # this interpreter, and arguments of our own
            [sys.executable, *(argument.replace("{port}", str(self.port)) for argument in self._arguments)],
            cwd=_CHECKOUT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            # A group of its own: servers with workers are killed as a whole, and Ctrl-C is ours to handle.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def ended(self) -> bool:
        """Whether the process is over."""
        return self._child.poll() is not None

    def wait(self) -> None:
        """Wait until it listens.

        Raises:
            DemoError: it ended, or does not listen in time.

        """
        for tries_left in reversed(range(_TRIES)):
            if self._listens():
                return
            if not (self.ended and tries_left and "in use" in self._written() and self._fixed_port is None):
                break
            self._spawn()
        how = f"ended with {self._child.returncode}" if self.ended else f"does not listen after {_START_SECONDS} s"
        written = self._written()
        raise DemoError(f"{self.name} {how}" + (f"; it wrote:\n{written}" if written else ""))

    def kill(self) -> None:
        """End it at once, with its workers, as a crash would."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)  # the group was made for this child and bears its pid
        self._child.wait()

    def stop(self) -> None:
        """Ask it to stop; if it does not in time, end it."""
        if not self.ended:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_STOP_SECONDS)
        self.kill()
        if self._output is not None:
            self._output.close()

    def _listens(self) -> bool:
        give_up_at = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up_at and not self.ended:
            if _accepts(self.port):
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _written(self) -> str:
        """The last lines of its output."""
        if self._output is None:
            return ""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_SHOWN_LINES:])


def require_free(port: int) -> None:
    """Check that nobody listens on a port that was asked for.

    Raises:
        DemoError: somebody does, or we are not allowed to.

    """
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the past are no hindrance
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise DemoError(f"port {port} can't be used ({error.strerror}): choose another with --port") from error


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
