"""Multipart bodies: the same parts under another boundary are the same."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_multipart.exceptions import FormParserError

from idem_middleware.canonical.multipart import multipart_digest

Part = tuple[list[tuple[bytes, bytes]], bytes]

FIELD: Part = ([(b"Content-Disposition", b'form-data; name="amount"')], b"12")
FILE: Part = (
    [(b"Content-Disposition", b'form-data; name="doc"; filename="a.bin"'), (b"Content-Type", b"application/pdf")],
    bytes(range(256)) * 20,
)


def body(parts: Iterable[Part], boundary: bytes, end: bytes = b"\r\n") -> bytes:
    """Write a multipart body."""
    written = b""
    for headers, content in parts:
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        written += b"--" + boundary + b"\r\n" + lines + b"\r\n" + content + b"\r\n"
    return written + b"--" + boundary + b"--" + end


def digest(parts: Iterable[Part], boundary: bytes = b"b") -> bytes | None:
    """Digest these parts, written under a boundary."""
    return multipart_digest([body(parts, boundary)], boundary)


def test_the_boundary_does_not_count() -> None:
    """Clients draw a new one for every try (chatvector-ai/chatvector-ai#520, buildinternet/uploads#835)."""
    boundaries = [b"----first7MA4YWxk", b"zzz-second", b"x" * 70, b"'()+_,-./:=? 0", b"-", b"--"]
    digests = {digest([FIELD, FILE], boundary) for boundary in boundaries}
    assert len(digests) == 1
    assert None not in digests


def test_the_spelling_of_the_frame_does_not_count() -> None:
    """Header names have no case, and the last line break may be missing."""
    shouted: Part = ([(name.upper(), value) for name, value in FILE[0]], FILE[1])
    assert digest([FILE]) == digest([shouted]) == multipart_digest([body([FILE], b"b", end=b"")], b"b")


DIFFERENT: dict[str, list[Part]] = {
    "as it was": [FIELD, FILE],
    "other order": [FILE, FIELD],
    "one byte": [FIELD, (FILE[0], FILE[1][:-1] + b"!")],
    "a line break more": [FIELD, (FILE[0], FILE[1] + b"\r\n")],
    "one byte less": [FIELD, (FILE[0], FILE[1][:-1])],
    "another field": [(FIELD[0], b"13"), FILE],
    "one part less": [FIELD],
    "one part more": [FIELD, FILE, ([(b"Content-Disposition", b'form-data; name="x"')], b"")],
    "a part twice": [FIELD, FIELD, FILE],
    "another file name": [FIELD, ([(FILE[0][0][0], FILE[0][0][1].replace(b"a.bin", b"b.bin")), FILE[0][1]], FILE[1])],
    "another media type": [FIELD, ([FILE[0][0], (b"Content-Type", b"image/png")], FILE[1])],
    "headers in other order": [FIELD, (FILE[0][::-1], FILE[1])],
    "a header less": [FIELD, (FILE[0][:1], FILE[1])],
    "a header as content": [FIELD, (FILE[0][:1], b"Content-Type: application/pdf\r\n\r\n" + FILE[1])],
    "name and value moved": [([(b"Content-Disposition", b'form-data; name="amoun"')], b"t12"), FILE],
    "a value in capitals": [([(b"Content-Disposition", b'form-data; name="AMOUNT"')], b"12"), FILE],
    "no header": [([], b"12"), FILE],
}


@pytest.mark.parametrize(("one", "other"), list(combinations(DIFFERENT, 2)))
def test_every_part_counts(one: str, other: str) -> None:
    """One byte, a header, a part or their order makes another request (asimons81/wp-chatgpt-publisher#14)."""
    digests = [digest(DIFFERENT[name]) for name in (one, other)]
    assert None not in digests
    assert digests[0] != digests[1]


WHOLE = body([FIELD, FILE], b"b")
AS_SENT = {
    "nothing": b"",
    "no part": b"--b--\r\n",
    "not multipart": b'{"a":1}',
    "cut off in the content": WHOLE[:-100],
    "cut off in the last boundary": WHOLE[:-3],
    "cut off in a header": WHOLE[:20],
    "a line break before": b"\r\n" + WHOLE,
    "a whole preamble": b"hello\r\n" + WHOLE,
    "a preamble after a line break": b"\r\nhello\r\n" + WHOLE,
    "padding after the first boundary": WHOLE.replace(b"--b\r\n", b"--b \r\n", 1),
    "padding after a boundary": WHOLE.replace(b"12\r\n--b\r\n", b"12\r\n--b \t\r\n"),
    "padding after the last boundary": WHOLE[:-2] + b" \r\n",
    "an epilogue": WHOLE + b"bye",
    "two line breaks after": WHOLE + b"\r\n",
    "a second body after": WHOLE + WHOLE,
    "the end twice": WHOLE + b"--b--\r\n",
    "another boundary": body([FIELD], b"c"),
    "a longer boundary": body([FIELD], b"bb"),
    "what looks like a boundary in a content": body([(FIELD[0], b"1\r\n--bx\r\n2")], b"b"),
    "what looks like the end in a header": b"--b\r\n--b--: x\r\nA: b\r\n\r\n1\r\n--b--\r\n",
    "bare line feeds": WHOLE.replace(b"\r\n", b"\n"),
    "a folded header": b"--b\r\nA: b\r\n c\r\n\r\n1\r\n--b--\r\n",
    "no colon": b"--b\r\nA\r\n\r\n1\r\n--b--\r\n",
    "an empty header name": b"--b\r\n: x\r\n\r\n1\r\n--b--\r\n",
    "a header with a bare CR": b"--b\r\nA: b\rc\r\n\r\n1\r\n--b--\r\n",
    "too many headers": body([([(b"A", b"1")] * 9, b"")], b"b"),
    "a huge header": body([([(b"A", b"1" * 9000)], b"")], b"b"),
    "a huge header name": body([([(b"A" * 9000, b"1")], b"")], b"b"),
    "too many parts": body([FIELD] * 2001, b"b"),
}


@pytest.mark.parametrize("size", [1, 7, 10**6])
@pytest.mark.parametrize("data", AS_SENT.values(), ids=AS_SENT)
def test_what_parsers_may_read_differently_is_compared_as_sent(data: bytes, size: int) -> None:
    """A broken, incomplete or excessive body has no digest, however it arrives."""
    assert multipart_digest([data[at : at + size] for at in range(0, len(data), size)], b"b") is None


@pytest.mark.parametrize("boundary", [b"", b"a\r\nb", b"b ", b"x" * 71, b"x" * 1000, b'"', b"\xff", b"a;b", b"b\n"])
def test_a_boundary_that_rfc_2046_forbids_is_compared_as_sent(boundary: bytes) -> None:
    """No parser has to make sense of it."""
    assert multipart_digest([body([FIELD], boundary)], boundary) is None


def test_limits_are_not_met_by_ordinary_forms() -> None:
    """As many fields and files as Starlette takes by default still have a digest."""
    assert digest([FIELD, FILE] * 1000) is not None
    assert digest([([(b"A", b"1" * 4000)] * 8, b"")]) is not None


def test_a_broken_body_leaves_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """What the parser has to say about it would show bytes of the body."""
    with caplog.at_level(logging.DEBUG):
        for data in AS_SENT.values():
            multipart_digest([data], b"b")
    assert not caplog.records


def test_the_digest_never_changes() -> None:
    """Fingerprints outlive deployments."""
    found = digest([FIELD, FILE])
    assert found is not None
    assert found.hex() == "2ffd1581fb38f2413acb55cadc764a42568f39ad5203f04a0bf95976eab43ba7"


PIECES = [b"\r", b"\n", b"-", b"--", b"b", b"\r\n", b"\r\n-", b"\r\n--", b"x", b"\0"]
CONTENTS = st.lists(st.sampled_from(PIECES)).map(b"".join)
NAMES = st.sampled_from([b"A", b"b", b"--x"])
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b"1", b"--b", b"", b"a:b"])), max_size=3)
PARTS = st.lists(st.tuples(HEADERS, CONTENTS), min_size=1, max_size=4)


@given(PARTS, st.data())
def test_chunks_do_not_matter(parts: list[Part], data: st.DataObject) -> None:
    """However the body arrives, byte by byte or at once, it has the same digest or none."""
    whole = body(parts, b"b")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    bytewise = [whole[at : at + 1] for at in range(len(whole))]
    assert multipart_digest(pieces, b"b") == multipart_digest([whole], b"b") == multipart_digest(bytewise, b"b")


@given(PARTS, PARTS)
def test_equal_digests_mean_equal_parts(one: list[Part], other: list[Part]) -> None:
    """No content imitates a header, a part or another split; and whatever is unambiguous has a digest."""
    digests = [digest(one, b"boundary"), digest(other, b"another-one")]
    assert None not in digests
    assert (digests[0] == digests[1]) is (lowered(one) == lowered(other))


def lowered(parts: list[Part]) -> list[Part]:
    """Show the parts as a reader sees them that does not look at the case of a header's name."""
    return [([(name.lower(), value) for name, value in headers], content) for headers, content in parts]


@given(st.binary(), st.binary(max_size=5))
def test_no_bytes_are_an_error(data: bytes, boundary: bytes) -> None:
    """Whatever a client sends has a digest or none."""
    multipart_digest([data], boundary)


def test_the_parser_s_errors_are_all_of_one_kind() -> None:
    """What `multipart_digest` catches is the root of what the parser raises."""
    assert issubclass(FormParserError, ValueError)
