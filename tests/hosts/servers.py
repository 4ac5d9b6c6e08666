"""The servers of the support matrix: how each is started. `docs/how-to/servers.md` lists them all."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.support.polling import eventually
from tests.support.ports import accepts_connections, free_port
from tests.support.processes import ROOT, Process

__all__ = ["SERVERS", "Server", "running"]


@dataclass(frozen=True)
class Server:
    """One way to serve. `{port}` in its command is the port; `needs` are modules, or a program."""

    name: str
    needs: tuple[str, ...]
    command: tuple[str, ...]
    program: str | None = None

    @property
    def missing(self) -> str | None:
        """What is not installed."""
        if self.program is not None and _path(self.program) is None:
            return self.program
        return next((module for module in self.needs if find_spec(module) is None), None)


def _path(program: str) -> str | None:
    """Beside this Python, or wherever the user has it."""
    return shutil.which(program, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


_ASGI = "tests.hosts.asgi:application"
_WSGI = "tests.hosts.wsgi:application"
_UWSGI = ("--http-socket", "127.0.0.1:{port}", "--module", _WSGI, "--need-app")
_UWSGI_HOME = ("--home", sys.prefix, "--die-on-term", "--lazy-apps")


def _gunicorn(*arguments: str) -> tuple[str, ...]:
    # Two workers: the simplest kind answers one request at a time.
    return ("gunicorn", "-b", "127.0.0.1:{port}", "-w", "2", "--no-control-socket", *arguments, _WSGI)


SERVERS = (
    Server("uvicorn", ("uvicorn", "starlette"), ("uvicorn", "--port", "{port}", "--lifespan", "on", _ASGI)),
    Server(
        "uvicorn, uvloop",
        ("uvicorn", "uvloop", "starlette"),
        ("uvicorn", "--port", "{port}", "--lifespan", "on", "--loop", "uvloop", _ASGI),
    ),
    Server("hypercorn", ("hypercorn", "starlette"), ("hypercorn", "-b", "127.0.0.1:{port}", _ASGI)),
    Server("daphne", ("daphne", "starlette"), ("daphne", "-b", "127.0.0.1", "-p", "{port}", _ASGI)),
    Server("gunicorn, sync", ("gunicorn", "flask"), _gunicorn()),
    Server("gunicorn, threads", ("gunicorn", "flask"), _gunicorn("-k", "gthread", "--threads", "8")),
    Server("gunicorn, gevent", ("gunicorn", "gevent", "flask"), _gunicorn("-k", "gevent")),
    Server("gunicorn, gevent, preloaded", ("gunicorn", "gevent", "flask"), _gunicorn("-k", "gevent", "--preload")),
    Server(
        "uWSGI, processes",
        ("flask",),
        (*_UWSGI, *_UWSGI_HOME, "--master", "--processes", "2", "--enable-threads"),
        "uwsgi",
    ),
    Server(
        "uWSGI, processes, preloaded",
        ("flask",),
        (*_UWSGI, *_UWSGI_HOME[:3], "--master", "--processes", "2", "--enable-threads"),
        "uwsgi",
    ),
    Server("uWSGI, threads", ("flask",), (*_UWSGI, *_UWSGI_HOME, "--master", "--threads", "8"), "uwsgi"),
)


def start(server: Server, port: int, environment: Mapping[str, str]) -> Process:
    """Start it; it may not be up yet."""
    arguments = [part.replace("{port}", str(port)) for part in server.command]
    if server.program is not None:
        program = _path(server.program)
        assert program is not None
        return Process([program, "--pythonpath", str(ROOT), *arguments], environment=environment)
    return Process.module(*arguments, environment=environment)


@contextmanager
def running(server: Server, environment: Mapping[str, str]) -> Iterator[int]:
    """Start it, wait until it answers, and stop it in the end; gives its port."""
    port = free_port()
    with start(server, port, environment) as process:
        eventually(lambda: accepts_connections(port), what=f"{server.name} is up", within_seconds=60)
        try:
            yield port
        except Exception as failed:
            failed.add_note(f"{server.name} wrote:\n{process.errors[-4000:]}")
            raise
