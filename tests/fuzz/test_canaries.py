"""What a request says in confidence is found nowhere but where it belongs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from idem_middleware import Engine, Event, MemoryStore, Options
from idem_middleware.body import RequestBody
from idem_middleware.ciphers import AesGcm
from idem_middleware.messages import Request, Response
from idem_middleware.stores.dynamodb.items import item_of

KEY, TOKEN, API_KEY, BODY, COOKIE = "canaryKey", "canaryToken", "canaryApiKey", "canaryBody", "canaryCookie"
SECRETS = (KEY, TOKEN, API_KEY, BODY, COOKIE)
DOCUMENT = f'{{"detail": {{"orderId": "{KEY}", "card": "{BODY}"}}}}'.encode()
ACCOUNTS: dict[str, str] = {}


def _fails_on_the_token(native: Request) -> str:
    return ACCOUNTS[native.header("authorization") or ""]  # as a look-up of an unknown token does


def _fails_on_the_body(request: Request) -> object:
    raise ValueError(f"no card number: {request.json()}")


def _fails_on_the_answer(response: Response) -> bool:
    raise ValueError(f"no answer to keep: {response.body!r} {response.headers!r}")


class _FailsToSeal:
    """A cipher that tells in its error what it was to seal."""

    overhead_bytes = 0
    reads_plain = True

    def is_ready(self, sealed: bytes | None) -> bool:
        return True

    def prepare(self, sealed: bytes | None) -> None:
        """Nothing to prepare."""

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        raise ValueError(f"can't seal {plain!r} with {KEY}")

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        raise ValueError(f"can't open {sealed!r} with {KEY}")


def _fails_on_the_event(event: Event) -> None:
    raise RuntimeError("the observer is broken")


NOISY: dict[str, dict[str, Any]] = {
    "plain": {},
    "caller": {"caller": _fails_on_the_token},
    "payload": {"payload": _fails_on_the_body},
    "path": {"payload": "sum(detail.card)"},
    "key": {"key": "sum(detail.card)"},
    "key-function": {"key": _fails_on_the_body},
    "body-key": {"key": "detail.orderId"},
    "store-if": {"store_if": _fails_on_the_answer},
    "before-store": {"before_store": _fails_on_the_answer},
    "cipher": {"cipher": _FailsToSeal()},
    "observers": {"observers": [_fails_on_the_event]},
    "pattern": {"key_pattern": "uuid"},
    "strict": {"strict_key": True},
    "docs": {"docs_url": "https://docs.example/problems#"},
}


def _request(key: str) -> Request:
    headers = (
        ("idempotency-key", key),
        ("authorization", f"Bearer {TOKEN}"),
        ("x-api-key", API_KEY),
        ("cookie", COOKIE),
        ("content-type", "application/json"),
    )
    request = Request(method="POST", path="/p", headers=headers, body=RequestBody.from_bytes(DOCUMENT))
    return Request(**{name: getattr(request, name) for name in ("method", "path", "headers", "body")}, native=request)


def _answers(lease: object) -> Response:
    return Response(201, (("Set-Cookie", COOKIE), ("X-Request-Id", TOKEN)), b"created")


def _breaks_down(lease: object) -> Response:
    return Response(500, (), BODY.encode())


def _raises(lease: object) -> Response:
    raise RuntimeError("the handler's own")


HANDLERS: tuple[Callable[[object], Response], ...] = (_answers, _breaks_down, _raises)


@pytest.mark.parametrize("name", NOISY)
def test_nothing_confidential_is_logged_or_told_or_kept(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Logs down to DEBUG with their tracebacks, events, refusals, and all of the table but the answers."""
    caplog.set_level(logging.DEBUG)
    events: list[Event] = []
    store = MemoryStore()
    options = Options(**{"observers": [events.append], **NOISY[name]})
    engine = Engine(store, options)
    told: list[object] = []
    for key in (KEY, f'"{KEY}"', f"{KEY}\xe9", KEY * 40, f'"{KEY}', ""):
        for handler in HANDLERS:
            for _ in range(2):
                try:
                    answer = engine.run(_request(key), handler)
                except RuntimeError:
                    continue
                if handler is not _breaks_down:
                    told.append([pair for pair in answer.headers if pair not in _answers(None).headers])
                    told.append(answer.body)
    kept = [item_of(record) for record in store._records.values()]
    handler_ = logging.Formatter("%(name)s %(message)s")
    logged = [handler_.format(record) + repr(record.__dict__) for record in caplog.records]
    everything = {"log": repr(logged), "events": repr(events), "answers": repr(told), "table": repr(kept)}
    found = {(place, secret) for place, text in everything.items() for secret in SECRETS if secret in text}
    assert not found


@pytest.mark.parametrize("name", ["plain", "caller", "store-if"])
def test_nothing_confidential_is_logged_on_an_event_loop(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The same for the engine's twin."""
    caplog.set_level(logging.DEBUG)
    engine = Engine(MemoryStore(), Options(**NOISY[name])).asynchronous

    async def handler(lease: object) -> Response:
        return _answers(lease)

    for _ in range(2):
        asyncio.run(engine.run(_request(KEY), handler))
    logged = repr([logging.Formatter("%(message)s").format(record) for record in caplog.records])
    assert not [secret for secret in SECRETS if secret in logged]


def test_under_a_cipher_the_table_holds_nothing_of_the_answer_either() -> None:
    """Not its status line, its headers or its body; in memory or on DynamoDB."""
    store = MemoryStore()
    engine = Engine(store, Options(caller="shared", cipher=AesGcm({"a": b"k" * 32})))
    answer = Response(201, (("X-Card", BODY), ("Location", f"/{KEY}")), BODY.encode())
    assert engine.run(_request(KEY), lambda lease: answer) == answer
    assert dict(engine.run(_request(KEY), lambda lease: answer).headers)["X-Card"] == BODY
    kept = repr([(record, item_of(record)) for record in store._records.values()])
    assert not [secret for secret in SECRETS if secret in kept]
