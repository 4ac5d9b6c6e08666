"""A request's body: small ones in memory, large ones in a file, every reader on its own."""

from __future__ import annotations

import hashlib
import io
import tempfile
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware import body as body_module
from idem_middleware.body import SPOOL_BYTES, BodyTooLarge, RequestBody

SMALL = bytes(range(256)) * 10
LARGE = bytes(range(251)) * (SPOOL_BYTES // 251 + 100)


def written(data: bytes, size: int = 40_000) -> RequestBody:
    """Write a body in chunks."""
    body = RequestBody()
    for start in range(0, len(data), size):
        body.write(data[start : start + size])
    return body


CASES: dict[str, tuple[bytes, Callable[[bytes], RequestBody]]] = {
    "empty": (b"", written),
    "one chunk": (SMALL, written),
    "many chunks": (SMALL, lambda data: written(data, 7)),
    "in a file": (LARGE, written),
    "large, from bytes": (LARGE, RequestBody.from_bytes),
}


@pytest.fixture(params=CASES.values(), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Iterator[tuple[RequestBody, bytes]]:
    """Give a body, and what is in it."""
    data, write = request.param
    with write(data) as body:
        yield body, data


def test_every_way_to_read_gives_what_was_written(case: tuple[RequestBody, bytes]) -> None:
    """Chunks, file and digest show the same bytes, as often as they are asked for."""
    body, data = case
    for _ in range(2):
        assert b"".join(body.chunks()) == b"".join(body.chunks(1000)) == body.open().read() == data
        assert body.sha256() == hashlib.sha256(data).digest()
    assert body.size == len(data)
    assert all(len(chunk) == 1000 for chunk in list(body.chunks(1000))[:-1])


def test_readers_do_not_move_each_other(case: tuple[RequestBody, bytes]) -> None:
    """The fingerprint, the application and a second reader each stand where they were."""
    body, data = case
    one, other, chunks = body.open(), body.open(), body.chunks(100)
    assert one.read(10) == data[:10]
    assert next(chunks, b"") == data[:100]
    assert other.read(20) == data[:20]
    assert one.read() == data[10:]
    assert b"".join(chunks) == data[100:]
    one.close()
    assert other.read() == data[20:]


def test_the_file_is_one_for_wsgi_and_more(case: tuple[RequestBody, bytes]) -> None:
    """Lines, seeking and telling work as on any binary file."""
    body, data = case
    file = body.open()
    assert list(file) == list(io.BytesIO(data))
    assert file.tell() == len(data)
    assert file.seek(5) == 5
    assert file.read(3) == data[5:8]
    assert file.seek(0, io.SEEK_END) == len(data)
    assert file.read() == b""
    assert file.seek(0, io.SEEK_CUR) == len(data)
    assert file.seekable()
    assert file.readable()
    assert not isinstance(file, io.BufferedReader) or not file.writable()
    with pytest.raises(ValueError, match="negative seek"):
        file.seek(-1)


def test_only_a_small_body_is_given_as_a_whole() -> None:
    """Exactly `SPOOL_BYTES` are in memory, one more byte is not, wherever it is held."""
    edge = bytes(SPOOL_BYTES)
    with written(edge) as at, written(edge + b"x") as over:
        assert at.in_memory() == edge
        assert over.in_memory() is None
    assert RequestBody.from_bytes(edge).in_memory() == edge
    assert RequestBody.from_bytes(edge + b"x").in_memory() is None
    assert RequestBody().in_memory() == b""


def test_no_file_is_made_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small body costs no file, and neither do bytes that are in memory anyway."""
    files = []

    def spy() -> object:
        files.append(tempfile.TemporaryFile())  # noqa: SIM115 - the body closes it
        return files[-1]

    monkeypatch.setattr(body_module, "TemporaryFile", spy)
    with written(bytes(SPOOL_BYTES)), RequestBody.from_bytes(LARGE):
        assert not files
    with written(LARGE):
        assert len(files) == 1
    assert files[0].closed


def test_one_chunk_is_kept_without_a_copy() -> None:
    """The common body of one chunk is not copied for any reader."""
    body = RequestBody()
    body.write(SMALL)
    assert body.in_memory() is SMALL


def test_a_changed_buffer_does_not_change_the_body() -> None:
    """A server may use its receive buffer again."""
    buffer = bytearray(b"abc")
    body = RequestBody()
    body.write(buffer)
    buffer[:] = b"xyz"
    assert body.in_memory() == b"abc"


def test_reading_may_come_between_two_writes() -> None:
    """What was read before does not change what comes after."""
    body = RequestBody()
    seen = []
    for chunk in (b"a", b"b", b"", b"c"):
        body.write(chunk)
        seen.append(body.in_memory())
    assert seen == [b"a", b"ab", b"ab", b"abc"]
    with written(LARGE) as large:
        assert large.open().read(3) == LARGE[:3]
        large.write(b"end")
        assert b"".join(large.chunks()) == LARGE + b"end"


@pytest.mark.parametrize("limit", [0, 10, SPOOL_BYTES + 10])
def test_a_body_over_its_limit_is_refused_before_it_is_held(limit: int) -> None:
    """Memory and disk never hold more than was allowed (paveg/hono-idempotency#79, josipmusa/idempotency4j#43)."""
    with RequestBody(max_bytes=limit) as body:
        body.write(bytes(limit))
        with pytest.raises(BodyTooLarge, match=str(limit)) as refusal:
            body.write(b"x")
        assert refusal.value.max_bytes == limit
        assert body.size == limit
        assert b"".join(body.chunks()) == bytes(limit)


def test_closing_twice_is_closing_once(case: tuple[RequestBody, bytes]) -> None:
    """After close, all but the size is gone, and says so for small bodies as for large ones."""
    body, data = case
    chunks, file = body.chunks(1), body.open()
    body.close()
    body.close()
    assert body.size == len(data)
    for use in (body.in_memory, body.sha256, body.open, lambda: body.write(b"x"), lambda: next(chunks)):
        with pytest.raises(ValueError, match="closed"):
            use()
    if isinstance(file, io.BufferedReader):
        with pytest.raises(ValueError, match="closed"):
            file.read()


def test_a_body_shows_its_size_only() -> None:
    """No log line holds a body by accident."""
    assert repr(RequestBody.from_bytes(b"secret")) == "<RequestBody of 6 bytes>"


@given(st.lists(st.binary(max_size=50)))
def test_chunks_do_not_matter(chunks: list[bytes]) -> None:
    """However a body arrives, it is the same body."""
    body = RequestBody()
    for chunk in chunks:
        body.write(chunk)
    whole = RequestBody.from_bytes(b"".join(chunks))
    assert body.in_memory() == whole.in_memory() == b"".join(chunks)
    assert body.sha256() == whole.sha256()
    assert body.size == whole.size
