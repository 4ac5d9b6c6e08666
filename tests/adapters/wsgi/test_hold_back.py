"""Nobody has a complete answer before it is recorded; the server's journal proves it, call by call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from idem_middleware.testing import Fault
from idem_middleware.wsgi import IdempotencyMiddleware
from tests.adapters.support.bench import Bench
from tests.adapters.support.server import Server
from tests.adapters.wsgi.apps import STREAMED, TEXT, WHOLE, Answering, Closable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def server_of(bench: Bench, app: WSGIApplication) -> Server:
    return Server(IdempotencyMiddleware(app, engine=bench.engine), bench.journal)


@pytest.mark.parametrize("app", [*WHOLE, *STREAMED], ids=lambda app: app.__name__)
def test_an_answer_of_any_kind_is_recorded_before_it_is_complete_and_replayed_whole(
    bench: Bench, app: WSGIApplication
) -> None:
    server = server_of(bench, app)
    first, second = server.post(), server.post()
    assert (first.status, first.body) == (second.status, second.body) == (201, b"abcd")
    assert second.replayed
    assert not first.replayed
    assert bench.journal.index("stored COMPLETED") < bench.journal.index("complete")


@pytest.mark.parametrize("app", WHOLE, ids=lambda app: app.__name__)
def test_an_answer_that_is_not_streamed_is_recorded_before_its_first_byte(bench: Bench, app: WSGIApplication) -> None:
    server_of(bench, app).post()
    assert bench.journal[:3] == ["stored PENDING", "stored COMPLETED", "head 201"]


@pytest.mark.parametrize("app", STREAMED, ids=lambda app: app.__name__)
def test_a_streamed_answer_flows_before_it_is_recorded(bench: Bench, app: WSGIApplication) -> None:
    server_of(bench, app).post()
    assert bench.journal.index("head 201") < bench.journal.index("stored COMPLETED")


def test_with_a_declared_length_only_the_last_byte_waits(bench: Bench) -> None:
    server_of(bench, Answering(body=iter([b"ab", b"cd"]), headers=[TEXT, ("Content-Length", "4")])).post()
    assert bench.journal == [
        "stored PENDING", "head 201", "sent ab", "sent c", "stored COMPLETED", "sent d", "complete", "close",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "headers"),
    [("204 No Content", []), ("304 Not Modified", []), ("201 Created", [("Content-Length", "0")])],
)
def test_an_answer_that_is_complete_with_its_head_is_recorded_before_even_that(
    bench: Bench, status: str, headers: list[tuple[str, str]]
) -> None:
    server_of(bench, Answering(status, iter([b""]), headers)).post()
    assert bench.journal[1].startswith("stored ")
    assert bench.journal[2].startswith("head ")


def test_a_stray_body_of_a_204_is_neither_sent_nor_kept(bench: Bench) -> None:
    server = server_of(bench, Answering("204 No Content", [b"stray"], []))
    assert [server.post().body, server.post().body] == [b"", b""]


def test_the_application_is_closed_once_when_all_is_sent(bench: Bench) -> None:
    for key, pieces in (("whole", [b"a"]), ("streamed", [b"a", b"b"])):
        produced = Closable(pieces, bench.journal)
        server_of(bench, Answering(body=produced)).post(key=key)
        assert produced.closed == 1
        assert bench.journal[-3:] == ["complete", "close", "closed by the server"]


def test_what_close_raises_comes_out_and_the_answer_is_out_and_stays(bench: Bench) -> None:
    class Unclosable(Closable):
        def close(self) -> None:
            raise ValueError("mine")

    server = server_of(bench, Answering(body=Unclosable([b"a"]), headers=[TEXT, ("Content-Length", "1")]))
    with pytest.raises(ValueError, match="mine"):
        server.post()
    assert bench.journal[-2:] == ["complete", "close"]
    assert bench.state == "COMPLETED"


class TestAClientThatLeaves:
    """In the middle of its answer."""

    @pytest.mark.parametrize("leave_after", [0, 1])
    def test_has_it_recorded_to_its_end(self, bench: Bench, leave_after: int) -> None:
        produced = Closable([b"a", b"b", b"c"])
        app = Answering(body=produced)
        server = server_of(bench, app)
        server.post(leave_after=leave_after)
        assert produced.closed == 1
        again = server.post()
        assert again.replayed
        assert again.body == b"abc"
        assert app.runs == 1

    def test_of_an_event_stream_gets_no_second_run(self, bench: Bench) -> None:
        app = Answering(body=iter([b"data: 1\n\n"] * 3), headers=[("Content-Type", "text/event-stream")])
        server = server_of(bench, app)
        server.post(leave_after=1)
        assert server.post().status == 409
        assert app.runs == 1


class TestStartResponse:
    """Called in every way, right and wrong."""

    def test_with_an_error_after_the_head_is_out_raises_that_error(self, bench: Bench) -> None:
        error = ValueError("mine")

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            start_response("200 OK", [TEXT])
            yield b"half"
            try:
                raise error
            except ValueError:
                start_response("500 Sorry", [TEXT], sys.exc_info())
            yield b"an error page"

        with pytest.raises(ValueError, match="mine") as caught:
            server_of(bench, app).post()
        assert caught.value is error
        assert "sent an error page" not in bench.journal
        assert bench.state == "FAILED"

    def test_twice_without_an_error_is_a_mistake(self, bench: Bench) -> None:
        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            start_response("200 OK", [TEXT])
            start_response("201 Created", [TEXT])
            return []

        with pytest.raises(AssertionError, match="twice"):
            server_of(bench, app).post()
        assert bench.state == "FAILED"

    def test_forgotten_is_a_mistake(self, bench: Bench) -> None:
        with pytest.raises(AssertionError, match="without start_response"):
            server_of(bench, lambda environ, start_response: [b"x"]).post()
        assert bench.state == "FAILED"

    def test_with_a_reason_of_its_own_keeps_it(self, bench: Bench) -> None:
        lines: list[str] = []
        app = IdempotencyMiddleware(Answering("201 Booked For You"), engine=bench.engine)

        def watched(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            def starting(line: str, *rest: Any) -> Callable[[bytes], object]:
                lines.append(line)
                return start_response(line, *rest)

            return app(environ, starting)

        Server(watched).post()
        assert lines == ["201 Booked For You"]


class TestTheStoreFails:
    """When the answer is there."""

    def test_the_client_has_its_true_answer_and_the_record_follows(self, bench: Bench) -> None:
        app = Answering()
        server = server_of(bench, app)
        bench.store.fail(Fault.LOST_REQUEST, on="swap", times=None)
        assert server.post().body == b"done"
        assert server.post().status == 409
        bench.store.recover()
        bench.pass_by(10)
        assert server.post().replayed
        assert app.runs == 1


class TestALostLease:
    """The work takes so long that another worker takes the key over and answers first."""

    @staticmethod
    def overtaken(bench: Bench, produced: Closable, *headers: tuple[str, str]) -> WSGIApplication:
        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            bench.clock.advance(100)
            assert server_of(bench, Answering(body=[b"winner"])).post().body == b"winner"
            start_response("201 Created", [TEXT, *headers])
            return produced

        return app

    def test_its_client_gets_the_winners_answer_if_nothing_was_sent(self, bench: Bench) -> None:
        produced = Closable([b"loser"])
        seen = server_of(bench, self.overtaken(bench, produced, ("Content-Length", "5"))).post()
        assert seen.body == b"winner"
        assert seen.replayed
        assert produced.closed == 1

    def test_its_client_gets_its_own_answer_if_that_has_begun(self, bench: Bench) -> None:
        seen = server_of(bench, self.overtaken(bench, Closable([b"los", b"er"]))).post()
        assert seen.body == b"loser"
        assert not seen.replayed
