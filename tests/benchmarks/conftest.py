"""The benchmarks stand in the checkout, in no wheel, and need every framework and server."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = ("benchmarks", "aiohttp", "django", "flask", "gunicorn", "starlette", "uvicorn")

if not all(map(find_spec, _NEEDED)):
    collect_ignore_glob = ["*"]
