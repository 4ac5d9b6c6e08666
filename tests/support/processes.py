"""Child processes: started, awaited until they say that they are ready, stopped by their own pid."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]

# For a machine that runs several test workers at once; usually a start takes a second or two.
_START_SECONDS = 60
# A probe bounds its own orderly shutdown at four seconds.
_STOP_SECONDS = 15


# As `python -m` from the checkout, but with the checkout last on the path: where a wheel is installed, as in the
# test matrix, its packages must win over those beside the tests, or the process would have two copies.
_RUN_MODULE = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class ProcessFailedError(AssertionError):
    """The process ended, or kept silent, before it was ready; the message has what it wrote."""


class Process:
    """One child process in a group of its own, with its output collected line by line."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        working_folder: Path = ROOT,
    ) -> None:
        self._arguments = list(arguments)
        self._child = subprocess.Popen(
            self._arguments,
            cwd=working_folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Its children are stopped with it, as a group that is ours alone.
            start_new_session=True,
        )
        self._errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        # Both pipes are drained all the time: a child that fills one would stand still.
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @classmethod
    def module(cls, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Process:
        """Start what `python -m NAME` starts."""
        return cls([sys.executable, "-P", "-c", _RUN_MODULE, str(ROOT), name, *arguments], environment=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    @property
    def errors(self) -> str:
        """What the child wrote to standard error so far."""
        return "".join(self._errors)

    def wait_for_line(self, beginning: str, *, within_seconds: float = _START_SECONDS) -> str:
        """Give the next line of its output that begins so.

        Raises:
            ProcessFailedError: it ended first, or the time is over.

        """
        try:
            while True:
                line = self._lines.get(timeout=within_seconds)
                if line is None:
                    raise ProcessFailedError(f"{self._described()} ended with {self._child.wait()}:\n{self.errors}")
                if line.startswith(beginning):
                    return line.rstrip("\n")
        except queue.Empty:
            raise ProcessFailedError(
                f"{self._described()} did not say {beginning!r} within {within_seconds:g} s:\n{self.errors}"
            ) from None

    def remaining_lines(self) -> list[str]:
        """Give what it wrote since the last line asked for; it must have ended."""
        return list(iter(self._lines.get, None))

    def wait(self, *, within_seconds: float = _STOP_SECONDS) -> int:
        """Give its exit status, once it ends by itself."""
        status = self._child.wait(timeout=within_seconds)
        for reader in self._readers:
            reader.join(timeout=within_seconds)
        return status

    def terminate(self) -> None:
        """Ask it to stop."""
        self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would, with the children that it has."""
        self._end_group()
        self.wait()

    def stop(self) -> int:
        """Ask it to stop, wait, and give its exit status; if it does not listen, end it."""
        if self._child.poll() is None:
            self.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            self._end_group()
            self._child.wait()
            for reader in self._readers:
                reader.join()
            for pipe in (self._child.stdout, self._child.stderr):
                if pipe is not None:
                    pipe.close()

    def _end_group(self) -> None:
        try:
            # The group was made for this child, and bears its pid.
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _read_output(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._child.stderr is not None
        self._errors.extend(self._child.stderr)

    def _described(self) -> str:
        return " ".join(argument for argument in self._arguments if argument != _RUN_MODULE)
