"""Amazon's DynamoDB Local as a process of a test session's own, from a folder where somebody has put it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["DynamoDBLocal", "NotAvailable"]

_LOOPBACK = "127.0.0.1"
_JAR = "DynamoDBLocal.jar"
_START_SECONDS, _STOP_SECONDS, _POLL_SECONDS = 60.0, 10.0, 0.05
_TRIES = 3  # between choosing a free port and binding it, another process may take it


class NotAvailable(RuntimeError):
    """It is not on this machine, or does not start; the message says what to do."""


class DynamoDBLocal:
    """In memory, on a free port of loopback, while the context lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._port = 0

    @classmethod
    def find(cls) -> DynamoDBLocal:
        """The one in the folder DYNAMODB_LOCAL_DIR.

        Raises:
            NotAvailable: no such folder, or no java.

        """
        folder = os.environ.get("DYNAMODB_LOCAL_DIR")
        if not folder or not (Path(folder) / _JAR).is_file():
            raise NotAvailable(
                "no DynamoDB Local: set IDEMPOTENCY_DYNAMODB_LOCAL_URL to a running one "
                f"(docker run -p 8000:8000 amazon/dynamodb-local), or DYNAMODB_LOCAL_DIR to the folder of {_JAR}"
            )
        if shutil.which("java") is None:
            raise NotAvailable("DynamoDB Local needs java, version 17 or later")
        return cls(Path(folder).resolve())

    @property
    def url(self) -> str:
        """The endpoint for AWS clients."""
        return f"http://{_LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        with tempfile.TemporaryFile() as output:
            for _ in range(_TRIES):
                self._port = _free_port()
                self._child = self._spawn(output.fileno())
                if self._listens():
                    return self
                self._end()
            output.seek(0)
            raise NotAvailable(f"DynamoDB Local did not start: {output.read().decode('utf-8', 'replace')}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _spawn(self, output: int) -> subprocess.Popen[bytes]:
        # A short life with little data: the cheapest collector, and no time spent on optimising.
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
        command += [f"-Djava.library.path={self._folder / 'DynamoDBLocal_lib'}", "-jar", str(self._folder / _JAR)]
        command += ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self._port)]
        return subprocess.Popen(  # noqa: S603  # java, by the user's own path
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def _listens(self) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self._child is not None and self._child.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((_LOOPBACK, self._port)) == 0:
                    return self._child.poll() is None  # somebody listens; it is ours only if ours is still there
            time.sleep(_POLL_SECONDS)
        return False

    def _end(self) -> None:
        if self._child is None:
            return
        self._child.terminate()
        try:
            self._child.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
