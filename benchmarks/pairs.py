"""One application twice in this process: bare, and protected by us with a MemoryStore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.peers.applications import django_app, fastapi_app, flask_app, starlette_app
from benchmarks.peers.driver import LoopCallers, ThreadCallers
from benchmarks.peers.protections import MEMORY, ours, ours_in_django
from benchmarks.peers.questions import QUESTIONS, Keys, Sent

__all__ = ["FRAMEWORKS", "Pair"]

_PLAIN: dict[str, Callable[[], Any]] = {"starlette": starlette_app, "fastapi": fastapi_app, "flask": flask_app}
FRAMEWORKS = (*_PLAIN, "django wsgi", "django asgi")


def _applications(framework: str) -> tuple[Any, Any]:
    """Bare and protected."""
    make = _PLAIN.get(framework)
    if make is not None:
        return make(), ours(make(), MEMORY)
    on_a_loop = framework == "django asgi"
    protected = ours_in_django(MEMORY, on_a_loop=on_a_loop)  # first: it says what the settings are
    return django_app(on_a_loop=on_a_loop, middleware=[]), protected


@dataclass(slots=True)
class Pair:
    """The two, ready to be called."""

    bare: LoopCallers | ThreadCallers
    protected: LoopCallers | ThreadCallers

    @classmethod
    def of(cls, framework: str) -> Pair:
        """Both in this framework. Django has one set of settings in a process: one of its two, once."""
        bare, protected = _applications(framework)
        if framework in {"flask", "django wsgi"}:
            return cls(ThreadCallers(bare), ThreadCallers(protected))
        return cls(LoopCallers(bare), LoopCallers(protected))

    def ask(self, question: str, requests: int, keys: Keys, *, protected: bool) -> Callable[[], None]:
        """What carries out so many requests; the one that they presuppose, if any, has been sent."""
        callers = self.protected if protected else self.bare
        first, sent = keys.requests(QUESTIONS[question], requests, protected=protected)
        if first is not None:
            _check(callers, first)
        return partial(callers.each, sent)


def _check(callers: LoopCallers | ThreadCallers, sent: Sent) -> None:
    status, content = callers.one(sent)
    assert status == 201, (status, content)  # noqa: PLR2004
