"""Streamed answers: files, generators, events; what flows, what waits for the record, what is closed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Response, g, request, send_file, send_from_directory, session, stream_with_context

from tests.adapters.flask.shop import Shop, problem, replayed
from tests.adapters.support.bench import Bench
from tests.adapters.wsgi.apps import Closable


def test_a_generator_flows_and_its_end_waits_for_the_record(bench: Bench) -> None:
    Shop(bench, lambda: iter(["a", "ß"])).server().post()
    assert bench.journal == [
        "stored PENDING", "head 200", "sent a", "sent Ã\x9f", "stored COMPLETED", "complete", "close",
    ]  # fmt: skip


def test_with_a_declared_length_the_last_byte_waits_for_the_record(bench: Bench) -> None:
    shop = Shop(bench, lambda: Response(iter(["ab", "cd"]), headers={"Content-Length": "4"}))
    assert [shop.server().post().body, shop.server().post().body] == [b"abcd", b"abcd"]
    assert bench.journal[:6] == ["stored PENDING", "head 200", "sent ab", "sent c", "stored COMPLETED", "sent d"]


def test_with_its_context_a_generator_sees_request_session_and_lease(bench: Bench) -> None:
    def pieces() -> Iterator[str]:
        yield request.get_json()["a"]
        yield str(g.idempotency.attempt)
        yield str(session.get("user"))

    shop = Shop(bench, lambda: stream_with_context(pieces()))
    assert [shop.post(json={"a": "x"}).text, shop.post(json={"a": "x"}).text] == ["x1None", "x1None"]
    assert shop.runs == 1


@pytest.mark.parametrize("status", [204, 304])
def test_a_stream_that_is_never_sent_is_recorded_before_its_head(bench: Bench, status: int) -> None:
    Shop(bench, lambda: Response(iter(["stray"]), status)).server().post()
    assert bench.journal[1].startswith("stored ")
    assert bench.journal[2] == f"head {status}"


class TestFiles:
    """closeio/Flask-gzip#7: asking for the body of a `send_file` answer raises."""

    @pytest.mark.parametrize("size", [0, 10, 100_000])
    def test_of_memory_are_sent_and_replayed_byte_for_byte(self, bench: Bench, size: int) -> None:
        body = bytes(range(256)) * (size // 256 + 1)
        shop = Shop(bench, lambda: send_file(io.BytesIO(body[:size]), mimetype="image/png"))
        server = shop.server()
        first, second = server.post(), server.post()
        assert first.body == second.body == body[:size]
        assert second.replayed
        assert first.header("Content-Type") == second.header("Content-Type") == "image/png"
        assert bench.journal.index("stored COMPLETED") < bench.journal.index("complete")

    def test_of_a_folder_are_sent_and_replayed_and_closed(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes(b"text")
        shop = Shop(bench, lambda: send_from_directory(tmp_path, "a.txt"))
        server = shop.server()
        assert [server.post().body, server.post().body] == [b"text", b"text"]
        assert shop.runs == 1

    def test_too_large_to_keep_are_sent_whole(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: send_file(io.BytesIO(b"x" * 1000), mimetype="image/png"), max_response_bytes=999)
        assert shop.server().post().body == b"x" * 1000
        assert problem(shop.post()) == "response-not-stored"

    def test_can_still_be_read_by_an_after_request_function_that_dares_to(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: send_file(io.BytesIO(b"text"), mimetype="text/plain"))

        @shop.app.after_request
        def shout(response: Response) -> Response:
            response.direct_passthrough = False
            response.set_data(response.get_data().upper())
            return response

        server = shop.server()
        assert [server.post().body, server.post().body] == [b"TEXT", b"TEXT"]
        assert bench.state == "COMPLETED"


class TestClosing:
    """As WSGI promises."""

    def test_what_the_view_wants_called_is_called_once_when_all_is_sent(self, bench: Bench) -> None:
        def answer() -> Response:
            response = Response(pieces())
            response.call_on_close(lambda: bench.journal.append("called"))
            return response

        def pieces() -> Iterator[str]:
            try:
                yield "a"
            finally:
                bench.journal.append("generator over")

        Shop(bench, answer).server().post()
        assert bench.journal[-4:] == ["stored COMPLETED", "complete", "close", "called"]
        assert bench.journal.count("generator over") == 1

    @pytest.mark.parametrize("direct", [True, False])
    def test_a_file_is_closed_once(self, bench: Bench, direct: bool) -> None:  # noqa: FBT001
        class File(io.BytesIO):
            def close(self) -> None:
                bench.journal.append("file closed")
                super().close()

        shop = Shop(bench, lambda: Response(File(b"text"), direct_passthrough=direct))
        assert shop.server().post().body == b"text"
        assert bench.journal.count("file closed") == 1


class TestAClientThatLeaves:
    """In the middle of its answer."""

    @pytest.mark.parametrize("leave_after", [0, 1, 2])
    def test_has_it_recorded_to_its_end(self, bench: Bench, leave_after: int) -> None:
        shop = Shop(bench, lambda: stream_with_context(str(n) + request.path for n in range(4)))
        shop.server().post(leave_after=leave_after)
        again = shop.server().post()
        assert again.replayed
        assert again.body == b"0/orders1/orders2/orders3/orders"
        assert shop.runs == 1

    def test_of_an_event_stream_ends_it_at_once_and_gets_no_second_run(self, bench: Bench) -> None:
        closed: list[int] = []

        def events() -> Iterator[str]:
            number = 0
            try:
                while True:
                    yield f"data: {number}\n\n"
                    number += 1
            finally:
                closed.append(number)

        shop = Shop(bench, lambda: Response(events(), mimetype="text/event-stream"))
        shop.server().post(leave_after=3)
        assert closed == [2]
        assert problem(shop.post()) == "response-not-stored"
        assert shop.runs == 1


def test_an_event_stream_flows_event_by_event_and_is_not_kept(bench: Bench) -> None:
    shop = Shop(bench, lambda: Response(iter(["data: 1\n\n", "data: 2\n\n"]), mimetype="text/event-stream"))
    shop.server().post()
    assert bench.journal[1:4] == ["head 200", "sent data: 1\n\n", "sent data: 2\n\n"]
    assert bench.state == "NOT KEPT"


def test_where_nothing_is_protected_a_stream_is_the_views_own(bench: Bench) -> None:
    own = iter(["a"])
    seen: list[object] = []
    shop = Shop(bench, lambda: Response(own), exempt_paths=["/"])

    @shop.app.after_request
    def look(response: Response) -> Response:
        seen.append(response.response)
        return response

    assert shop.post().text == "a"
    assert seen == [own]


def test_a_stream_that_lost_its_lease_goes_on_as_it_is(bench: Bench) -> None:
    def pieces() -> Iterator[str]:
        yield "mine "
        bench.take_over()
        yield "too"

    shop = Shop(bench, pieces)
    answer = shop.server().post()
    assert answer.body == b"mine too"
    assert not answer.replayed
    assert not replayed(shop.post())


class TestAnotherApplication:
    """That a view returns: any WSGI callable is an answer for Flask."""

    @staticmethod
    def other(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Length", environ["HTTP_X_LENGTH"])])
        return Closable([b"ab", b"cd"][: int(environ["HTTP_X_LENGTH"]) // 2])

    @pytest.mark.parametrize(("length", "whole"), [("2", True), ("4", False)])
    def test_is_recorded_before_its_first_byte_if_that_piece_is_all(
        self,
        bench: Bench,
        length: str,
        whole: bool,  # noqa: FBT001
    ) -> None:
        shop = Shop(bench, lambda: self.other)
        server = shop.server()
        first, second = (server.post(HTTP_X_LENGTH=length) for _ in range(2))
        assert first.body == second.body == b"abcd"[: int(length)]
        assert second.replayed
        head, record = bench.journal.index("head 200"), bench.journal.index("stored COMPLETED")
        assert (record < head) is whole
        assert record < bench.journal.index("complete")
