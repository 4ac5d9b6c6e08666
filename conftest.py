"""Runs the code in README.md and docs/, where all frameworks that it shows are installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def _setup(namespace: dict[str, Any]) -> None:
    namespace["__name__"] = "__main__"  # Flask looks there for its root


if all(find_spec(name) for name in ("starlette", "fastapi", "django", "flask")):
    pytest_collect_file = Sybil(
        parsers=[PythonCodeBlockParser()],
        patterns=["README.md", "docs/*.md", "docs/**/*.md"],
        setup=_setup,
    ).pytest()
