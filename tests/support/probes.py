"""Probe apps as running servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.processes import Process, ProcessFailedError

# The import package that each framework's probe needs, besides its server.
NEEDED_PACKAGE = {
    "starlette": "starlette",
    "fastapi": "fastapi",
    "django-wsgi": "django",
    "django-asgi": "django",
    "drf": "rest_framework",
    "flask": "flask",
}
INSTALLED_FRAMEWORKS = tuple(name for name, package in NEEDED_PACKAGE.items() if find_spec(package))

# Between choosing a free port and binding it another process may take it.
_TRIES = 3


class RunningProbe:
    """A probe that accepts requests, and its log."""

    def __init__(self, framework: str, process: Process, port: int, log: Path) -> None:
        self.framework = framework
        self.process = process
        self.port = port
        self._log = log

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def records(self, name: str) -> list[dict[str, Any]]:
        """Give what the log says about the executions under this name."""
        if not self._log.exists():
            return []
        records = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [record for record in records if record["name"] == name]

    def runs(self, name: str) -> int:
        """Give how often the handler ran under this name."""
        return len(self.records(name))


@contextmanager
def running_probe(
    framework: str,
    log: Path,
    *,
    store: str = "memory://",
    workers: int = 1,
    options: Mapping[str, Any] | None = None,
    bare: bool = False,
    module: str = "tests.probe",
) -> Iterator[RunningProbe]:
    """Start a probe, wait until it is ready, and stop it in the end.

    `module` is what is run: another one than the probe itself may put something around it.

    Raises:
        ProcessFailedError: it does not start.

    """
    arguments = ["--framework", framework, "--store", store, "--workers", str(workers), "--log", str(log)]
    for name, value in (options or {}).items():
        arguments += ["--option", f"{name}={json.dumps(value)}"]
    if bare:
        arguments.append("--bare")
    process, port = _start(module, arguments)
    with process:
        yield RunningProbe(framework, process, port, log)


def _start(module: str, arguments: list[str]) -> tuple[Process, int]:
    for tries_left in reversed(range(_TRIES)):
        port = free_port()
        process = Process.module(module, "--port", str(port), *arguments)
        try:
            process.wait_for_line("ready ")
        except ProcessFailedError as failed:
            process.stop()
            if "already in use" not in str(failed) or not tries_left:
                raise
        else:
            return process, port
    raise AssertionError("unreachable: the last try returns or raises")
