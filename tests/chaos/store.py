"""DynamoDB Local on disk, which keeps its records over a stop and a start, and the proxy before it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.ports import lasting_port
from tests.support.dynamodb_local import NotAvailable, locate
from tests.support.ports import LOOPBACK, accepts_connections
from tests.support.processes import Process

_JAR = "DynamoDBLocal.jar"
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.05
_TRIES = 3


@contextmanager
def files_that_outlive_a_process() -> Iterator[Path]:
    """Make a folder for the database: in memory where the system has files there, since it syncs with every write."""
    place = Path("/dev/shm")  # noqa: S108  # nothing is guessed there, and nothing of it is trusted
    usable = place.is_dir() and os.access(place, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="idem-chaos-", dir=place if usable else None) as folder:
        yield Path(folder)


class DurableDynamoDB:
    """One process at a time, always on the same port and the same files."""

    def __init__(self, folder: Path) -> None:
        self._home = locate()
        self._folder = folder
        self._output = folder / "output"
        self._child: subprocess.Popen[bytes] | None = None
        self.port = lasting_port()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The endpoint for AWS clients that do not go through the proxy."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it accepts connections.

        Raises:
            NotAvailable: it ended, or did not listen in time.

        """
        for _ in range(_TRIES):
            self._child = self._spawn()
            deadline = time.monotonic() + _START_SECONDS
            while time.monotonic() < deadline and self._child.poll() is None:
                if accepts_connections(self.port):
                    return
                time.sleep(_POLL_SECONDS)
            self.stop()
        raise NotAvailable(self._output.read_text(errors="replace")[-2000:])

    def stop(self) -> None:
        """Stop it by SIGTERM."""
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [
                    "java",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    "-Xmx512m",
                    f"-Djava.library.path={self._home / 'DynamoDBLocal_lib'}",
                    "-jar",
                    str(self._home / _JAR),
                    "-dbPath",
                    str(self._folder),
                    "-sharedDb",
                    "-disableTelemetry",
                    "-port",
                    str(self.port),
                ],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )


class RunningProxy:
    """The fault proxy as a process."""

    def __init__(self, upstream_port: int, seed: int, rate: float) -> None:
        arguments = ("--upstream-port", str(upstream_port), "--seed", str(seed), "--rate", str(rate))
        self._process = Process.module("tests.chaos.proxy", *arguments)
        self.port = int(self._process.wait_for_line("ready ").split()[1])
        self.report: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.stop()
        for line in self._process.remaining_lines():
            self.report = json.loads(line)

    @property
    def url(self) -> str:
        """The endpoint for AWS clients."""
        return f"http://{LOOPBACK}:{self.port}"

    def rage(self) -> None:
        """Begin to fail calls."""
        os.kill(self._process.pid, signal.SIGUSR1)

    def calm_down(self) -> None:
        """Fail no more."""
        os.kill(self._process.pid, signal.SIGUSR2)
