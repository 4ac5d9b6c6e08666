"""Handlers get their requests as they were sent, through real servers: as the view beside them that nobody protects."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.fuzz.wire import CATALOGUE, Wild
from tests.probe.plan import deterministic_bytes
from tests.servers.client import A, Service, is_fresh, is_problem, is_replay, plan
from tests.support.http import RawConnection, RawResponse, chunked, request_head
from tests.support.polling import eventually

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]

# More than is kept in memory (1 MiB), more than one piece of anything, and less than Django lets a view read at once.
LARGE = deterministic_bytes(2 * 1024 * 1024)
# Of a form that makes no sense: large ones are for the parsers alone (tests/fuzz).
_MOST_BYTES = 10_000
# Django asks for Content-Length under WSGI, and takes a body without one for none.
NEEDS_LENGTH = ("django-wsgi", "drf")


def head(
    service: Service,
    *lines: str,
    route: str = "probe",
    length: int | None = None,
    key: str | None = None,
    **planned: object,
) -> bytes:
    """The head of a POST whose handler shall do this."""
    own = [f'Idempotency-Key: "{key or service.key}"', f"X-Plan: {json.dumps({'status': 201, **planned})}"]
    return request_head("POST", f"/{route}/{service.name}", *own, *lines, length=length)


def sent(service: Service, *parts: bytes, pause_seconds: float = 0) -> RawResponse:
    """Send these bytes, with pauses, and give the answer."""
    with RawConnection(service.probe.port) as connection:
        for number, part in enumerate(parts):
            if number:
                time.sleep(pause_seconds)  # what is tested is a client that takes its time
            connection.send(part)
        return connection.read_response()


def seen(service: Service) -> list[str]:
    """The digests of the bodies that the handler saw."""
    return [record["body_sha256"] for record in service.probe.records(service.name)]


def _is_form(wild: Wild) -> bool:
    kind = dict(wild.headers).get("Content-Type", b"")
    return kind.isascii() and kind.startswith((b"multipart/form-data", b"application/x-www-form-urlencoded"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- every way of reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "body"),
    [("body", b""), ("body", A), ("body", LARGE), ("stream", A), ("stream", LARGE), ("none", LARGE)],
    ids=["empty", "small", "large", "small stream", "large stream", "unread"],
)
def test_a_body_is_read_as_without_protection(single_service: Service, read: str, body: bytes) -> None:
    """At once, as a stream, or not at all; from memory or from a file (Kludex/starlette#495).

    Sources: Kludex/starlette#847, Kludex/starlette#2555, encode/django-rest-framework#2774, IBM/mcp-context-forge#3313,
    encode/django-rest-framework#7642.
    """
    service, planned = single_service, plan(echo=True, read=read)
    bare = service.send(planned, body=body, route="exempt", query="?b=2&a=%2F").json()
    first = service.send(planned, body=body, query="?b=2&a=%2F")
    is_fresh(first)
    differ = {"path": f"/probe/{service.name}", "run": 2, "attempt": 1}
    assert first.json() == {**bare, **differ}
    assert first.json()["body_sha256"] == sha256(b"" if read == "none" else body)
    is_replay(service.send(planned, body=body, query="?a=%2f&b=2"), first)


@pytest.mark.parametrize("size", [100, len(LARGE)], ids=["small", "large"])
def test_a_form_with_files_is_read_as_without_protection(single_service: Service, size: int) -> None:
    """By the framework's own parser, with its own upload handlers; a retry draws a new boundary."""
    service, planned = single_service, plan(echo=True, read="form")
    content = LARGE[:size]

    def form(boundary: str) -> dict[str, object]:
        fields = [("amount", b"12"), ("tags", b"a"), ("tags", b"\xc3\xa4")]
        parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n'.encode() + v for n, v in fields]
        file = f'--{boundary}\r\nContent-Disposition: form-data; name="doc"; filename="a.bin"\r\n'
        parts += [f"{file}Content-Type: application/pdf\r\n\r\n".encode() + content, f"--{boundary}--\r\n".encode()]
        return {
            "body": b"\r\n".join(parts),
            "headers": {"Content-Type": f"multipart/form-data; boundary={boundary}"},
        }

    bare = service.send(planned, route="exempt", **form("x")).json()
    first = service.send(planned, **form("y"))
    is_fresh(first)
    assert (first.json()["form"], first.json()["files"]) == (bare["form"], bare["files"])
    assert first.json()["form"] == {"amount": "12", "tags": ["a", "ä"]}
    assert first.json()["files"] == {"doc": ["a.bin", size, sha256(content)]}
    is_replay(service.send(planned, **form("z")), first)


def test_an_urlencoded_form_is_read_as_without_protection(single_service: Service) -> None:
    """Its fields decoded, as the framework gives them."""
    planned, form = plan(echo=True, read="form"), b"note=a+b&city=Z%C3%BCrich&tag=1&tag=2"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    bare = single_service.send(planned, body=form, headers=headers, route="exempt").json()
    first = single_service.send(planned, body=form, headers=headers)
    assert first.json()["form"] == bare["form"] == {"note": "a b", "city": "Zürich", "tag": ["1", "2"]}
    is_replay(single_service.send(planned, body=form, headers=headers), first)


def test_a_form_that_makes_no_sense_is_answered_as_without_protection(single_service: Service) -> None:
    """By the framework, if its parser has something against it; never by a failure of ours."""
    service, planned = single_service, plan(echo=True, read="form")
    forms = [wild for wild in CATALOGUE if 0 < len(wild.body) < _MOST_BYTES and _is_form(wild)]
    assert len(forms) > 10
    for number, wild in enumerate(forms):
        request: dict[str, Any] = {
            "body": wild.body,
            "headers": {"Content-Type": dict(wild.headers)["Content-Type"].decode("latin-1")},
            "key": f'"{service.key} {number}"',
        }
        bare = service.send(planned, route="exempt", **request)
        first = service.send(planned, **request)
        assert first.status_code == bare.status_code, wild
        if first.status_code == 201:
            assert (first.json()["form"], first.json()["files"]) == (bare.json()["form"], bare.json()["files"]), wild
            is_replay(service.send(planned, **request), first)


# --- the connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "pieces"),
    [("body", [A[:5], A[5:]]), ("stream", [LARGE[:9], LARGE[9:]])],
    ids=["small", "large"],
)
def test_a_chunked_request_without_a_length_comes_whole(
    single_service: Service, read: str, pieces: Sequence[bytes]
) -> None:
    """On both servers, and is compared whole; how it is cut makes no difference."""
    service, whole = single_service, b"".join(pieces)
    if service.probe.framework in NEEDS_LENGTH:
        pytest.skip("Django reads no body without a length under WSGI")
    chunks_head = head(service, "Transfer-Encoding: chunked", "Content-Type: application/json", read=read)
    assert sent(service, chunks_head, chunked(pieces)).status == 201
    again = sent(service, chunks_head, chunked([whole[:3], whole[3:8], whole[8:]]))
    assert (again.status, again.all("Idempotent-Replayed")) == (201, ["true"])
    other = sent(service, chunks_head, chunked([*pieces[:-1], pieces[-1][:-1] + b"!"]))
    assert other.status == 422
    assert seen(service) == [sha256(whole)]


@pytest.mark.parametrize("route", ["probe", "exempt"])
def test_django_under_wsgi_takes_a_body_without_a_length_for_none(single_service: Service, route: str) -> None:
    """With us as without: a view is shown nothing that it would not see otherwise."""
    service = single_service
    if service.probe.framework not in NEEDS_LENGTH:
        pytest.skip("this one reads what the server gives")
    chunks_head = head(service, "Transfer-Encoding: chunked", route=route)
    assert sent(service, chunks_head, chunked([A])).status == 201
    assert seen(service) == [sha256(b"")]


def test_a_client_that_sends_slowly_is_waited_for(single_service: Service) -> None:
    """Piece by piece, with pauses: nothing is claimed before the last one, and the handler gets all of them."""
    service = single_service
    pieces = [A[start : start + 8] for start in range(0, len(A), 8)]
    answer = sent(service, head(service, length=len(A)), *pieces, pause_seconds=0.03)
    assert (answer.status, seen(service)) == (201, [sha256(A)])


@pytest.mark.parametrize(("framing", "ending"), [("length", "close"), ("length", "reset"), ("chunks", "close")])
def test_half_a_request_claims_nothing(single_service: Service, framing: str, ending: str) -> None:
    """Its client left while it was sending; the whole request comes later, and runs."""
    service = single_service
    if framing == "chunks" and service.probe.framework in NEEDS_LENGTH:
        pytest.skip("Django reads no body without a length under WSGI")
    with RawConnection(service.probe.port) as connection:
        if framing == "length":
            connection.send(head(service, length=len(A)) + A[:7])
        else:
            connection.send(head(service, "Transfer-Encoding: chunked") + b"7\r\n" + A[:7] + b"\r\n")
        getattr(connection, ending)()
    is_fresh(service.send())
    service.ran(1)


def test_a_client_that_asks_before_it_uploads_is_told_to_go_on(single_service: Service) -> None:
    """`Expect: 100-continue`: whoever reads the body asks for it, and that is done for the comparison."""
    service = single_service
    with RawConnection(service.probe.port) as connection:
        connection.send(head(service, "Expect: 100-continue", length=len(A)))
        assert connection.read_interim() == 100
        connection.send(A)
        assert connection.read_response().status == 201
    assert seen(service) == [sha256(A)]


def test_a_client_that_asks_before_it_uploads_is_refused_for_its_key(single_service: Service) -> None:
    """By the head alone: the body of a request that is refused anyway is never asked for."""
    service = single_service
    with RawConnection(service.probe.port) as connection:
        connection.send(head(service, "Expect: 100-continue", length=len(LARGE), key=" "))
        answer = connection.read_response()
    assert answer.status == 400
    assert answer.all("Content-Type") == ["application/problem+json"]
    service.ran(0)


def test_requests_in_one_pipeline_are_answered_in_turn(single_service: Service) -> None:
    """A client sends the next ones before it has the first answer: none is read as another's body."""
    service = single_service
    first, other = head(service, length=len(A)) + A, head(service, length=2, key="other") + b"{}"
    with RawConnection(service.probe.port) as connection:
        connection.send(first + first + other)
        answers = connection.read_responses(3)
    assert [answer.status for answer in answers] == [201, 201, 201]
    assert [answer.all("Idempotent-Replayed") for answer in answers] == [[], ["true"], []]
    assert answers[1].body == answers[0].body
    assert seen(service) == [sha256(A), sha256(b"{}")]


# --- what is not covered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "route"), [("GET", "probe"), ("POST", "exempt")])
def test_a_stream_of_an_uncovered_request_stays_incremental(single_service: Service, method: str, route: str) -> None:
    """Server-sent events, and downloads, come piece by piece as they are made (sysid/sse-starlette#84)."""
    planned = plan(content_type="text/event-stream", body="data: 1\n\ndata: 2\n\n", chunks=2, chunk_delay=0.2)
    with single_service.streaming(planned, method=method, route=route, body=b"") as pieces:
        assert [piece for piece in pieces if piece] == [b"data: 1\n\n", b"data: 2\n\n"]
    single_service.ran(1)
    assert single_service.operations == []


def test_without_a_key_where_none_is_needed_nothing_is_done(single_service: Service) -> None:
    """No record, no read, no write: the hash of no key was once a key that all shared.

    Sources: aws-powertools/powertools-lambda-python#2465, aws-powertools/powertools-lambda-typescript#1501,
    aws-powertools/powertools-lambda-java#1200.
    """
    before = single_service.table.items()
    for sends in (A, A, b"", LARGE):
        is_fresh(single_service.send(body=sends, route="optional", key=None))
    single_service.ran(4)
    assert single_service.table.items() == before


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_a_client_that_leaves_in_the_middle_of_its_answer_makes_nothing_run_again(single_service: Service) -> None:
    """It finds its answer whole, or is told that there is none to repeat; never a part of it (caura-ai/caura#1629)."""
    service, body = single_service, deterministic_bytes(100_000)
    planned: dict[str, Any] = {"size": len(body), "chunks": 4, "chunk_delay": 0.1}
    with RawConnection(service.probe.port) as connection:
        connection.send(head(service, length=0, **planned))
        connection.read_until(body[:1000])
        connection.reset()

    def retried() -> RawResponse | None:
        answer = sent(service, head(service, length=0, **planned))
        in_progress = answer.status == 409 and b"in-progress" in answer.body
        return None if in_progress else answer

    answer = eventually(retried, what="the end of the first run")
    assert answer.all("Idempotent-Replayed") == ["true"]
    assert (answer.status, answer.body) == (201, body)
    service.ran(1)


def test_a_body_over_the_limit_of_no_one_is_taken(single_service: Service) -> None:
    """By default there is no limit but the framework's own: eight megabytes, with and without a declared length."""
    service, body = single_service, deterministic_bytes(8 * 1024 * 1024)
    lines = ("Content-Type: application/octet-stream",)
    assert sent(service, head(service, *lines, length=len(body), read="stream"), body).status == 201
    if service.probe.framework not in NEEDS_LENGTH:
        chunks_head = head(service, *lines, "Transfer-Encoding: chunked", read="stream")
        assert sent(service, chunks_head, chunked([body])).all("Idempotent-Replayed") == ["true"]
    is_problem(service.send(body=body[:-1], headers={"Content-Type": "application/octet-stream"}), "key-reused", 422)
    assert seen(service) == [sha256(body)]
