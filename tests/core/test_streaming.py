"""A streamed body on its way to the server: recorded before its end, whatever happens on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from idem_middleware import EventKind, Lease, Request
from idem_middleware.blocking import streaming
from idem_middleware.blocking.streaming import RecordedStream
from idem_middleware.body import RequestBody
from idem_middleware.capture import Capture
from idem_middleware.identity import Admitted
from idem_middleware.messages import HeaderPairs
from idem_middleware.options import Options
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from idem_middleware.testing import Fault
from tests.adapters.support.bench import Bench

LIMIT = 1000


@pytest.fixture
def bench() -> Bench:
    return Bench()


def acquire(bench: Bench, **options: Any) -> Lease | Replayed | Refused | Unprotected:
    request = Request(method="POST", path="/", headers=(("idempotency-key", "k"),), body=RequestBody.from_bytes(b""))
    admitted = bench.engine.admit(Options(**options), "POST", "/", ["k"])
    assert isinstance(admitted, Admitted)
    return bench.engine.acquire(request, admitted)


class Producer:
    """Pieces that are written to the journal as they are produced; an exception among them is raised."""

    def __init__(self, bench: Bench, *pieces: bytes | BaseException) -> None:
        self._journal = bench.journal
        self._pieces = iter(pieces)
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, BaseException):
                raise piece
            self._journal.append(f"produced {piece.decode()}")
            yield piece

    def close(self) -> None:
        self.closed += 1


def stream_of(
    bench: Bench,
    pieces: Iterable[bytes],
    *,
    status: int = 200,
    headers: HeaderPairs = (),
    on_close: Callable[[], None] | None = None,
    **options: Any,
) -> RecordedStream:
    """An answer that is sent under a lease."""
    lease = acquire(bench, **options)
    assert isinstance(lease, Lease)
    bench.journal.clear()
    return RecordedStream(pieces, Capture(status, headers, LIMIT), lease, on_close=on_close)


def send(bench: Bench, stream: RecordedStream) -> bytes:
    """What a server does."""
    seen = b""
    for piece in stream:
        bench.journal.append(f"sent {piece.decode()}")
        seen += piece
    bench.journal.append("end")
    stream.close()
    return seen


class TestRecordedBeforeItsEnd:
    """Nobody has a complete answer before it is durable."""

    def test_without_a_length_all_bytes_flow_and_the_end_waits(self, bench: Bench) -> None:
        assert send(bench, stream_of(bench, Producer(bench, b"a", b"b"))) == b"ab"
        assert bench.journal == ["produced a", "sent a", "produced b", "sent b", "stored COMPLETED", "end"]

    def test_with_a_length_the_last_byte_waits(self, bench: Bench) -> None:
        stream = stream_of(bench, Producer(bench, b"ab", b"cd"), headers=(("Content-Length", "4"),))
        assert send(bench, stream) == b"abcd"
        assert bench.journal == [
            "produced ab", "sent ab", "produced cd", "sent c", "stored COMPLETED", "sent d", "end",
        ]  # fmt: skip

    def test_a_piece_of_which_nothing_may_be_seen_yet_is_no_flush(self, bench: Bench) -> None:
        stream = stream_of(bench, [b"ab", b"c"], headers=(("Content-Length", "3"),))
        assert list(stream) == [b"ab", b"c"]
        assert bench.state == "COMPLETED"

    def test_an_empty_piece_passes_as_a_flush(self, bench: Bench) -> None:
        stream = stream_of(bench, [b"", b"a"])
        assert list(stream) == [b"", b"a"]

    def test_an_empty_answer_is_recorded_too(self, bench: Bench) -> None:
        assert send(bench, stream_of(bench, [])) == b""
        assert bench.state == "COMPLETED"

    def test_a_retry_gets_every_byte(self, bench: Bench) -> None:
        send(bench, stream_of(bench, [b"a", b"b"], status=201, headers=(("Location", "/1"),)))
        outcome = acquire(bench)
        assert isinstance(outcome, Replayed)
        assert outcome.response.body == b"ab"
        assert outcome.response.status == 201

    def test_while_the_store_is_down_the_client_has_its_true_answer_all_the_same(self, bench: Bench) -> None:
        stream = stream_of(bench, [b"a"])
        bench.store.fail(Fault.LOST_REQUEST, on="swap", times=None)
        assert send(bench, stream) == b"a"
        assert bench.state == "PENDING"
        bench.store.recover()
        bench.pass_by(10)
        assert bench.state == "COMPLETED"

    def test_a_lost_lease_leaves_the_answer_as_it_is(self, bench: Bench) -> None:
        stream = stream_of(bench, [b"a"])
        bench.take_over()
        assert send(bench, stream) == b"a"
        assert bench.records[0].owner == "another"
        assert bench.told(EventKind.EXECUTED_NOT_RECORDED)[-1].reason == "lease-lost"


class TestWhatTheProducerRaises:
    """In the middle of its answer."""

    @pytest.mark.parametrize("length", [(), (("Content-Length", "3"),)])
    def test_comes_out_unchanged_and_the_next_try_runs(self, bench: Bench, length: HeaderPairs) -> None:
        error = ValueError("mine")
        stream = stream_of(bench, Producer(bench, b"a", error), headers=length)
        assert next(stream) == b"a"
        with pytest.raises(ValueError, match="mine") as caught:
            next(stream)
        assert caught.value is error
        assert bench.state == "FAILED"
        assert list(stream) == []

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), SystemExit(1)])
    def test_half_way_leaves_the_outcome_unknown(self, bench: Bench, error: BaseException) -> None:
        stream = stream_of(bench, Producer(bench, b"a", error))
        next(stream)
        with pytest.raises(type(error)) as caught:
            next(stream)
        assert caught.value is error
        assert bench.state == "PENDING"
        assert "abandoned" in bench.kinds


class TestAClientThatLeaves:
    """In the middle of its answer."""

    def test_does_not_keep_the_rest_from_being_recorded(self, bench: Bench) -> None:
        producer = Producer(bench, b"a", b"b", b"c")
        stream = stream_of(bench, producer)
        next(stream)
        stream.close()
        assert bench.journal == ["produced a", "produced b", "produced c", "stored COMPLETED"]
        assert producer.closed == 1
        outcome = acquire(bench)
        assert isinstance(outcome, Replayed)
        assert outcome.response.body == b"abc"

    def test_before_the_first_byte_neither(self, bench: Bench) -> None:
        stream_of(bench, Producer(bench, b"a")).close()
        assert bench.state == "COMPLETED"

    def test_is_not_followed_for_ever(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = itertools.count()
        monkeypatch.setattr(streaming, "monotonic", lambda: float(next(clock)))
        stream = stream_of(bench, itertools.repeat(b""), headers=(("Location", "/orders/1"),))
        next(stream)
        stream.close()
        assert bench.state == "NOT KEPT"
        outcome = acquire(bench)
        assert isinstance(outcome, Refused)
        assert outcome.problem.type.slug == "response-not-stored"

    def test_of_an_answer_too_large_to_keep_ends_it_at_once(self, bench: Bench) -> None:
        producer = Producer(bench, b"x" * (LIMIT + 1), b"more")
        stream = stream_of(bench, producer)
        next(stream)
        stream.close()
        assert "produced more" not in bench.journal
        assert bench.state == "NOT KEPT"

    def test_of_an_event_stream_ends_it_at_once(self, bench: Bench) -> None:
        producer = Producer(bench, b"data: 1", b"data: 2")
        stream = stream_of(bench, producer, headers=(("Content-Type", "text/event-stream"),))
        next(stream)
        stream.close()
        assert bench.journal == ["produced data: 1", "stored COMPLETED"]
        assert bench.state == "NOT KEPT"

    def test_of_a_failing_answer_leaves_it_a_failure_however_long_it_is(self, bench: Bench) -> None:
        stream = stream_of(bench, [b"x" * (LIMIT + 1), b"more"], status=500)
        next(stream)
        stream.close()
        assert bench.state == "FAILED"

    def test_does_not_hear_what_the_producer_raises_then(self, bench: Bench) -> None:
        producer = Producer(bench, b"a", ValueError("mine"))
        stream = stream_of(bench, producer)
        next(stream)
        stream.close()
        assert bench.state == "FAILED"
        assert producer.closed == 1

    def test_a_signal_meanwhile_comes_out_and_the_producer_is_closed(self, bench: Bench) -> None:
        producer = Producer(bench, b"a", KeyboardInterrupt())
        stream = stream_of(bench, producer)
        next(stream)
        with pytest.raises(KeyboardInterrupt):
            stream.close()
        assert bench.state == "PENDING"
        assert producer.closed == 1


class TestTooLarge:
    """More than is kept."""

    def test_flows_on_and_is_recorded_as_not_kept(self, bench: Bench) -> None:
        assert len(send(bench, stream_of(bench, [b"x" * LIMIT, b"y"]))) == LIMIT + 1
        assert bench.state == "NOT KEPT"

    def test_a_failure_that_would_be_kept_is_not_kept_torn(self, bench: Bench) -> None:
        send(bench, stream_of(bench, [b"x" * (LIMIT + 1)], status=500, on_error="store"))
        assert bench.state == "NOT KEPT"


class TestClosing:
    """What servers call when they need the body no longer."""

    def test_is_done_once(self, bench: Bench) -> None:
        producer = Producer(bench, b"a")
        stream = stream_of(bench, producer)
        send(bench, stream)
        stream.close()
        assert producer.closed == 1

    def test_can_be_something_else_than_the_pieces_own(self, bench: Bench) -> None:
        producer, closed = Producer(bench, b"a"), []
        send(bench, stream_of(bench, producer, on_close=lambda: closed.append(1)))
        assert closed == [1]
        assert producer.closed == 0

    def test_what_it_raises_comes_out_and_the_record_stands(self, bench: Bench) -> None:
        error = ValueError("mine")

        def fail() -> None:
            raise error

        stream = stream_of(bench, [b"a"], on_close=fail)
        assert list(stream) == [b"a"]
        with pytest.raises(ValueError, match="mine"):
            stream.close()
        assert bench.state == "COMPLETED"
