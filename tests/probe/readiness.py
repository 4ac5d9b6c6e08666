"""Tells that a probe accepts requests, once, and only when all of its workers do."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from pathlib import Path

from tests.probe.settings import Settings

_POLL_SECONDS = 0.02
# Long enough for a loaded machine; what starts a probe has a bound of its own.
_GIVE_UP_AFTER_SECONDS = 120


class Readiness:
    """Counts the workers that came up, in files, since they are processes that share nothing else."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder = Path(settings.state_folder)

    def worker_is_up(self) -> None:
        """Note that this worker has its app."""
        (self._folder / f"worker-{os.getpid()}").touch()

    def announce_if_complete(self) -> None:
        """Print the ready line if all workers are up; no other call, in any process, prints it again."""
        if not self._all_workers_are_up():
            return
        try:
            (self._folder / "announced").touch(exist_ok=False)
        except FileExistsError:
            return
        print(f"ready {self._settings.url}", flush=True)  # noqa: T201  # the contract with who starts us

    def announce_in_background(self) -> None:
        """Ask the server from a thread until it answers, then print the ready line."""
        threading.Thread(target=self._watch, name="readiness", daemon=True).start()

    def _watch(self) -> None:
        deadline = time.monotonic() + _GIVE_UP_AFTER_SECONDS
        while time.monotonic() < deadline:
            if self._all_workers_are_up() and self._answers():
                self.announce_if_complete()
                return
            time.sleep(_POLL_SECONDS)

    def _all_workers_are_up(self) -> bool:
        return len(self._workers()) >= self._settings.workers

    def _workers(self) -> set[int]:
        return {int(file.name.removeprefix("worker-")) for file in self._folder.glob("worker-*")}

    def _answers(self) -> bool:
        """Whether one of our own workers answers: on a taken port it would be somebody else's."""
        connection = http.client.HTTPConnection(self._settings.host, self._settings.port, timeout=2)
        try:
            connection.request("GET", "/healthz")
            return json.loads(connection.getresponse().read())["pid"] in self._workers()
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
            return False
        finally:
            connection.close()
