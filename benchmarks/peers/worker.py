"""One application in one process, which carries out what it is told and says what that cost.

    python worker.py VARIANT [URL]

It runs in the environment of what it measures, which lacks everything else: it imports nothing of this repository but
in the variants that are ours. Orders come as lines of JSON on its input, costs go out on its output.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import resource
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

BODY = json.dumps({"amount": 1200, "currency": "EUR", "reference": "order-4711", "note": "x" * 120}).encode()
OTHER_BODY = BODY.replace(b"1200", b"1300")
ANSWER = {"id": "ch_1", "status": "succeeded", "amount": 1200, "currency": "EUR"}
TABLE = "keys"

Guard = Callable[[str, bytes], Any]
"""What protects a function and no application: it is called in the view, with the key and the body."""


# --- applications -----------------------------------------------------------------------------------------------------


def starlette_app(guard: Callable[[str, bytes], Awaitable[Any]] | None = None) -> Any:
    """One route, as little as an endpoint can do that reads its body."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def charges(request: Request) -> JSONResponse:
        body = await request.body()
        key = request.headers.get("idempotency-key")
        answer = ANSWER if guard is None or key is None else await guard(key, body)
        return JSONResponse(answer, 201)

    return Starlette(routes=[Route("/charges", charges, methods=["GET", "POST"])])


def flask_app(guard: Guard | None = None) -> Any:
    """The same."""
    from flask import Flask, jsonify, request

    app = Flask(__name__)

    @app.route("/charges", methods=["GET", "POST"])
    def charges() -> Any:
        body = request.get_data()
        key = request.headers.get("idempotency-key")
        answer = ANSWER if guard is None or key is None else guard(key, body)
        return jsonify(answer), 201

    return app


# --- what protects them -----------------------------------------------------------------------------------------------


def ours(app: Any, store: Any, **options: Any) -> Any:
    """Our adapter for either framework."""
    if hasattr(app, "wsgi_app"):
        import_module("idem_flask").Idempotency(app, store=store, caller="shared", **options)
    else:
        middleware = import_module("idem_starlette").IdempotencyMiddleware
        app.add_middleware(middleware, store=store, caller="shared", **options)
    return app


def our_table(url: str, **settings: Any) -> Any:
    """Our store."""
    return import_module("idem_middleware").DynamoDBStore(TABLE, endpoint=url, region="eu-central-1", **settings)


def idemkit(app: Any, url: str | None = None) -> Any:
    """The middleware of idemkit, with its defaults."""
    kit = import_module("idemkit")
    backend = kit.InMemoryBackend() if url is None else kit.DynamoBackend(endpoint_url=url, create_table=False)
    config = kit.HttpConfig(scope=lambda _: "shared")
    if hasattr(app, "wsgi_app"):
        app.wsgi_app = kit.WSGIIdempotencyMiddleware(app.wsgi_app, backend=backend, config=config)
    else:
        app.add_middleware(kit.IdempotencyMiddleware, backend=backend, config=config)
    return app


def powertools(url: str) -> Guard:
    """Powertools around the work of the view, with the key and the payload compared."""
    tools = import_module("aws_lambda_powertools.utilities.idempotency")
    boto3 = import_module("boto3")
    table = tools.DynamoDBPersistenceLayer(
        table_name=TABLE, boto3_client=boto3.client("dynamodb", endpoint_url=url, region_name="eu-central-1")
    )
    config = tools.IdempotencyConfig(event_key_jmespath="key", payload_validation_jmespath="body")

    @tools.idempotent_function(data_keyword_argument="data", persistence_store=table, config=config)  # type: ignore[untyped-decorator, unused-ignore]
    def work(data: dict[str, Any]) -> Any:  # noqa: ARG001
        return ANSWER

    def guard(key: str, body: bytes) -> Any:
        return work(data={"key": key, "body": json.loads(body)})

    return guard


def by_hand(url: str) -> Guard:
    """A PutItem and an UpdateItem with boto3 around the work: the least that somebody would write for it."""
    client = import_module("boto3").client("dynamodb", endpoint_url=url, region_name="eu-central-1")

    def guard(key: str, body: bytes) -> Any:
        client.put_item(TableName=TABLE, **claim(key, body))
        client.update_item(TableName=TABLE, **completion(key))
        return ANSWER

    return guard


def by_hand_on_a_loop(url: str) -> Callable[[str, bytes], Awaitable[Any]]:
    """The same over aiohttp, signed."""
    send: Any = our_table(url, transport="lean").to_async()._transport  # noqa: SLF001  # what is compared is below the store

    async def guard(key: str, body: bytes) -> Any:
        await send("put_item", {"TableName": TABLE, **claim(key, body)})
        await send("update_item", {"TableName": TABLE, **completion(key)})
        return ANSWER

    return guard


def claim(key: str, body: bytes) -> dict[str, Any]:
    """What a hand-made protection writes first."""
    now = time.time()
    item = {
        "pk": {"S": key},
        "status": {"S": "PENDING"},
        "owner": {"S": secrets.token_hex(16)},
        "fingerprint": {"S": str(hash(body))},
        "expires_at": {"N": str(now + 60)},
        "ttl": {"N": str(int(now) + 86400)},
    }
    return {"Item": item, "ConditionExpression": "attribute_not_exists(pk)"}


def completion(key: str) -> dict[str, Any]:
    """What it writes last."""
    return {
        "Key": {"pk": {"S": key}},
        "UpdateExpression": "SET #s = :s, response = :r",
        "ConditionExpression": "#s = :p",
        "ExpressionAttributeNames": {"#s": "status"},
        "ExpressionAttributeValues": {
            ":s": {"S": "COMPLETED"},
            ":p": {"S": "PENDING"},
            ":r": {"S": json.dumps(ANSWER)},
        },
    }


def in_threads(guard: Guard) -> Callable[[str, bytes], Awaitable[Any]]:
    """What blocks, beside an event loop."""

    async def guarded(key: str, body: bytes) -> Any:
        return await asyncio.to_thread(guard, key, body)

    return guarded


VARIANTS: dict[str, Callable[[str], Any]] = {
    "starlette, bare": lambda _: starlette_app(),
    "starlette, ours, memory": lambda _: ours(starlette_app(), "memory://?max_entries=2000000"),
    "starlette, ours, memory, local cache": lambda _: ours(
        starlette_app(), "memory://?max_entries=2000000", local_cache_bytes=2**24
    ),
    "starlette, ours, boto3": lambda url: ours(starlette_app(), our_table(url)),
    "starlette, ours, lean": lambda url: ours(starlette_app(), our_table(url, transport="lean")),
    "starlette, idemkit, memory": lambda _: idemkit(starlette_app()),
    "starlette, idemkit, aioboto3": lambda url: idemkit(starlette_app(), url),
    "starlette, powertools, boto3": lambda url: starlette_app(in_threads(powertools(url))),
    "starlette, by hand, boto3": lambda url: starlette_app(in_threads(by_hand(url))),
    "starlette, by hand, aiohttp": lambda url: starlette_app(by_hand_on_a_loop(url)),
    "flask, bare": lambda _: flask_app(),
    "flask, ours, memory": lambda _: ours(flask_app(), "memory://?max_entries=2000000"),
    "flask, ours, boto3": lambda url: ours(flask_app(), our_table(url)),
    "flask, ours, lean": lambda url: ours(flask_app(), our_table(url, transport="lean")),
    "flask, idemkit, memory": lambda _: idemkit(flask_app()),
    "flask, idemkit, aioboto3": lambda url: idemkit(flask_app(), url),
    "flask, powertools, boto3": lambda url: flask_app(powertools(url)),
    "flask, by hand, boto3": lambda url: flask_app(by_hand(url)),
}


# --- requests ---------------------------------------------------------------------------------------------------------


class Keys:
    """What to send for each question."""

    def __init__(self) -> None:
        self._numbers = count(secrets.randbits(40))
        self._used = self._new()

    def _new(self) -> str:
        return f"8e03978e-40d5-43e8-{next(self._numbers):016x}"

    def next(self, question: str) -> tuple[str, str | None, bytes]:
        """Method, key and body of the next request."""
        if question == "uncovered":
            return "GET", None, b""
        if question == "new":
            return "POST", self._new(), BODY
        return "POST", self._used, OTHER_BODY if question == "mismatch" else BODY


async def asgi(app: Any, method: str, key: str | None, body: bytes) -> int:
    """One request, from its head to the end of its answer, without a server; gives the status."""
    status = 0
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if key is not None:
        headers.append((b"idempotency-key", f'"{key}"'.encode()))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
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
    await app(scope, receive, send)
    return status


def wsgi(app: Any, method: str, key: str | None, body: bytes) -> int:
    """The same, for what blocks."""
    statuses: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], error: object = None) -> Callable[[bytes], object]:  # noqa: ARG001
        statuses.append(status)
        return statuses.append  # type: ignore[return-value]

    environ = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": "/charges",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    if key is not None:
        environ["HTTP_IDEMPOTENCY_KEY"] = f'"{key}"'
    answer = app(environ, start_response)
    b"".join(answer)
    close = getattr(answer, "close", None)
    if close is not None:
        close()
    return int(statuses[-1].split()[0])


class Driver:
    """Sends requests to one application, so many at a time where it lives on an event loop."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._keys = Keys()
        self._runner = asyncio.Runner()

    def carry_out(self, question: str, requests: int, in_flight: int) -> dict[str, float]:
        """What so many requests cost, each: microseconds of this process's CPU and of time; and the memory so far."""
        gc.collect()
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        if hasattr(self._app, "wsgi_app"):
            statuses = {wsgi(self._app, *self._keys.next(question)) for _ in range(requests)}
        else:
            statuses = self._runner.run(self._at_once(question, requests, in_flight))
        cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "cpu_us": cpu / requests / 1000,
            "wall_us": wall / requests / 1000,
            "peak_mb": peak / 1024,
            "status": max(statuses),
        }

    async def _at_once(self, question: str, requests: int, in_flight: int) -> set[int]:
        statuses = set()

        async def client() -> None:
            for _ in range(requests // in_flight):
                statuses.add(await asgi(self._app, *self._keys.next(question)))

        if in_flight == 1:
            await client()
        else:
            await asyncio.gather(*[client() for _ in range(in_flight)])
        return statuses


def main() -> None:
    """Carry out orders until there are no more."""
    logging.disable(logging.WARNING)
    name, url = sys.argv[1], (sys.argv[2:] or [""])[0]
    driver = Driver(VARIANTS[name](url))
    say = partial(print, flush=True)
    say(json.dumps({"ready": name}))
    for line in sys.stdin:
        say(json.dumps(driver.carry_out(**json.loads(line))))


if __name__ == "__main__":
    main()
