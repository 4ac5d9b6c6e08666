"""All that is compared: a framework, what protects it, and where that keeps its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.peers.applications import django_app, flask_app, in_threads, starlette_app
from benchmarks.peers.protections import (
    MEMORY,
    boto3_as_it_comes,
    boto3_as_ours,
    by_hand,
    by_hand_on_a_loop,
    idemkit,
    our_table,
    our_transport,
    ours,
    ours_in_django,
    powertools,
    signed_post,
    signed_post_by_aiohttp,
)
from benchmarks.peers.questions import QUESTIONS

__all__ = ["VARIANTS", "Variant"]

_ALL = tuple(QUESTIONS)
_GUARDED = tuple(name for name in QUESTIONS if name != "uncovered")
_BY_HAND = ("new", "new, 100 KB")
"""It decides nothing: what it protects runs or fails."""
_IN_DJANGO_ASGI = tuple(name for name in QUESTIONS if name not in {"conflict", "replay, 100 KB"})
"""What idemkit can be asked there: it says that the client has gone once the body is read, and Django then gives up
whatever is still at work; and it keeps no answer that Django sends in pieces, as it does from 64 KB.
"""


@dataclass(frozen=True, slots=True)
class Variant:
    """One application."""

    framework: str
    protection: str
    make: Callable[[str], Any]
    """Makes it, given DynamoDB's URL."""
    questions: tuple[str, ...] = _ALL
    environment: str = "ours"
    """The virtual environment that it runs in."""

    @property
    def name(self) -> str:
        """As reports write it."""
        return f"{self.framework}, {self.protection}"

    @property
    def on_table(self) -> bool:
        """Whether it calls DynamoDB."""
        return not self.protection.endswith(("bare", "memory"))

    @property
    def on_a_loop(self) -> bool:
        """Whether it is an ASGI application."""
        return self.framework in {"starlette", "django asgi"}


Make = Callable[[str], Any]

_STORES: dict[str, Make] = {
    "ours, memory": lambda _: MEMORY,
    "ours, boto3": our_table,
    "ours, lean": partial(our_table, transport="lean"),
}
_BARE: dict[str, Callable[[], Any]] = {
    "starlette": starlette_app,
    "flask": flask_app,
    "django asgi": partial(django_app, on_a_loop=True, middleware=[]),
    "django wsgi": partial(django_app, on_a_loop=False, middleware=[]),
}


def _ours(framework: str, store: Make) -> Make:
    if framework.startswith("django"):
        return lambda url: ours_in_django(store(url), on_a_loop=framework == "django asgi")
    return lambda url: ours(_BARE[framework](), store(url))


def _idemkit(framework: str, *, on_table: bool) -> Make:
    wsgi = framework in {"flask", "django wsgi"}
    return lambda url: idemkit(_BARE[framework](), url if on_table else None, wsgi=wsgi)


def _in_each_framework() -> Iterator[Variant]:
    for framework, bare in _BARE.items():
        yield Variant(framework, "bare", lambda _, bare=bare: bare())  # type: ignore[misc]  # mypy sees no default
        for protection, store in _STORES.items():
            yield Variant(framework, protection, _ours(framework, store))
        asked = _IN_DJANGO_ASGI if framework == "django asgi" else _ALL
        yield Variant(framework, "idemkit, memory", _idemkit(framework, on_table=False), asked, "idemkit")
        yield Variant(framework, "idemkit, aioboto3", _idemkit(framework, on_table=True), asked, "idemkit")


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        *_in_each_framework(),
        Variant(
            "starlette",
            "ours, lean, local cache",
            lambda url: ours(starlette_app(), our_table(url, transport="lean"), local_cache_bytes=2**24),
        ),
        Variant(
            "starlette",
            "powertools, boto3",
            lambda url: starlette_app(in_threads(powertools(url))),
            _GUARDED,
            "powertools",
        ),
        Variant("flask", "powertools, boto3", lambda url: flask_app(powertools(url)), _GUARDED, "powertools"),
        Variant(
            "starlette",
            "by hand, boto3",
            lambda url: starlette_app(in_threads(by_hand(boto3_as_ours(url)))),
            _BY_HAND,
        ),
        Variant(
            "starlette",
            "by hand, aiohttp",
            lambda url: starlette_app(by_hand_on_a_loop(signed_post_by_aiohttp(url))),
            _BY_HAND,
        ),
        Variant(
            "starlette",
            "by hand, our transport",
            lambda url: starlette_app(by_hand_on_a_loop(our_transport(url))),
            _BY_HAND,
        ),
        Variant("flask", "by hand, boto3", lambda url: flask_app(by_hand(boto3_as_ours(url))), _BY_HAND),
        Variant(
            "flask", "by hand, boto3 as it comes", lambda url: flask_app(by_hand(boto3_as_it_comes(url))), _BY_HAND
        ),
        Variant("flask", "by hand, signed POST", lambda url: flask_app(by_hand(signed_post(url))), _BY_HAND),
    )
}
