"""A first answer is what an unprotected view gives, and a replay is that answer again, on real servers."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import httpx
import pytest

from tests.probe.plan import deterministic_bytes
from tests.servers.client import MARK, Service, is_fresh, is_problem, is_replay, plan

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]

# Of `POST /probe/one?a=1` with the JSON {"order": 7}, in this version of the algorithm.
_PRINT = "014bd30d3337a85c69013d3cf91829e1fc620f57e50a29b55305391b63a7039470"
# Of one exchange, and made by the server: they differ between any two answers.
_SERVERS_OWN = {b"date", b"server", b"connection", b"keep-alive", b"transfer-encoding"}
_KIB = 1024
_MOST_KEPT_BYTES = 8 * _KIB * _KIB

BODIES: dict[str, dict[str, Any]] = {
    "empty": {"body": ""},
    "json": {"body": '{"amount": 1.0, "name": "Zoë"}'},
    "csv": {"body": "id;name\r\n1;Zoë\r\n", "content_type": "text/csv; header=present"},
    "Latin-1": {
        "body_b64": b64encode("Zürich".encode("latin-1")).decode(),
        "content_type": "text/plain; charset=latin-1",
    },
    "every byte": {"body_b64": b64encode(bytes(range(256))).decode()},
    "picture": {"body_b64": b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode(), "content_type": "image/png"},
    "no media type": {"body": "x", "content_type": ""},
}
STATUSES = [200, 202, 204, 205, 303, 404, 409]
HEADERS = [
    ["Location", "/orders/7"],
    ["ETag", '"v1"'],
    ["X-CamelCase", "kept As Sent"],
    ["Link", '</a>; rel="next"'],
    ["X-City", "Zürich"],
    ["Vary", "Accept"],
    ["Link", '</b>; rel="prev"'],
    ["X-Empty", ""],
    ["Cache-Control", "private, max-age=0"],
]


def headers(answer: httpx.Response, *but: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines as they came, in order, without the server's own and those named."""
    return [(name, value) for name, value in answer.headers.raw if name.lower() not in _SERVERS_OWN.union(but)]


def is_exactly(again: httpx.Response, first: httpx.Response) -> None:
    """Make sure that a replay is the first answer but for its mark, and is framed rightly."""
    assert again.status_code == first.status_code
    assert again.headers.get(MARK) == "true"
    assert again.content == first.content
    framing = (b"content-length", MARK.encode())
    assert headers(again, *framing) == headers(first, *framing)
    length = again.headers.get("content-length")
    assert length is None or int(length) == len(again.content)
    if first.status_code == 204:
        assert length == first.headers.get("content-length")  # Django gives one, where there should be none


@pytest.mark.parametrize(
    ("body", "chunks"),
    [*((body, 0) for body in BODIES), ("empty", 3), ("json", 3), ("every byte", 40)],
    ids=lambda value: value if isinstance(value, str) else f"{value}-pieces" if value else "whole",
)
def test_a_body_comes_again_byte_by_byte(single_service: Service, body: str, chunks: int) -> None:
    """Whole or streamed, of whatever bytes: nothing of it is taken for text, or for one message after the other.

    Sources: VibeTensor/attestix#128, ArcadeData/arcadedb#5174, wiremock/wiremock#690, snok/asgi-idempotency-header's
    own middleware.
    """
    planned = plan(chunks=chunks, **BODIES[body])
    bare = single_service.send(planned, route="exempt")
    first = single_service.send(planned)
    is_fresh(first)
    assert (headers(first), first.content) == (headers(bare), bare.content)
    for _ in range(2):
        is_exactly(single_service.send(planned), first)
    single_service.ran(2)


@pytest.mark.parametrize("status", STATUSES)
def test_a_final_status_comes_again_with_its_headers(single_service: Service, status: int) -> None:
    """In order, repeated ones too, in any letters, and none invented: a 201 stays a 201, and its Location stays.

    Sources: VSN2015/concerns_on_rails#47, fullstackhero/docs#240, ikyriak/IdempotentAPI#86,
    chuanghiduoc/nestjs-fastify-nx#127, paveg/hono-idempotency#178, ietf-wg-httpapi/idempotency#41,
    ikyriak/IdempotentAPI#37.
    """
    planned = plan(status=status, headers=HEADERS, body="x,y\r\n", content_type="text/csv")
    bare = single_service.send(planned, route="exempt")
    first = single_service.send(planned)
    is_fresh(first, status)
    assert (headers(first), first.content) == (headers(bare), bare.content)
    is_exactly(single_service.send(planned), first)
    single_service.ran(2)


@pytest.mark.parametrize("status", [304, 307, 401, 429, 503])
def test_a_passing_status_is_given_as_it_is_and_not_again(single_service: Service, status: int) -> None:
    """Nothing transient is pinned to the key: the very next retry runs.

    Sources: C-Address-Onboarding-Bridge/C-Address-Onboarding-Bridge-Backend#380, LabsCrypt/remitlend#1329,
    KanishJebaMathewM/Truxify#2869, useautumn/autumn#1851, torkiv-labs/Nexuq#361, Noveum/orbit#455.
    """
    planned = plan(status=status, headers=HEADERS)
    bare = single_service.send(planned, route="exempt")
    first = single_service.send(planned)
    is_fresh(first, status)
    assert headers(first, b"content-length") == headers(bare, b"content-length")
    last = single_service.send()
    is_fresh(last)
    is_exactly(single_service.send(), last)
    single_service.ran(3)


def test_what_belongs_to_the_first_exchange_alone_is_not_repeated(single_service: Service) -> None:
    """Its client has it all; a retry comes from another device, or at another time.

    Sources: granit-fx/granit-dotnet#1151, pathosDev/actor-ts#980, VSN2015/concerns_on_rails#47.
    """
    of_the_moment = {
        "Set-Cookie": "sid=1; HttpOnly",
        "WWW-Authenticate": "Basic",
        "X-Request-ID": "r1",
        "RateLimit-Remaining": "9",
        "X-RateLimit-Limit": "10",
        "Retry-After": "3",
        "Age": "7",
        "Via": "1.1 a",
        "Server-Timing": "db;dur=5",
        "traceparent": "00-1-1-00",
        "Access-Control-Allow-Origin": "https://a.example",
    }
    planned = plan(headers=[*map(list, of_the_moment.items()), *HEADERS], cookies={"b": "2"})
    first, again = single_service.send(planned), single_service.send(planned)
    is_replay(again, first)
    for name in of_the_moment:
        assert name in first.headers, name
        assert name not in again.headers, name
    kept = {name.lower() for name, _ in HEADERS}
    assert kept <= set(again.headers)


@pytest.mark.parametrize(
    ("size", "chunks"), [(_KIB, 0), (4 * _KIB, 7), (350 * _KIB + 1, 0), (2_000_000, 7), (_MOST_KEPT_BYTES, 7)]
)
def test_answers_up_to_the_limit_are_kept(single_service: Service, size: int, chunks: int) -> None:
    """Beside the claim where they don't fit into it; DynamoDB's own limit is 400 KB (codeforstartups/dynavec#211)."""
    planned = plan(size=size, chunks=chunks)
    first = single_service.send(planned)
    assert first.content == deterministic_bytes(size)
    is_exactly(single_service.send(planned), first)
    single_service.ran(1)


@pytest.mark.parametrize("chunks", [0, 9], ids=["whole", "streamed"])
def test_an_answer_over_the_limit_is_given_once(single_service: Service, chunks: int) -> None:
    """Its first client gets all of it; a retry is told where to look, and nothing runs again.

    Sources: gofiber/fiber#4018, gofiber/fiber#4287, granit-fx/granit-dotnet#1151.
    """
    size = _MOST_KEPT_BYTES + 1
    planned = plan(size=size, chunks=chunks, headers=[["Location", "/orders/7"]])
    first = single_service.send(planned)
    is_fresh(first)
    assert first.content == deterministic_bytes(size)
    for _ in range(2):
        again = single_service.send(planned)
        is_problem(again, "response-not-stored", 409)
        assert again.headers["location"] == "/orders/7"
    single_service.ran(1)


def test_events_flow_and_are_recorded_as_not_kept(single_service: Service) -> None:
    """Each when it is made; a retry neither waits for them nor makes them again.

    Sources: agentscope-ai/QwenPaw#6843, sysid/sse-starlette#84, laurentS/slowapi#225.
    """
    planned = plan(content_type="text/event-stream", body="data: 1\n\ndata: 2\n\n", chunks=2, chunk_delay=0.2)
    with single_service.streaming(planned) as pieces:
        assert [piece for piece in pieces if piece] == [b"data: 1\n\n", b"data: 2\n\n"]
    is_problem(single_service.send(planned), "response-not-stored", 409)
    single_service.ran(1)


def test_a_streamed_answer_flows_while_it_is_recorded(single_service: Service) -> None:
    """Its first piece need not wait for its last (django/django#16384)."""
    planned = plan(body="abcd", chunks=2, chunk_delay=0.2)
    with single_service.streaming(planned) as pieces:
        assert [piece for piece in pieces if piece] == [b"ab", b"cd"]
    assert single_service.send(planned).content == b"abcd"
    single_service.ran(1)


def test_a_stream_that_breaks_may_run_again(single_service: Service) -> None:
    """Its client saw that it was not whole, so the retry gets a whole one."""
    with pytest.raises(httpx.RemoteProtocolError):
        single_service.send(plan(body="abcd", chunks=4, fail_after_chunk=2))
    whole = single_service.send()
    is_fresh(whole)
    is_exactly(single_service.send(), whole)
    single_service.ran(2)


def test_a_session_is_opened_as_ever_and_not_given_to_another_client(single_service: Service) -> None:
    """The framework's own session, where its probe has one: its cookie is the first client's alone."""
    if single_service.probe.framework not in ("django-wsgi", "django-asgi", "flask"):
        pytest.skip("no session in this one's probe")
    planned = plan(session={"user": "ann"})
    first = single_service.send(planned)
    assert "set-cookie" in first.headers
    again = single_service.send(planned)
    is_replay(again, first)
    assert "set-cookie" not in again.headers


def test_the_record_is_the_same_in_every_framework(single_service: Service) -> None:
    """It is made of the request alone, so a view may move to another module, file or framework between two tries.

    Sources: aws-powertools/powertools-lambda-python#1330, aws-powertools/powertools-lambda-python#5897,
    aws-powertools/powertools-lambda-typescript#3515, aws-powertools/powertools-lambda-dotnet#703.
    """
    document = {"order": 7}
    single_service.send(name="one", body=json.dumps(document).encode(), query="?a=1")
    stands = single_service.record()
    assert stands is not None
    assert stands["fingerprint"].hex() == _PRINT
