"""`assert_idempotent`, on small WSGI applications through httpx: what it accepts, and how it explains the rest."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest

from idem_middleware import Event, EventKind
from idem_middleware.testing import ClientRequest, assert_idempotent, assert_idempotent_async
from idem_middleware.wsgi import IdempotencyMiddleware

ORDER = {"path": "/orders", "json": {"amount": 12}}
Handle = Callable[[dict[str, Any], int], tuple[str, list[tuple[str, str]], bytes]]


class Shop:
    """Counts its runs."""

    def __init__(self, handle: Handle | None = None) -> None:
        self._handle = handle or created
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.runs = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        with self._lock:
            number = next(self._numbers)
            self.runs = number
        status, headers, body = self._handle(environ, number)
        start_response(status, headers)
        return [body]


def created(environ: dict[str, Any], number: int) -> tuple[str, list[tuple[str, str]], bytes]:
    return (
        "201 Created",
        [("Content-Type", "application/json"), ("Location", f"/orders/{number}")],
        b'{"id": %d}' % number,
    )


def client(application: Any) -> httpx.Client:
    return httpx.Client(transport=httpx.WSGITransport(app=application), base_url="http://shop")


def protected(shop: Shop, **options: Any) -> httpx.Client:
    return client(IdempotencyMiddleware(shop, store="memory://", caller="shared", **options))


def explanation(sent_to: Any, request: Any = ORDER, **how: Any) -> str:
    with pytest.raises(AssertionError) as raised:
        assert_idempotent(sent_to, request, **how)
    return str(raised.value)


class TestWhatIsIdempotent:
    """Passes, and tells what came back."""

    def test_a_protected_view(self) -> None:
        """One run for each of the two keys."""
        shop = Shop()
        sent = assert_idempotent(protected(shop), ORDER, runs=lambda: shop.runs)
        assert (sent.first.status, sent.replay.body) == (201, b'{"id": 1}')
        assert len(sent.at_once) == 4
        assert shop.runs == 2

    def test_a_conflict_among_those_sent_at_once_is_fine(self) -> None:
        """409 in-progress is an answer; the work ran once."""
        refused = threading.Semaphore(0)

        def slow(environ: dict[str, Any], number: int) -> tuple[str, list[tuple[str, str]], bytes]:
            if number == 2:
                for _ in range(3):  # the others meet it while it runs
                    assert refused.acquire(timeout=30)
            return created(environ, number)

        def count(event: Event) -> None:
            if event.kind is EventKind.REFUSED:
                refused.release()

        sent = assert_idempotent(protected(Shop(slow), observers=[count]), ORDER)
        assert sorted(answer.status for answer in sent.at_once) == [201, 409, 409, 409]

    def test_a_dataclass_and_bytes_do_as_well(self) -> None:
        """With headers and a type of their own."""

        def echo(environ: dict[str, Any], number: int) -> tuple[str, list[tuple[str, str]], bytes]:
            return "200 OK", [("X-Kind", environ["CONTENT_TYPE"]), ("X-Tenant", environ["HTTP_X_TENANT"])], b""

        request = ClientRequest(
            method="PUT", path="/orders/1", body=b"<a/>", content_type="text/xml", headers={"X-Tenant": "seven"}
        )
        sent = assert_idempotent(protected(Shop(echo)), request)
        assert (sent.replay.values("x-kind"), sent.replay.values("X-Tenant")) == (["text/xml"], ["seven"])

    def test_another_header_and_mark(self) -> None:
        """As the service names them."""
        options = {"header": "X-Once", "replay_header": "X-Again"}
        assert_idempotent(protected(Shop(), **options), ORDER, header="X-Once", replay_header="X-Again")

    def test_an_asynchronous_client(self) -> None:
        """Sends by tasks."""
        shop = Shop()
        application = IdempotencyMiddleware(shop, store="memory://", caller="shared")

        async def run() -> None:
            transport = _Async(application)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as sender:
                await assert_idempotent_async(sender, ORDER, runs=lambda: shop.runs)

        asyncio.run(run())


class _Async(httpx.AsyncBaseTransport):
    def __init__(self, application: Any) -> None:
        self._plain = httpx.WSGITransport(app=application)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        response = await asyncio.to_thread(self._plain.handle_request, request)
        return httpx.Response(response.status_code, headers=response.headers, content=response.read())


class TestWhatIsNot:
    """Fails, and explains."""

    def test_a_view_without_protection(self) -> None:
        """Ran twice, and what differed."""
        shop = Shop()
        text = explanation(client(shop), runs=lambda: shop.runs)
        assert text.startswith("POST /orders is not idempotent:")
        assert "is the middleware around this view" in text
        assert "the second answer has another body" in text
        assert "has another location: ['/orders/2'] instead of ['/orders/1']" in text
        assert "it ran 2 times instead of once" in text

    def test_one_that_fails(self) -> None:
        """A 5xx runs again, by default."""
        text = explanation(protected(Shop(lambda environ, number: ("503 Away", [], b""))))
        assert "503, is not kept by default" in text

    def test_one_that_is_refused(self) -> None:
        """By our own rules, before it ran."""
        text = explanation(protected(Shop(), key_pattern="ord-[0-9]+"))
        assert "was refused before it ran: 400" in text

    def test_one_that_lets_two_at_once_through(self) -> None:
        """Replays alone are not enough: read, then write is a race."""
        answers: dict[str, Any] = {}
        racing = threading.Barrier(4)

        def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
            key = environ["HTTP_IDEMPOTENCY_KEY"]
            found = answers.get(key)
            if found is None:
                if answers:
                    racing.wait(30)
                found = answers[key] = [f"{len(answers)}".encode()]
                start_response("200 OK", [])
            else:
                start_response("200 OK", [("Idempotent-Replayed", "true")])
            return found

        assert "of 4 requests sent at once, 4 ran: one should" in explanation(client(application))

    def test_a_header_that_changes(self) -> None:
        """Is named; unless it may."""
        stamps = itertools.count()

        def stamped(application: Any) -> Any:
            def outer(environ: dict[str, Any], start_response: Callable[..., object]) -> Any:
                def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> object:
                    return start_response(status, [*headers, ("X-Stamp", str(next(stamps)))], *rest)

                return application(environ, start)

            return outer

        application = stamped(IdempotencyMiddleware(Shop(), store="memory://", caller="shared"))
        assert re.search(r"has another x-stamp: \['\d+'\] instead of", explanation(client(application)))
        assert_idempotent(client(application), ORDER, ignore_headers=["X-Stamp"])

    def test_a_client_that_is_none(self) -> None:
        """Names those that do."""
        with pytest.raises(TypeError, match="Django's or Flask's test client"):
            assert_idempotent(object(), ORDER)
        with pytest.raises(TypeError, match="await assert_idempotent_async"):
            assert_idempotent(httpx.AsyncClient(), ORDER)
