"""A request's input: read once by whoever comes first, known whole when it is needed."""

from __future__ import annotations

import gc
import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware.body import SPOOL_BYTES, BodyTooLarge
from idem_middleware.tee import BodyIncomplete, TeeInput

BODY = b"one\ntwo\nthree"


class Source(io.BytesIO):
    """A server's input that counts what is asked of it, and is no place to read beyond the end of."""

    def __init__(self, body: bytes = BODY, *, blocks_at_end: bool = False) -> None:
        super().__init__(body)
        self.reads = 0
        self._blocks_at_end = blocks_at_end
        self._length = len(body)

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self._blocks_at_end and (size is None or size < 0 or self.tell() + size > self._length):
            raise AssertionError("a server may wait here for ever")
        return super().read(size)


class Broken(io.BytesIO):
    """A connection that breaks after what has come."""

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = super().read(size)
        if not chunk:
            raise ConnectionResetError("reset by peer")
        return chunk


class TestReaders:
    """Whoever reads before the claim or after it."""

    def test_nothing_is_read_before_somebody_asks(self) -> None:
        source = Source()
        TeeInput(source)
        assert source.reads == 0

    def test_read_what_the_server_has(self) -> None:
        assert TeeInput(Source()).read() == BODY

    def test_go_on_where_they_were_when_the_rest_was_read_for_the_claim(self) -> None:
        tee = TeeInput(Source())
        assert tee.read(4) == b"one\n"
        assert b"".join(tee.complete().chunks()) == BODY
        assert tee.read() == b"two\nthree"
        assert tee.read() == b""

    @settings(deadline=None)
    @given(body=st.binary(max_size=300), before=st.lists(st.integers(0, 40)), after=st.lists(st.integers(0, 40)))
    def test_see_every_byte_once_however_they_read(self, body: bytes, before: list[int], after: list[int]) -> None:
        tee = TeeInput(Source(body, blocks_at_end=True), length=len(body), whole_length=len(body))
        seen = [tee.read(size) for size in before]
        assert b"".join(tee.complete().chunks(7)) == body
        seen += [tee.read(size) for size in after]
        assert b"".join([*seen, tee.read()]) == body

    @pytest.mark.parametrize("completed", [False, True])
    def test_read_line_by_line(self, completed: bool) -> None:  # noqa: FBT001
        tee = TeeInput(Source())
        if completed:
            tee.complete()
        assert tee.readline(2) == b"on"
        assert tee.readline() == b"e\n"
        assert list(tee) == [b"two\n", b"three"]

    def test_read_as_many_lines_at_once_as_the_server_gives(self) -> None:
        class Lines(Source):
            def readline(self, size: int | None = -1, /) -> bytes:
                self.reads += 1
                return io.BytesIO.readline(self, size)

        source = Lines(b"x" * 1000 + b"\n")
        assert TeeInput(source).readline() == b"x" * 1000 + b"\n"
        assert source.reads == 1

    @settings(deadline=None)
    @given(sizes=st.lists(st.one_of(st.none(), st.integers(-1, 8))), limit=st.one_of(st.none(), st.just(len(BODY))))
    def test_see_every_byte_once_in_lines_too(self, sizes: list[int | None], limit: int | None) -> None:
        tee, file = TeeInput(Source(), length=limit), io.BytesIO(BODY)
        assert [tee.readline(size) for size in sizes] == [file.readline(size) for size in sizes]
        assert b"".join(tee.complete().chunks()) == BODY
        assert tee.read() == file.read()

    def test_read_lines_of_a_server_that_has_only_read(self) -> None:
        class Bare:
            def __init__(self) -> None:
                self.read = io.BytesIO(BODY).read

        assert list(TeeInput(Bare())) == [b"one\n", b"two\n", b"three"]

    @pytest.mark.parametrize("completed", [False, True])
    def test_can_be_wrapped_like_any_file(self, completed: bool) -> None:  # noqa: FBT001
        tee = TeeInput(Source())
        if completed:
            tee.complete()
        assert io.TextIOWrapper(io.BufferedReader(tee)).read() == BODY.decode()

    def test_asking_for_more_than_there_is_takes_no_memory_for_it(self) -> None:
        tee = TeeInput(Source())
        tee.complete()
        assert tee.read(1 << 60) == BODY

    def test_begin_again_after_a_rewind(self) -> None:
        tee = TeeInput(Source())
        assert tee.read(4) == b"one\n"
        tee.rewind()
        assert tee.read(3) == b"one"
        tee.complete()
        tee.rewind()
        assert tee.read() == BODY

    def test_never_read_beyond_the_declared_length(self) -> None:
        tee = TeeInput(Source(blocks_at_end=True), length=len(BODY))
        assert tee.read() == BODY
        assert tee.complete().size == len(BODY)


class TestTheWholeBody:
    """What the claim asks for."""

    def test_is_read_once(self) -> None:
        source = Source()
        tee = TeeInput(source)
        body = tee.complete()
        reads = source.reads
        assert tee.complete() is body
        assert source.reads == reads

    def test_lies_in_a_file_when_it_is_large(self) -> None:
        large = os.urandom(SPOOL_BYTES + 1)
        tee = TeeInput(Source(large))
        tee.read(10)
        assert tee.complete().in_memory() is None
        assert tee.read() == large[10:]

    def test_too_large_is_found_out_without_reading_it_all(self) -> None:
        source = Source(b"x" * 10_000_000)
        with pytest.raises(BodyTooLarge):
            TeeInput(source).complete(100)
        assert source.tell() < 100_000

    def test_too_large_is_found_out_when_others_have_read_it_before(self) -> None:
        tee = TeeInput(Source())
        tee.read()
        with pytest.raises(BodyTooLarge):
            tee.complete(len(BODY) - 1)

    def test_of_exactly_the_limit_is_not_too_large(self) -> None:
        assert TeeInput(Source()).complete(len(BODY)).size == len(BODY)

    @pytest.mark.parametrize("read_before", [0, 4, 200_000])
    def test_too_large_leaves_readers_every_byte(self, read_before: int) -> None:
        body = os.urandom(300_000)
        tee = TeeInput(Source(body))
        seen = tee.read(read_before)
        with pytest.raises(BodyTooLarge):
            tee.complete(100)
        assert seen + tee.read() == body

    def test_shorter_than_declared_is_half_a_request(self) -> None:
        tee = TeeInput(Source(BODY), length=100, whole_length=100)
        with pytest.raises(BodyIncomplete):
            tee.complete()
        assert tee.read() == BODY

    def test_of_which_the_reading_is_interrupted_is_not_taken_for_whole(self) -> None:
        """By a signal, or the end of the worker: no error of the server's, and nothing is known of the rest."""

        class Interrupted(Broken):
            def read(self, size: int | None = -1, /) -> bytes:
                chunk = io.BytesIO.read(self, size)
                if not chunk:
                    raise KeyboardInterrupt
                return chunk

        tee = TeeInput(Interrupted(b"half"), length=8, whole_length=8)
        with pytest.raises(KeyboardInterrupt):
            tee.complete()
        assert tee.read(4) == b"half"

    def test_that_the_server_can_not_read_is_half_a_request(self) -> None:
        """Servers have errors of their own for it."""

        class Refused(Source):
            def read(self, size: int | None = -1, /) -> bytes:
                raise ValueError("no such thing")

        tee = TeeInput(Refused(), length=8, whole_length=8)
        with pytest.raises(BodyIncomplete, match="can't read") as incomplete:
            tee.complete()
        assert isinstance(incomplete.value.__cause__, ValueError)

    def test_of_a_broken_connection_is_half_a_request(self) -> None:
        with pytest.raises(ConnectionResetError):
            TeeInput(Broken(BODY)).complete()


class TestStopped:
    """The request turned out to be none of ours."""

    def test_keeps_nothing_more(self) -> None:
        tee = TeeInput(Source())
        tee.read(4)
        tee.stop()
        assert tee.read() == b"two\nthree"
        assert tee._kept is None

    def test_can_be_completed_all_the_same_as_long_as_nobody_has_read(self) -> None:
        tee = TeeInput(Source())
        tee.stop()
        assert b"".join(tee.complete().chunks()) == BODY
        assert tee.read() == BODY

    @pytest.mark.parametrize("read_first", [True, False])
    def test_never_takes_a_part_of_the_body_for_the_whole(self, read_first: bool) -> None:  # noqa: FBT001
        tee = TeeInput(Source())
        if read_first:
            tee.read(4)
        tee.stop()
        if not read_first:
            tee.read(4)
        with pytest.raises(RuntimeError, match="nobody had to keep it"):
            tee.complete()

    def test_loses_nothing_that_was_read_ahead(self) -> None:
        tee = TeeInput(Source())
        tee.complete()
        tee.stop()
        assert tee.read() == BODY


class TestMemoryAndFiles:
    """Nothing stays open."""

    def test_are_given_back_by_whoever_drops_it_last(self) -> None:
        tee = TeeInput(Source(b"x" * (SPOOL_BYTES + 1)))
        file = tee.complete()._file
        assert file is not None
        del tee
        gc.collect()
        assert file.closed

    def test_are_given_back_when_it_is_closed(self) -> None:
        tee = TeeInput(Source())
        body = tee.complete()
        tee.close()
        with pytest.raises(ValueError, match="closed"):
            body.open()
