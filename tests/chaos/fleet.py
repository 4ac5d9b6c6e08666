"""Several servers of one framework, each with several workers, that share one table: as if on several machines."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.history import Gone, Up, dumped, loaded
from tests.chaos.ports import lasting_port
from tests.chaos.probe import MACHINE_VARIABLE, OFFSET_VARIABLE, TRAIL_VARIABLE
from tests.support.processes import Process, ProcessFailedError

_POLL_SECONDS = 0.02
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Machine:
    """One server: how many workers, and how far its clock is off."""

    workers: int = 2
    clock_offset: float = 0.0


class Fleet:
    """Starts the servers, knows their workers, and notes which of them are gone."""

    def __init__(
        self,
        framework: str,
        machines: Sequence[Machine],
        *,
        store: str,
        options: Mapping[str, Any],
        log: Path,
        trail: Path,
    ) -> None:
        self._framework = framework
        self._machines = machines
        self._options = options
        self._store = store
        self._log = log
        self._trail = trail
        self.ports = [lasting_port() for _ in machines]
        self._servers: dict[int, Process] = {}
        self._lock = threading.Lock()
        self._workers: dict[int, int] = {}  # which machine's
        self._read_up_to = 0
        self._stopped = threading.Event()
        self._watch = threading.Thread(target=self._watching, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._trail.touch()
        self._watch.start()
        try:
            self.start(0)  # which makes the table
            with ThreadPoolExecutor(len(self.ports)) as pool:
                list(pool.map(self.start, range(1, len(self.ports))))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    @property
    def size(self) -> int:
        """How many machines there are."""
        return len(self.ports)

    def start(self, machine: int) -> None:
        """Start one server and wait until all of its workers are up.

        Raises:
            ProcessFailedError: it does not start.

        """
        for tries_left in reversed(range(_TRIES)):
            server = self._spawn(machine)
            try:
                server.wait_for_line("ready ")
            except ProcessFailedError:
                server.stop()
                if not tries_left:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                self._servers[machine] = server
                return

    def restart(self, machine: int) -> int:
        """Stop one server by SIGTERM and start it again; gives the exit status of the one that stopped."""
        status = self._servers.pop(machine).stop()
        self.start(machine)
        return status

    def signal_a_worker(self, number: int, choice: float) -> int | None:
        """Send a signal to one of the workers that are up, by its own pid; `choice` is from 0 to 1."""
        with self._lock:
            pids = sorted(self._workers)
            if not pids:
                return None
            pid = pids[int(choice * len(pids))]
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            return pid

    def workers_are_up(self) -> bool:
        """Whether every machine has all of its workers."""
        with self._lock:
            counted = [list(self._workers.values()).count(machine) for machine in range(self.size)]
        return all(count >= machine.workers for count, machine in zip(counted, self._machines, strict=True))

    def errors(self) -> str:
        """What the running servers wrote to standard error."""
        return "\n".join(server.errors for server in self._servers.values())

    def _spawn(self, machine: int) -> Process:
        arguments = ["--framework", self._framework, "--port", str(self.ports[machine]), "--store", self._store]
        arguments += ["--workers", str(self._machines[machine].workers), "--log", str(self._log)]
        for name, value in self._options.items():
            arguments += ["--option", f"{name}={json.dumps(value)}"]
        offset = self._machines[machine].clock_offset
        return Process.module(
            "tests.chaos.probe",
            *arguments,
            environment={
                TRAIL_VARIABLE: str(self._trail),
                MACHINE_VARIABLE: str(machine),
                OFFSET_VARIABLE: str(offset) if offset else "",
            },
        )

    def _watching(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            self._look()

    def _look(self) -> None:
        """Learn of workers that have come, from the trail, and write into it which are gone."""
        with self._trail.open("rb") as file:
            file.seek(self._read_up_to)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_up_to += len(whole) + len(newline)
        came = [loaded(text) for text in whole.split(b"\n") if text.startswith(b'{"kind": "up"')]
        with self._lock:
            self._workers.update({line.pid: line.machine for line in came if isinstance(line, Up)})
            gone = [pid for pid in self._workers if not _is_alive(pid)]
            for pid in gone:
                del self._workers[pid]
        if gone:
            now = time.monotonic()
            with self._trail.open("ab", buffering=0) as file:
                file.write(b"".join(dumped(Gone(pid=pid, at=now)) for pid in gone))

    def _end(self) -> None:
        servers = list(self._servers.values())
        for server in servers:
            with suppress(ProcessLookupError):
                server.terminate()
        for server in servers:
            server.stop()
        self._servers.clear()
        self._stopped.set()
        self._watch.join()
        self._look()


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits for its parent to notice its end does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


KILL = signal.SIGKILL
RETIRE = signal.SIGTERM
