"""What the middleware itself costs: one application bare and protected by a MemoryStore, in one interleaved run.

    python -m benchmarks.overhead [--requests N] [--rounds N]

CPU time of this process per request, without a server or a network; medians over the rounds, with their spread. The
order of the variants changes from round to round, so that a machine's moods hit all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from idem_middleware import MemoryStore
from idem_starlette import IdempotencyMiddleware

BODY = json.dumps({"amount": 1200, "currency": "EUR", "reference": "order-4711", "note": "x" * 120}).encode()
_numbers = count()


async def charge(request: Request) -> JSONResponse:
    """As little as an endpoint can do that reads its body."""
    await request.body()
    return JSONResponse({"id": "ch_1", "status": "succeeded", "amount": 1200, "currency": "EUR"}, 201)


def application(*, protected: bool) -> Starlette:
    """One route, for POST and GET."""
    app = Starlette(routes=[Route("/charges", charge, methods=["POST", "GET"])])
    if protected:
        app.add_middleware(IdempotencyMiddleware, store=MemoryStore(max_entries=1_000_000), caller="shared")
    return app


def request_scope(method: str, key: str | None) -> dict[str, Any]:
    """As a server makes it."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    if key is not None:
        headers.append((b"idempotency-key", key.encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": "/charges",
        "raw_path": b"/charges",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


async def call(app: Callable[..., Awaitable[None]], method: str, key: str | None) -> None:
    """One request, from its head to the end of its answer."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(_: dict[str, Any]) -> None:
        return None

    await app(request_scope(method, key), receive, send)


def fresh_keys() -> Iterator[str]:
    """A new key for each request."""
    while True:
        yield f'"8e03978e-40d5-43e8-bc93-{next(_numbers):012x}"'


def same_key() -> Iterator[str]:
    """One key for all: replays."""
    key = f'"8e03978e-40d5-43e8-bc93-{next(_numbers):012x}"'
    while True:
        yield key


def no_key() -> Iterator[None]:
    """Bare requests need none."""
    while True:
        yield None


async def measured(app: Starlette, method: str, keys: Iterator[str | None], requests: int) -> float:
    """CPU microseconds per request."""
    await call(app, method, next(keys))
    gc.collect()
    began = time.process_time_ns()
    for _ in range(requests):
        await call(app, method, next(keys))
    return (time.process_time_ns() - began) / requests / 1000


async def run(requests: int, rounds: int) -> dict[str, list[float]]:
    """All variants, interleaved."""
    bare, protected = application(protected=False), application(protected=True)
    variants: dict[str, Callable[[], Awaitable[float]]] = {
        "bare POST": lambda: measured(bare, "POST", no_key(), requests),
        "protected POST, new": lambda: measured(protected, "POST", fresh_keys(), requests),
        "protected POST, replay": lambda: measured(protected, "POST", same_key(), requests),
        "bare GET": lambda: measured(bare, "GET", no_key(), requests),
        "protected GET (uncovered)": lambda: measured(protected, "GET", no_key(), requests),
    }
    results: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        names = list(variants)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            results[name].append(await variants[name]())
    return results


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="per variant and round")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    results = asyncio.run(run(arguments.requests, arguments.rounds))
    print(f"CPython {platform.python_version()}, {platform.machine()}, {arguments.rounds} x {arguments.requests}")
    for name, values in results.items():
        base = results["bare GET" if "GET" in name else "bare POST"]
        ratios = [value / other for value, other in zip(values, base, strict=True)]
        print(
            f"{name:28} {statistics.median(values):8.1f} us CPU   x {statistics.median(ratios):.2f} of bare "
            f"({min(ratios):.2f} to {max(ratios):.2f})   {statistics.median(values) - statistics.median(base):+.1f} us"
        )


if __name__ == "__main__":
    main()
