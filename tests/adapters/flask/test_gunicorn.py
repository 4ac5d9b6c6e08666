"""The extension on gunicorn, with threads: what only a real server and a real connection do."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.http import RawConnection, RawResponse, chunked, request_head
from tests.support.polling import eventually
from tests.support.probes import RunningProbe, running_probe

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProbe]:
    with running_probe("flask", tmp_path_factory.mktemp("gunicorn") / "log") as probe:
        yield probe


@pytest.fixture
def name() -> str:
    """A path and a key of a test's own."""
    return uuid4().hex


def head(name: str, *lines: str, length: int | None = None, **plan: Any) -> bytes:
    return request_head(
        "POST", f"/probe/{name}", f"Idempotency-Key: {name}", f"X-Plan: {json.dumps(plan)}", *lines, length=length
    )


def send(probe: RunningProbe, *parts: bytes) -> RawResponse:
    with RawConnection(probe.port) as connection:
        for part in parts:
            connection.send(part)
        return connection.read_response()


def bodies(probe: RunningProbe, name: str) -> list[str]:
    return [record["body_sha256"] for record in probe.records(name)]


@pytest.mark.parametrize("read", ["body", "stream"])
@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_chunked_request_without_a_length_comes_whole_and_is_compared_whole(
    probe: RunningProbe, name: str, read: str, size: int
) -> None:
    pieces = [os.urandom(size), b"", os.urandom(10)]
    chunks_head = head(name, "Transfer-Encoding: chunked", status=201, read=read)
    assert send(probe, chunks_head, chunked(pieces)).status == 201
    assert bodies(probe, name) == [hashlib.sha256(b"".join(pieces)).hexdigest()]
    again = send(probe, chunks_head, chunked([b"".join(pieces)]))
    assert again.all("Idempotent-Replayed") == ["true"]
    assert send(probe, chunks_head, chunked([*pieces, b"more"])).status == 422
    assert probe.runs(name) == 1


@pytest.mark.parametrize("leave", [RawConnection.close, RawConnection.reset])
@pytest.mark.parametrize("is_chunked", [True, False])
def test_half_a_request_claims_nothing(
    probe: RunningProbe,
    name: str,
    leave: Callable[[RawConnection], None],
    is_chunked: bool,  # noqa: FBT001
) -> None:
    connection = RawConnection(probe.port)
    if is_chunked:
        connection.send(head(name, "Transfer-Encoding: chunked") + b"5\r\nhal")
    else:
        connection.send(head(name, length=100) + b"half")
    leave(connection)
    # The worker may still be reading: whatever it finds must leave the key to this one.
    assert send(probe, head(name, length=5, status=201) + b"whole").status == 201
    assert probe.runs(name) == 1


@pytest.mark.parametrize("leave", [RawConnection.close, RawConnection.reset])
def test_a_client_that_leaves_in_the_middle_of_its_answer_finds_it_whole_later(
    probe: RunningProbe, name: str, leave: Callable[[RawConnection], None]
) -> None:
    request = head(name, length=0, chunks=50, chunk_delay=0.01, size=1_000_000)
    connection = RawConnection(probe.port)
    connection.send(request)
    eventually(lambda: probe.runs(name), what="the view runs")
    leave(connection)

    def replay() -> RawResponse | None:
        answer = send(probe, request)
        return None if answer.status == 409 else answer

    answer = eventually(replay, what="the answer is recorded")
    assert (len(answer.body), answer.all("Idempotent-Replayed")) == (1_000_000, ["true"])
    assert probe.runs(name) == 1


def test_a_refused_key_answers_before_the_body_is_asked_for(probe: RunningProbe) -> None:
    """A client that expects 100-continue need not send a body that nobody wants."""
    with RawConnection(probe.port) as connection:
        connection.send(request_head("POST", "/probe/none", "Idempotency-Key: ,", length=10))
        assert connection.read_response().status == 400


def test_the_next_request_on_a_connection_is_not_read_as_a_body(probe: RunningProbe, name: str) -> None:
    request = head(name, length=4, status=201) + b"body"
    with RawConnection(probe.port) as connection:
        for replays in ([], ["true"]):
            connection.send(request)
            answer = connection.read_response()
            assert (answer.status, answer.all("Idempotent-Replayed")) == (201, replays)
