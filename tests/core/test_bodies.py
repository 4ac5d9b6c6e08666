"""Answers in the store and back, byte for byte."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware import Response
from idem_middleware.bodies import CHUNK_BYTES, header_bytes, pack, unpack
from idem_middleware.records import KeptResponse

INLINE = 1000
JSON = b'{"amount": 12, "currency": "EUR"}' * 100
NOISE = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(200))


def packed(body: bytes, *, inline_bytes: int | None = INLINE) -> tuple[KeptResponse, list[bytes]]:
    """One answer's stored form."""
    return pack(Response(200, (), body), (), inline_bytes=inline_bytes)


@settings(deadline=None)
@given(st.binary(max_size=4000), st.sampled_from([None, 0, 100, INLINE]))
def test_an_answer_comes_back_byte_for_byte(body: bytes, inline_bytes: int | None) -> None:
    """Whatever the bytes are (VibeTensor/attestix#128, wiremock#690)."""
    headers = (("Content-Type", "x"), ("X-Twice", "1"), ("X-Twice", "\xe9"))
    kept, chunks = pack(Response(201, headers, body), headers, inline_bytes=inline_bytes)
    assert unpack(kept, chunks) == Response(201, headers, body)


def test_a_small_answer_stays_in_the_record() -> None:
    """As it is: there is nothing to gain."""
    kept, chunks = packed(b"done")
    assert (kept.body, kept.encoding, kept.chunks, chunks) == (b"done", "identity", None, [])


def test_a_body_that_compresses_well_stays_in_the_record() -> None:
    """3.3 KB that are less than 1 KB."""
    kept, chunks = packed(JSON)
    assert (kept.encoding, chunks) == ("deflate", [])
    assert kept.body is not None
    assert len(kept.body) < INLINE < len(JSON)


def test_a_body_that_does_not_compress_is_stored_as_it_is() -> None:
    """Making it larger would help nobody."""
    kept, chunks = packed(NOISE)
    assert (kept.encoding, kept.body, b"".join(chunks)) == ("identity", None, NOISE)


@pytest.mark.parametrize(("size", "inside"), [(INLINE - 20, True), (INLINE - 19, False)])
def test_headers_count_for_what_fits_into_the_record(size: int, *, inside: bool) -> None:
    """16 bytes of text, and 4 for the pair."""
    headers = (("x" * 6, "y" * 10),)
    kept, chunks = pack(Response(200, headers, NOISE[:size]), headers, inline_bytes=INLINE)
    assert (kept.chunks is None) is (not chunks) is inside


def test_an_answer_with_large_headers_and_no_body_has_no_chunks() -> None:
    """Headers are always in the record."""
    headers = (("x", "y" * INLINE),)
    assert pack(Response(204, headers), headers, inline_bytes=INLINE) == (
        KeptResponse(status=204, headers=headers, body=b""),
        [],
    )


@pytest.mark.parametrize(("extra", "count"), [(0, 1), (1, 2)])
def test_chunks_are_as_large_as_an_item_allows(extra: int, count: int) -> None:
    """The last may be shorter."""
    body = (NOISE * 60)[: CHUNK_BYTES + extra]
    assert len(body) == CHUNK_BYTES + extra
    response = Response(200, (), body)
    kept, chunks = pack(response, (), inline_bytes=0)
    stored = b"".join(chunks)
    assert kept.chunks is not None
    assert kept.chunks.count == len(chunks) == -(-len(stored) // CHUNK_BYTES) <= count
    assert (kept.chunks.size_bytes, kept.chunks.sha256) == (len(stored), hashlib.sha256(stored).digest())
    assert unpack(kept, chunks) == response


def test_several_chunks_are_put_together_in_order() -> None:
    """700 KB of what does not compress."""
    body = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(23_000))
    kept, chunks = packed(body)
    assert [len(chunk) == CHUNK_BYTES for chunk in chunks] == [True, True, False]
    assert unpack(kept, chunks) == Response(200, (), body)
    assert unpack(kept, chunks[::-1]) is None


class TestDamage:
    """It is told, and never taken for an answer."""

    def test_a_missing_chunk(self) -> None:
        """None, as the store gives for it."""
        kept, _ = packed(NOISE)
        assert unpack(kept, [None]) is None
        assert unpack(kept, []) is None

    def test_a_chunk_too_many(self) -> None:
        """Even an empty one."""
        kept, chunks = packed(NOISE)
        assert unpack(kept, [*chunks, b""]) is None

    def test_a_changed_chunk(self) -> None:
        """The same length, another byte."""
        kept, chunks = packed(NOISE)
        assert unpack(kept, [b"?" + chunks[0][1:]]) is None

    def test_a_shorter_chunk(self) -> None:
        """Cut off at its end."""
        kept, chunks = packed(NOISE)
        assert unpack(kept, [chunks[0][:-1]]) is None

    @pytest.mark.parametrize("body", [b"", b"not zlib", zlib.compress(JSON)[:-1], zlib.compress(JSON) + b"more"])
    def test_a_body_that_does_not_decompress(self, body: bytes) -> None:
        """Cut off, followed by something, or nothing of the kind."""
        assert unpack(KeptResponse(status=200, headers=(), encoding="deflate", body=body)) is None

    def test_an_unknown_encoding(self) -> None:
        """Written by a newer version."""
        assert unpack(KeptResponse(status=200, headers=(), encoding="zstd", body=b"")) is None

    def test_no_body_and_no_chunks(self) -> None:
        """An interrupted write of somebody else's (square1-io/laravel-idempotency#5)."""
        assert unpack(KeptResponse(status=200, headers=())) is None

    @pytest.mark.parametrize(("most", "read"), [(len(JSON), True), (len(JSON) - 1, False)])
    def test_a_body_larger_than_allowed(self, most: int, *, read: bool) -> None:
        """A planted record can't fill the memory."""
        kept, _ = packed(JSON)
        assert (unpack(kept, max_bytes=most) is not None) is read


def test_a_damaged_hash_is_damage() -> None:
    """The record's own, for once."""
    kept, chunks = packed(NOISE)
    assert kept.chunks is not None
    assert unpack(replace(kept, chunks=replace(kept.chunks, sha256=b"")), chunks) is None


def test_header_bytes_counts_text_as_the_store_does() -> None:
    """In UTF-8, and a little for each pair."""
    assert header_bytes((("ab", "\xe9"), ("", ""))) == 2 + 2 + 4 + 4


def test_a_store_without_a_limit_gets_the_body_as_it_is() -> None:
    """In memory, compression costs time and saves nothing."""
    kept, chunks = packed(JSON, inline_bytes=None)
    assert (kept.body, kept.encoding, chunks) == (JSON, "identity", [])
