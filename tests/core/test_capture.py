"""What of a streamed answer may be seen, what is kept, and what it is settled with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware import Options, Response
from idem_middleware.capture import Capture

LIMIT = 1000


def capture_of(status: int = 200, *, length: int | str | None = None, **headers: str) -> Capture:
    """An answer that begins."""
    pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    if length is not None:
        pairs = (*pairs, ("Content-Length", str(length)))
    return Capture(status, pairs, LIMIT)


class TestWhatMayBeSeen:
    """Before the answer is recorded."""

    def test_is_everything_where_no_length_is_declared(self) -> None:
        capture = capture_of()
        assert [capture.passing(b"a"), capture.passing(b""), capture.passing(b"b")] == [b"a", b"", b"b"]
        assert capture.held_back() == b""

    @settings(deadline=None)
    @given(pieces=st.lists(st.binary(max_size=20)).filter(any))
    def test_is_all_but_the_last_byte_where_a_length_is_declared(self, pieces: list[bytes]) -> None:
        whole = b"".join(pieces)
        capture = capture_of(length=len(whole))
        assert b"".join(map(capture.passing, pieces)) == whole[:-1]
        assert capture.held_back() == whole[-1:]
        assert capture.held_back() == b""

    @settings(deadline=None)
    @given(pieces=st.lists(st.binary(max_size=20)), declared=st.integers(0, 100))
    def test_never_completes_the_answer_and_loses_nothing(self, pieces: list[bytes], declared: int) -> None:
        capture = capture_of(length=declared)
        visible = b"".join(map(capture.passing, pieces))
        assert len(visible) < max(1, declared)
        assert visible + capture.held_back() == b"".join(pieces)

    @pytest.mark.parametrize("status", [204, 304])
    def test_is_nothing_where_the_status_has_no_body(self, status: int) -> None:
        assert capture_of(status).passing(b"stray") == b""

    def test_is_not_even_the_head_where_that_is_all(self) -> None:
        assert capture_of(204).complete_at_head
        assert capture_of(304).complete_at_head
        assert capture_of(201, length=0).complete_at_head
        assert not capture_of(201, length=1).complete_at_head
        assert not capture_of(201).complete_at_head


class TestTheEnd:
    """The last piece, which servers of event loops name as such."""

    def test_shows_what_was_held_back_and_what_came_last(self) -> None:
        capture = capture_of(length=4)
        assert capture.passing(b"abc") == b"abc"
        assert capture.passing(b"d") == b""
        assert not capture_of(length=4).is_whole
        assert capture.is_whole
        assert capture.ending() == b"d"
        assert capture.response() == Response(200, (("Content-Length", "4"),), b"abcd")

    def test_may_be_a_piece_of_its_own(self) -> None:
        capture = capture_of(length=4)
        assert capture.passing(b"ab") == b"ab"
        assert not capture.is_whole
        assert capture.ending(b"cd") == b"cd"
        assert capture.is_whole

    @pytest.mark.parametrize("status", [204, 304])
    def test_is_nothing_where_the_status_has_no_body(self, status: int) -> None:
        assert capture_of(status).ending(b"stray") == b""

    def test_of_an_answer_without_a_length_can_not_be_known(self) -> None:
        capture = capture_of()
        capture.passing(b"abc")
        assert not capture.is_whole


class TestWhatIsKept:
    """For a replay."""

    def test_is_the_whole_answer(self) -> None:
        capture = capture_of(201, Location="/orders/1")
        capture.passing(b"a")
        capture.passing(b"b")
        assert capture.response() == Response(201, (("Location", "/orders/1"),), b"ab")
        assert capture.location == "/orders/1"

    def test_is_nothing_beyond_the_limit_and_no_memory_is_held(self) -> None:
        capture = capture_of()
        capture.passing(b"x" * LIMIT)
        assert capture.keeps_body
        capture.passing(b"x")
        assert not capture.keeps_body
        assert capture._parts == []
        assert capture.response() is None

    def test_is_nothing_of_an_event_stream(self) -> None:
        capture = capture_of(Content_Type="Text/Event-Stream; charset=utf-8")
        capture.passing(b"data: 1\n\n")
        assert capture.response() is None

    @pytest.mark.parametrize("length", [1, 3])
    def test_is_nothing_of_an_answer_that_is_not_as_long_as_declared(self, length: int) -> None:
        """Its client saw a broken answer; the same again would pass for a good one."""
        capture = capture_of(length=length)
        capture.passing(b"ab")
        assert capture.response() is None

    def test_is_the_head_alone_where_the_status_has_no_body(self) -> None:
        capture = capture_of(204)
        capture.passing(b"stray")
        assert capture.response() == Response(204)


class TestTheOutcome:
    """What a lease is settled with."""

    @pytest.mark.parametrize(
        ("status", "options", "kept"),
        [
            (200, {}, False),
            (404, {}, False),
            (500, {}, True),
            (429, {}, True),
            (307, {}, True),
            (500, {"on_error": "store"}, False),
            (500, {"store_if": lambda response: True}, False),
        ],
    )
    def test_of_half_an_answer_is_its_head_only_where_its_status_says_it_all(
        self,
        status: int,
        options: dict[str, Any],
        kept: bool,  # noqa: FBT001
    ) -> None:
        capture = capture_of(status)
        capture.passing(b"x" * (LIMIT + 1))
        assert capture.outcome(Options(**options)) == (Response(status) if kept else None)

    def test_of_a_whole_answer_is_that_answer(self) -> None:
        capture = capture_of(500)
        capture.passing(b"sorry")
        assert capture.outcome(Options()) == Response(500, (), b"sorry")
