"""What a new request costs on DynamoDB: two writes by hand, by the store, and by the whole engine, over each client.

    python -m benchmarks.clients [--requests N] [--rounds N] [--delay-ms N] [--save]

The base is a PutItem and an UpdateItem by hand, with the same client that the store makes for itself and documents
that are made once: the least that boto3 can do. Everything else is shown as a ratio to it, in CPU time of this whole
process per request. The stub DynamoDB is another process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measuring import (
    Cost,
    add_run_options,
    call_by_call,
    hardware,
    interleaved,
    load,
    save,
    stub,
    table,
    today,
    versions,
)
from idem_middleware import AsyncEngine, DynamoDBStore, Engine, Options, Request, Response
from idem_middleware.body import RequestBody
from idem_middleware.records import KeptResponse, Record, Status
from idem_middleware.stores.base import AsyncStore, Store
from idem_middleware.stores.dynamodb.items import item_of
from idem_middleware.stores.dynamodb.lean.wire import encode
from idem_middleware.stores.dynamodb.requests import create_request, swap_request

BASE = "boto3, by hand"
BLOCKING = "A new request, two writes: one caller that blocks"
LOOPED = "A new request, two writes: an event loop"
BODY = json.dumps({"amount": 1200, "currency": "EUR", "reference": "order-4711", "note": "x" * 120}).encode()
HEADERS = (("content-type", "application/json"), ("content-length", str(len(BODY))))
ANSWER = Response(
    201,
    (("content-type", "application/json"), ("location", "/charges/ch_1")),
    b'{"id":"ch_1","status":"succeeded","amount":1200,"currency":"EUR"}',
)
IN_FLIGHT = (1, 16, 64)
_numbers = count()


def claim(now: float) -> Record:
    """What a new request writes first."""
    return Record(
        pk=secrets.token_hex(32),
        status=Status.PENDING,
        version=1,
        owner=secrets.token_hex(16),
        attempt=1,
        fingerprint=bytes(33),
        caller_digest=bytes(32),
        created_at=now,
        expires_at=now + 60,
        bound_until=now + 86400,
    )


def completed(record: Record, body: bytes) -> Record:
    """What it writes last."""
    kept = KeptResponse(status=201, headers=ANSWER.headers, body=body)
    return replace(record, version=2, status=Status.COMPLETED, expires_at=record.bound_until, response=kept)


def request() -> Request:
    """A new request, as an adapter makes it."""
    key = f'"8e03978e-40d5-43e8-bc93-{next(_numbers):012x}"'
    body = RequestBody()
    body.write(BODY)
    return Request(method="POST", path="/charges", headers=(*HEADERS, ("idempotency-key", key)), body=body)


# --- the variants -----------------------------------------------------------------------------------------------------


def repeated(once: Callable[[], object], requests: int) -> None:
    """One after the other."""
    for _ in range(requests):
        once()


def in_flight(runner: asyncio.Runner, width: int, once: Callable[[], Awaitable[object]], requests: int) -> None:
    """So many at a time."""

    async def worker() -> None:
        for _ in range(requests // width):
            await once()

    async def workers() -> None:
        await asyncio.gather(*[worker() for _ in range(width)])

    runner.run(workers())


def by_hand(send: Callable[..., object], first: Record, last: Record) -> Callable[[], None]:
    """Two writes, with documents that are made once."""
    create, swap = create_request("keys", first), swap_request("keys", first, last)

    def once() -> None:
        send("put_item", create)
        send("update_item", swap)

    return once


def by_hand_async(send: Callable[..., Awaitable[object]], first: Record, last: Record) -> Callable[[], Awaitable[None]]:
    """The same on an event loop."""
    create, swap = create_request("keys", first), swap_request("keys", first, last)

    async def once() -> None:
        await send("put_item", create)
        await send("update_item", swap)

    return once


def by_store(store: Store, first: Record, last: Record) -> Callable[[], None]:
    """A claim and its completion."""

    def once() -> None:
        store.create(first, store.clock.monotonic() + 3)
        store.swap(first, last, store.clock.monotonic() + 3)

    return once


def by_store_async(store: AsyncStore, first: Record, last: Record) -> Callable[[], Awaitable[None]]:
    """The same on an event loop."""

    async def once() -> None:
        await store.create(first, store.clock.monotonic() + 3)
        await store.swap(first, last, store.clock.monotonic() + 3)

    return once


def by_engine(engine: Engine) -> Callable[[], object]:
    """Everything: admission, fingerprint, claim, decision, lease, handler, completion."""
    return lambda: engine.run(request(), lambda _: ANSWER)


def by_engine_async(engine: AsyncEngine) -> Callable[[], Awaitable[object]]:
    """The same on an event loop."""

    async def handler(_: object) -> Response:
        return ANSWER

    return lambda: engine.run(request(), handler)


Blocking = dict[str, Callable[[], object]]
Looped = dict[str, Callable[[int], object]]


class Setting:
    """Stores on one endpoint, and the two records that a new request writes."""

    def __init__(self, url: str) -> None:
        self.boto3 = DynamoDBStore("keys", endpoint=url)
        self.lean = DynamoDBStore("keys", endpoint=url, transport="lean")
        self.nowhere = DynamoDBStore("keys", client=Nowhere())
        self.options = Options(caller="shared")
        self.first = claim(self.boto3.clock.now())
        self.last = completed(self.first, ANSWER.body)

    def by_hand(self, store: DynamoDBStore) -> Callable[[], object]:
        """Two writes over the store's own transport."""
        return by_hand(store._transport, self.first, self.last)  # noqa: SLF001  # what is compared is below the store


def new_requests(url: str) -> Blocking:
    """All that is compared for a request that was never seen, by one caller that blocks."""
    setting = Setting(url)
    variants: Blocking = {
        "boto3 as it comes, by hand": by_hand(plain_boto3(url), setting.first, setting.last),
        BASE: setting.by_hand(setting.boto3),
    }
    for name, store in {"boto3": setting.boto3, "lean": setting.lean, "no client": setting.nowhere}.items():
        variants |= {
            f"{name}, by hand": setting.by_hand(store),
            f"{name}, store": by_store(store, setting.first, setting.last),
            f"{name}, everything": by_engine(Engine(store, setting.options)),
        }
    return variants


def new_requests_on_a_loop(url: str, runner: asyncio.Runner) -> Looped:
    """The same on an event loop."""
    setting = Setting(url)
    native = setting.lean.to_async()
    send: Any = native._transport  # type: ignore[attr-defined]  # noqa: SLF001  # as above
    pair = by_hand_async(send, setting.first, setting.last)
    in_threads = by_engine_async(AsyncEngine(setting.boto3, setting.options))
    everything = by_engine_async(AsyncEngine(setting.lean, setting.options))
    variants: Looped = {BASE: partial(repeated, setting.by_hand(setting.boto3))}
    for width in IN_FLIGHT:
        loop = partial(in_flight, runner, width)
        variants |= {
            f"boto3 in threads, everything, {width} in flight": partial(loop, in_threads),
            f"native lean, by hand, {width} in flight": partial(loop, pair),
            f"native lean, store, {width} in flight": partial(
                loop, by_store_async(native, setting.first, setting.last)
            ),
            f"native lean, everything, {width} in flight": partial(loop, everything),
        }
    return variants


class Nowhere:
    """A client that answers by itself, for what is ours in the cost of a request."""

    def __getattr__(self, operation: str) -> Callable[..., object]:
        return self._answer

    def _answer(self, **_: object) -> object:
        headers = {"date": formatdate(usegmt=True)}
        return {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers, "RetryAttempts": 0}}


def replays(url: str, found: Record) -> Blocking:
    """The one call of a replay, which brings the record: through the store alone."""

    def once(store: Store) -> None:
        store.create(found, store.clock.monotonic() + 3)

    setting = Setting(url)
    return {"boto3": partial(once, setting.boto3), "lean": partial(once, setting.lean)}


def plain_boto3(url: str) -> Callable[..., object]:
    """A client with no settings at all."""
    import boto3  # noqa: PLC0415  # as the store, when it is needed

    client = boto3.client("dynamodb", endpoint_url=url)
    return lambda operation, document: getattr(client, operation)(**document)


# --- the run ----------------------------------------------------------------------------------------------------------


def report(requests: int, rounds: int, delay_ms: float, raw: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """Lines of Markdown; `raw` takes up the CPU µs of each round or call."""

    def told(title: str, costs: dict[str, list[Cost]], base: str) -> Iterator[str]:
        raw[title] = {name: [cost.cpu_us for cost in own] for name, own in costs.items()}
        yield from ("", f"## {title}", "")
        yield from table(costs, base)

    yield f"# Clients, {today()}"
    yield ""
    yield f"- {hardware()}; {load()}"
    yield f"- {versions('boto3', 'urllib3', 'aiohttp', 'orjson')}"
    yield f"- `python -m benchmarks.clients --requests {requests} --rounds {rounds} --delay-ms {delay_ms:g}`"
    delay = ("--delay-ms", str(delay_ms))
    with stub(*delay) as url:
        yield from told(BLOCKING, call_by_call(new_requests(url), requests * rounds), BASE)
    with stub(*delay) as url, asyncio.Runner() as runner:
        yield from told(LOOPED, interleaved(new_requests_on_a_loop(url, runner), requests, rounds), BASE)
    for size in (65, 3000):
        with tempfile.TemporaryDirectory() as folder:
            item = Path(folder) / "item.json"
            found = completed(claim(4e9), os.urandom(size))
            item.write_bytes(encode(item_of(found)))
            with stub(*delay, "--found", str(item)) as url:
                title = f"A replay of {size} bytes, one write that fails: the store alone"
                yield from told(title, call_by_call(replays(url, found), requests * rounds), "boto3")


def main() -> None:
    """Print a report, and keep it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_run_options(parser, requests=64, rounds=31)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="how long the stub takes for an answer")
    arguments = parser.parse_args()
    os.environ.update(
        AWS_ACCESS_KEY_ID="stub",
        AWS_SECRET_ACCESS_KEY="stub",  # noqa: S106  # opens nothing
        AWS_DEFAULT_REGION="eu-central-1",
    )
    lines = []
    raw: dict[str, dict[str, list[float]]] = {}
    for line in report(arguments.requests, arguments.rounds, arguments.delay_ms, raw):
        print(line, flush=True)
        lines.append(line)
    if arguments.save:
        deciles = {
            title: {name: statistics.quantiles(cpu, n=10, method="inclusive") for name, cpu in costs.items()}
            for title, costs in raw.items()
        }
        save(f"clients-{arguments.delay_ms:g}ms" if arguments.delay_ms else "clients", lines, deciles)


if __name__ == "__main__":
    main()
