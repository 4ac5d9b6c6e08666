"""Runs the code in README.md and docs/, where all frameworks that it shows are installed."""

from __future__ import annotations

import asyncio
import warnings
from importlib.util import find_spec
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def _setup(namespace: dict[str, Any]) -> None:
    namespace["__name__"] = "__main__"  # Flask looks there for its root


def _teardown(_namespace: dict[str, Any]) -> None:
    """Close the event loop that Mangum makes for the life of a Lambda, and leaves open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:  # there is none
            return
    asyncio.set_event_loop(None)
    loop.close()


if all(find_spec(name) for name in ("starlette", "fastapi", "django", "flask")):
    pytest_collect_file = Sybil(
        parsers=[PythonCodeBlockParser()],
        patterns=["README.md", "docs/*.md", "docs/**/*.md"],
        setup=_setup,
        teardown=_teardown,
    ).pytest()
