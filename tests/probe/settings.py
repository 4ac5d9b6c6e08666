"""How one probe is set up, and its way from the command line into the worker processes."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ASGI_FRAMEWORKS = ("starlette", "fastapi", "django-asgi")
WSGI_FRAMEWORKS = ("django-wsgi", "drf", "flask")
FRAMEWORKS = ASGI_FRAMEWORKS + WSGI_FRAMEWORKS

# Server workers are processes of their own; what starts them can hand over nothing but their environment.
_VARIABLE = "IDEM_PROBE_SETTINGS"


@dataclass(frozen=True, slots=True)
class Settings:
    """One probe: its framework, its address, and what the product is given."""

    framework: str
    host: str
    port: int
    workers: int
    store: str
    log: str
    options: Mapping[str, Any]
    bare: bool
    state_folder: str

    @property
    def url(self) -> str:
        """The address that the probe answers at."""
        return f"http://{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        """The log of executions."""
        return Path(self.log)

    def to_environment(self) -> None:
        """Leave these settings to the processes that this one starts."""
        os.environ[_VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Settings:
        """Read what the starting process left."""
        return cls(**json.loads(os.environ[_VARIABLE]))


def parse_arguments(arguments: Sequence[str], state_folder: str) -> Settings:
    """Read the command line; wrong ones end the process with status 2 and a message on standard error."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.workers < 1:
        parser.error("--workers must be at least 1")
    store: str = given.store
    if given.table is not None:
        if urlsplit(store).scheme != "dynamodb":
            parser.error("--table needs a dynamodb:// store")
        store = urlunsplit(urlsplit(store)._replace(netloc=given.table))
    return Settings(
        framework=given.framework,
        host=given.host,
        port=given.port,
        workers=given.workers,
        store=store,
        log=given.log or str(Path(state_folder) / "runs.log"),
        options=_options(parser, given.option),
        bare=given.bare,
        state_folder=state_folder,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.probe", description=__doc__, allow_abbrev=False)
    parser.add_argument("--framework", required=True, choices=FRAMEWORKS)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--workers", type=int, default=1, help="server processes (default 1)")
    parser.add_argument("--store", default="memory://", help="store URL (default memory://)")
    parser.add_argument("--table", help="the table, instead of the one in a dynamodb:// URL")
    parser.add_argument("--log", help="file that every execution of a handler appends a line to")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=JSON", help="an option of the product; repeatable"
    )
    parser.add_argument("--bare", action="store_true", help="leave the product out: the app alone, unprotected")
    return parser


def _options(parser: argparse.ArgumentParser, given: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            parser.error(f"--option takes NAME=JSON, not {item!r}")
        if name in options:
            parser.error(f"--option {name} is given twice")
        try:
            options[name] = json.loads(value)
        except ValueError as error:
            parser.error(f"--option {name}: {value!r} is no JSON ({error})")
    return options
