"""The log of executions: the ground truth of what ran, over workers, restarts and crashes."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunLog:
    """One file to which every execution of a handler appends one line.

    Run numbers count from 1 under each name across all processes, so reading the number and appending
    the line happen under one lock of the file; the kernel frees it when its process dies.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._read_up_to = 0
        # flock is held by an open file, and each append opens its own; the counts here need a lock as well.
        self._lock = threading.Lock()

    def append(self, name: str, *, method: str, path: str, body_sha256: str) -> int:
        """Write the line of one execution and give its number."""
        with self._lock, self._locked_file() as file:
            self._catch_up(file)
            run = self._counts[name] + 1
            line = json.dumps(
                {
                    "name": name,
                    "run": run,
                    "method": method,
                    "path": path,
                    "body_sha256": body_sha256,
                    "pid": os.getpid(),
                }
            )
            os.write(file, line.encode() + b"\n")
            self._catch_up(file)
            return run

    def count(self, name: str) -> int:
        """Give the number of executions under this name so far."""
        with self._lock, self._locked_file() as file:
            self._catch_up(file)
            return self._counts[name]

    @contextmanager
    def _locked_file(self) -> Iterator[int]:
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)

    def _catch_up(self, file: int) -> None:
        """Count the lines that this and other processes appended since the last look."""
        size = os.fstat(file).st_size
        while self._read_up_to < size:
            added = os.pread(file, size - self._read_up_to, self._read_up_to)
            whole, newline, _ = added.rpartition(b"\n")
            if not newline:
                return
            self._counts.update(json.loads(line)["name"] for line in whole.split(b"\n") if line)
            self._read_up_to += len(whole) + 1
