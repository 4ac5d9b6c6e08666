"""One application twice in this process: bare, and protected by us with a MemoryStore.

Among the frameworks is `engine`, which is none: the core alone, called as an adapter calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.peers.applications import django_app, fastapi_app, flask_app, starlette_app
from benchmarks.peers.driver import LoopCallers, ThreadCallers
from benchmarks.peers.protections import MEMORY, ours, ours_in_django
from benchmarks.peers.questions import QUESTIONS, Keys, Sent
from idem_middleware import Engine, MemoryStore, Options, Request, Response
from idem_middleware.body import RequestBody

__all__ = ["FRAMEWORKS", "Pair"]

_PLAIN: dict[str, Callable[[], Any]] = {"starlette": starlette_app, "fastapi": fastapi_app, "flask": flask_app}
FRAMEWORKS = ("engine", *_PLAIN, "django wsgi", "django asgi")


class EngineCallers:
    """Calls a handler through the engine, or by itself."""

    def __init__(self, *, protected: bool) -> None:
        store = MemoryStore(max_entries=2_000_000)
        self._engine = Engine(store, Options(caller="shared")) if protected else None

    def one(self, sent: Sent) -> tuple[int, bytes]:
        """Carry out one."""
        headers = [("content-type", "application/json")]
        if sent.key is not None:
            headers.append(("idempotency-key", sent.key))
        body = RequestBody()
        body.write(sent.body)
        request = Request(method=sent.method, path=sent.path, headers=tuple(headers), body=body)
        answer = _handled(request) if self._engine is None else self._engine.run(request, _handled)
        return answer.status, answer.body

    def each(self, requests: list[Sent]) -> None:
        """Carry them out one after the other, with nothing around them."""
        for sent in requests:
            self.one(sent)


def _handled(_: object) -> Response:
    return Response(201, (("content-type", "application/json"),), b'{"id":"ch_1","status":"succeeded","amount":1200}')


def _applications(framework: str) -> tuple[Any, Any]:
    """Bare and protected."""
    make = _PLAIN.get(framework)
    if make is not None:
        return make(), ours(make(), MEMORY)
    on_a_loop = framework == "django asgi"
    protected = ours_in_django(MEMORY, on_a_loop=on_a_loop)  # first: it says what the settings are
    return django_app(on_a_loop=on_a_loop, middleware=[]), protected


Callers = LoopCallers | ThreadCallers | EngineCallers


@dataclass(slots=True)
class Pair:
    """The two, ready to be called."""

    bare: Callers
    protected: Callers

    @classmethod
    def of(cls, framework: str) -> Pair:
        """Both in this framework. Django has one set of settings in a process: one of its two, once."""
        if framework == "engine":
            return cls(EngineCallers(protected=False), EngineCallers(protected=True))
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


def _check(callers: Callers, sent: Sent) -> None:
    status, content = callers.one(sent)
    assert status == 201, (status, content)  # noqa: PLR2004
