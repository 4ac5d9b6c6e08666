"""Amazon's DynamoDB Local as a process of the tests' own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK, accepts_connections, free_port
from tests.support.processes import ROOT

FOLDER_VARIABLE = "DYNAMODB_LOCAL_DIR"
_DEFAULT_FOLDER = ROOT / ".dynamodb-local"
_JAR = "DynamoDBLocal.jar"

_START_SECONDS = 60
_STOP_SECONDS = 10
_POLL_SECONDS = 0.05
# Between choosing a free port and binding it another process may take it.
_TRIES = 3


class DynamoDBLocalMissingError(RuntimeError):
    """It is not on this machine; the message says how it gets there."""


class DynamoDBLocalFailedError(RuntimeError):
    """It is there and does not start; the message has what it wrote."""


def locate() -> Path:
    """Find the folder of DynamoDB Local.

    Raises:
        DynamoDBLocalMissingError: no Java, or not fetched.

    """
    if shutil.which("java") is None:
        raise DynamoDBLocalMissingError("DynamoDB Local needs java, version 17 or later")
    folder = Path(os.environ.get(FOLDER_VARIABLE) or _DEFAULT_FOLDER)
    if not (folder / _JAR).is_file():
        raise DynamoDBLocalMissingError(
            f"DynamoDB Local is not in {folder}: run `python scripts/fetch_dynamodb_local.py`, or set {FOLDER_VARIABLE}"
        )
    return folder.resolve()


class DynamoDBLocal:
    """One process, in memory, on a free port of loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed in stop()
        self._port = 0

    @property
    def url(self) -> str:
        """The endpoint for AWS clients."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._child is not None
        return self._child.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it accepts connections.

        Raises:
            DynamoDBLocalFailedError: it ended, or did not listen in time.

        """
        for _ in range(_TRIES):
            self._port = free_port()
            self._child = self._spawn()
            if self._listens():
                return
            self._end()
        output = self._written()
        self.stop()
        raise DynamoDBLocalFailedError(f"DynamoDB Local in {self._folder} did not start:\n{output}")

    def stop(self) -> None:
        """Stop it."""
        self._end()
        self._output.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                "java",
                # A short life with little data: the cheapest collector, and no time spent on optimising.
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xmx256m",
                f"-Djava.library.path={self._folder / 'DynamoDBLocal_lib'}",
                "-jar",
                str(self._folder / _JAR),
                "-inMemory",
                "-sharedDb",
                "-disableTelemetry",
                "-port",
                str(self._port),
            ],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    def _listens(self) -> bool:
        assert self._child is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._child.poll() is None:
            if accepts_connections(self._port):
                # Somebody listens; it is ours only if ours is still there.
                return self._child.poll() is None
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

    def _written(self) -> str:
        self._output.seek(0)
        return self._output.read().decode("utf-8", "replace")
