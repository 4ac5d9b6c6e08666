from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction, sync_to_async
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from tests.adapters.django.conftest import MakeProject
from tests.adapters.django.projects import MIDDLEWARE, Exchange, Project, notices_leaving
from tests.support.polling import eventually

LINES = [("Idempotency-Key", "k"), ("Content-Type", "application/json")]


class Pieces:
    """A body that knows how it was treated."""

    def __init__(self, *pieces: bytes, fail_after: int | None = None) -> None:
        self._pieces = pieces
        self._fail_after = fail_after
        self.given = 0
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self.given == self._fail_after:
            raise RuntimeError("the source broke")
        if self.given == len(self._pieces):
            raise StopIteration
        self.given += 1
        return self._pieces[self.given - 1]

    def close(self) -> None:
        self.closed += 1
        self._pieces = self._pieces[: self.given]  # closed early, it looks as if it had ended


def begun(project: Project) -> Exchange:
    return Exchange(project.environ("POST", "/", b"{}", LINES))


def view_of(content: Any, **values: Any) -> Any:
    def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(content, **values)

    return view


def test_a_stream_flows_and_is_recorded_before_its_end(make_project: MakeProject) -> None:
    """Wrapped, not consumed (zulip/zulip#26047; jazzband/django-silk#50)."""
    pieces = Pieces(b"one ", b"two")
    project = make_project(path("", view_of(pieces)))
    exchange = begun(project)
    assert (exchange.next(), pieces.given) == (b"one ", 1)
    assert exchange.next() == b"two"
    assert project.kinds == ["claimed"]
    assert exchange.finish().body == b"one two"
    assert project.kinds == ["claimed", "completed"]
    assert pieces.closed == 1
    assert (project.post().body, project.post().is_replay) == (b"one two", True)


def test_the_byte_that_completes_a_declared_length_waits_for_the_record(make_project: MakeProject) -> None:
    project = make_project(path("", view_of(Pieces(b"one ", b"two"), headers={"Content-Length": "7"})))
    exchange = begun(project)
    assert [exchange.next(), exchange.next()] == [b"one ", b"tw"]
    assert project.kinds == ["claimed"]
    assert exchange.next() == b"o"
    assert project.kinds == ["claimed", "completed"]
    exchange.finish()


def test_an_answer_that_is_complete_with_its_head_is_recorded_before_it(make_project: MakeProject) -> None:
    pieces = Pieces()
    project = make_project(path("", view_of(pieces, headers={"Content-Length": "0"})))
    exchange = begun(project)
    assert project.kinds == ["claimed", "completed"]
    exchange.finish()
    assert pieces.closed == 1


@pytest.mark.parametrize("read", [0, 1])
def test_a_client_that_leaves_makes_no_torn_replay(make_project: MakeProject, read: int) -> None:
    """The rest is produced before the source is closed, and the source is closed once."""
    pieces = Pieces(b"one ", b"two ", b"three")
    project = make_project(path("", view_of(pieces)))
    exchange = begun(project)
    for _ in range(read):
        exchange.next()
    exchange.close()
    assert (pieces.given, pieces.closed) == (3, 1)
    assert project.post().body == b"one two three"


def test_a_generator_is_drained_before_it_is_closed(make_project: MakeProject) -> None:
    ended: list[str] = []

    def body() -> Iterator[bytes]:
        try:
            yield b"one "
            yield b"two"
            ended.append("whole")
        finally:
            ended.append("closed")

    project = make_project(path("", lambda request: StreamingHttpResponse(body())))
    exchange = begun(project)
    exchange.next()
    exchange.close()
    assert ended == ["whole", "closed"]
    assert project.post().body == b"one two"


def test_a_source_that_breaks_frees_the_key_and_its_error_comes_out(make_project: MakeProject) -> None:
    pieces = Pieces(b"one ", b"two", fail_after=1)
    project = make_project(path("", view_of(pieces)))
    exchange = begun(project)
    exchange.next()
    with pytest.raises(RuntimeError, match="source broke"):
        exchange.next()
    exchange.close()
    assert (project.kinds, pieces.closed) == (["claimed", "failed"], 1)


def test_text_is_kept_in_its_charset(make_project: MakeProject) -> None:
    project = make_project(path("", view_of(["Gr\xfc\xdfe"], content_type="text/plain; charset=iso-8859-1")))
    assert project.post().body == project.post().body == b"Gr\xfc\xdfe"


def test_an_event_stream_is_not_kept_and_never_run_again(make_project: MakeProject) -> None:
    pieces = Pieces(b"data: 1\n\n", b"data: 2\n\n")
    project = make_project(path("", view_of(pieces, content_type="text/event-stream")))
    exchange = begun(project)
    exchange.next()
    exchange.close()
    assert (pieces.given, pieces.closed) == (1, 1)
    assert project.post().problem == "response-not-stored"


class FileWrapper:
    """As a server offers it: it takes the file away from the answer."""

    def __init__(self, file: Any, size: int) -> None:
        raise AssertionError("the file went past the record")


@pytest.mark.parametrize("mode", ["wsgi", "asgi"])
def test_a_file_is_kept_and_closed(make_project: MakeProject, mode: str, tmp_path: Path) -> None:
    """Neither an exception nor an empty download (stephenmcd/mezzanine#1020)."""
    (tmp_path / "report.csv").write_bytes(b"a,b\r\n" * 1000)
    files: list[Any] = []

    def view(request: HttpRequest) -> FileResponse:
        files.append((tmp_path / "report.csv").open("rb"))
        return FileResponse(files[-1], as_attachment=True)

    project = make_project(path("", view), mode=mode)
    with pytest.warns(Warning, match="asynchronous") if mode == "asgi" else nullcontext():
        first = project.post(environ={"wsgi.file_wrapper": FileWrapper})
    assert (first.body, first.header("content-length")) == (b"a,b\r\n" * 1000, "5000")
    replay = project.post()
    assert (replay.body, replay.is_replay) == (first.body, True)
    assert replay.header("content-disposition") == first.header("content-disposition")
    assert [file.closed for file in files] == [True]


def test_gzip_around_it_compresses_answers_and_replays(make_project: MakeProject) -> None:
    project = make_project(
        path("", lambda request: StreamingHttpResponse([b"a" * 1000, b"b" * 1000])),
        middleware=("django.middleware.gzip.GZipMiddleware", *MIDDLEWARE),
    )
    accept = [("Accept-Encoding", "gzip")]
    first = project.post(headers=accept)
    assert first.header("content-encoding") == "gzip"
    assert project.post(headers=accept).header("content-encoding") == "gzip"
    assert project.post().body == b"a" * 1000 + b"b" * 1000


# --- on an event loop ---


async def produced(
    *pieces: bytes, gate: asyncio.Event | None = None, seen: list[str] | None = None
) -> AsyncIterator[bytes]:
    seen = [] if seen is None else seen
    try:
        for number, piece in enumerate(pieces):
            if gate is not None and number == 1:
                await gate.wait()
            seen.append("piece")
            yield piece
        seen.append("whole")
    except BaseException as error:
        seen.append(type(error).__name__)
        raise


def async_view_of(make: Any, **values: Any) -> Any:
    async def view(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(make(), **values)

    return view


def test_an_async_stream_flows_and_is_recorded_before_its_end(make_project: MakeProject) -> None:
    """The wrapper is of the stream's own kind, and no piece waits for the next (django/django#16384)."""

    async def scenario() -> None:
        gate = asyncio.Event()
        project = make_project(path("", async_view_of(lambda: produced(b"one ", b"two", gate=gate))), mode="asgi")
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await connection.until(lambda seen: seen.body == b"one ")
        assert project.kinds == ["claimed"]
        ends: list[list[str]] = []
        connection.on_send = lambda message: ends.append(project.kinds) if not message.get("more_body") else None
        gate.set()
        await running
        assert connection.body == b"one two"
        assert ends == [["claimed", "completed"]]
        assert (await project.over_asgi("POST", "/", b"{}", LINES)).is_replay

    asyncio.run(scenario())


def test_the_last_byte_of_an_async_stream_waits_for_the_record(make_project: MakeProject) -> None:
    async def scenario() -> None:
        view = async_view_of(lambda: produced(b"one ", b"two"), headers={"Content-Length": "7"})
        project = make_project(path("", view), mode="asgi")
        connection = project.connection("POST", "/", b"{}", LINES)
        seen: list[tuple[bytes, bool]] = []
        connection.on_send = lambda message: seen.append((message.get("body", b""), "completed" in project.kinds))
        await connection.run()
        assert [body for body, recorded in seen if not recorded] == [b"", b"one ", b"tw"]

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["between pieces", "while sending"])
def test_a_client_that_leaves_an_async_stream_gets_the_whole_on_return(make_project: MakeProject, where: str) -> None:
    """Django cancels whoever waits for a piece; the view's generator does not notice."""

    async def scenario() -> None:
        gate, seen = asyncio.Event(), list[str]()
        project = make_project(
            path("", async_view_of(lambda: produced(b"one ", b"two ", b"three", gate=gate, seen=seen))), mode="asgi"
        )
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        if where == "between pieces":
            await connection.until(lambda sent: sent.body)
            connection.leave()
        else:
            gate.set()
            connection.on_send = lambda message: connection.leave() if message.get("body") else None
        await asyncio.sleep(0)
        gate.set()
        await running
        await asyncio.to_thread(eventually, lambda: "completed" in project.kinds, what="the whole is recorded")
        assert seen[-1] == "whole"
        answer = await project.over_asgi("POST", "/", b"{}", LINES)
        assert (answer.body, answer.is_replay) == (b"one two three", True)

    asyncio.run(asyncio.wait_for(scenario(), 20))


@notices_leaving
def test_an_endless_stream_ends_when_its_client_leaves(make_project: MakeProject) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"data: \n\n"
            await asyncio.sleep(0.001)

    async def scenario() -> None:
        view = async_view_of(endless, content_type="text/event-stream")
        project = make_project(path("", view), mode="asgi")
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await connection.until(lambda sent: sent.body)
        connection.leave()
        await running
        answer = await project.over_asgi("POST", "/", b"{}", LINES)
        assert answer.problem == "response-not-stored"

    asyncio.run(asyncio.wait_for(scenario(), 20))


@notices_leaving
def test_what_takes_too_long_after_the_client_left_is_not_kept(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idem_django.streaming.DRAIN_SECONDS", 0.01)

    async def scenario() -> None:
        seen = list[str]()
        never = asyncio.Event()
        project = make_project(
            path("", async_view_of(lambda: produced(b"one ", b"two", gate=never, seen=seen))), mode="asgi"
        )
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await connection.until(lambda sent: sent.body)
        connection.leave()
        await running
        assert seen == ["piece", "CancelledError"]
        assert (await project.over_asgi("POST", "/", b"{}", LINES)).problem == "response-not-stored"

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_async_source_that_breaks_frees_the_key_and_its_error_comes_out(make_project: MakeProject) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise RuntimeError("the source broke")

    async def scenario() -> None:
        project = make_project(path("", async_view_of(broken)), mode="asgi")
        with pytest.raises(RuntimeError, match="source broke"):
            await project.connection("POST", "/", b"{}", LINES).run()
        assert project.kinds == ["claimed", "failed"]

    asyncio.run(scenario())


def test_what_an_async_answer_holds_open_is_closed_once_after_it(make_project: MakeProject) -> None:
    events: list[str] = []

    class Source:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Source:
            return self

        async def __anext__(self) -> bytes:
            assert "closed" not in events
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            events.append("piece")
            return b"x"

        def close(self) -> None:
            events.append("closed")

    project = make_project(path("", async_view_of(Source)), mode="asgi")
    assert project.post().body == b"xx"
    assert events == ["piece", "piece", "closed"]


def test_an_async_stream_under_wsgi_and_a_sync_one_under_asgi_are_kept(make_project: MakeProject) -> None:
    """Django reads both kinds in both ways, with a warning (django/django#16384)."""
    project = make_project(path("", async_view_of(lambda: produced(b"one ", b"two"))), mode="wsgi")
    with pytest.warns(Warning, match="synchronous"):
        assert project.post().body == b"one two"
    assert project.post().is_replay

    project = make_project(path("", async_view_of(lambda: Pieces(b"one ", b"two"))), mode="asgi")
    with pytest.warns(Warning, match="asynchronous"):
        assert project.post().body == b"one two"
    assert project.post().is_replay


@pytest.mark.parametrize("content", [b"", b"ignored"])
def test_an_async_answer_without_body_is_recorded_before_its_head(make_project: MakeProject, content: bytes) -> None:
    async def scenario() -> None:
        project = make_project(path("", async_view_of(lambda: produced(content), status=204)), mode="asgi")
        connection = project.connection("POST", "/", b"{}", LINES)
        heads: list[list[str]] = []
        connection.on_send = lambda message: heads.append(project.kinds)
        await connection.run()
        assert heads[0] == ["claimed", "completed"]
        assert connection.body == b""

    asyncio.run(scenario())


class Replaces:
    """Gives an answer of its own for one that is streamed."""

    async_capable, sync_capable = True, False

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        response = await self.get_response(request)
        await sync_to_async(response.close)()
        return HttpResponse("mine")


def test_a_stream_that_nobody_asks_for_is_recorded(make_project: MakeProject) -> None:
    async def scenario() -> None:
        project = make_project(
            path("", async_view_of(lambda: produced(b"one ", b"two"))),
            mode="asgi",
            middleware=("tests.adapters.django.test_streams.Replaces", *MIDDLEWARE),
        )
        assert (await project.over_asgi("POST", "/", b"{}", LINES)).body == b"mine"
        await asyncio.to_thread(eventually, lambda: "completed" in project.kinds, what="it is recorded")

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_async_stream_without_its_loop_is_not_kept(make_project: MakeProject) -> None:
    project = make_project(path("", async_view_of(lambda: produced(b"one"))), mode="wsgi")
    exchange = Exchange(project.environ("POST", "/", b"{}", LINES), unread=True)
    exchange.close()
    assert project.post().problem == "response-not-stored"


def test_a_stream_that_ended_has_ended(make_project: MakeProject) -> None:
    async def scenario() -> None:
        streams: list[Any] = []

        async def view(request: Any) -> StreamingHttpResponse:
            response = StreamingHttpResponse(produced(b"one"))
            streams.append(response)
            return response

        project = make_project(path("", view), mode="asgi")
        await project.over_asgi("POST", "/", b"{}", LINES)
        stream = streams[0]._iterator
        assert [piece async for piece in stream] == []
        await stream.aclose()

    asyncio.run(scenario())


@notices_leaving
def test_a_source_that_fails_after_its_client_left_frees_the_key(make_project: MakeProject) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()

        async def broken() -> AsyncIterator[bytes]:
            yield b"one"
            await gate.wait()
            raise RuntimeError("the source broke")

        project = make_project(path("", async_view_of(broken)), mode="asgi")
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await connection.until(lambda sent: sent.body)
        connection.leave()
        await asyncio.sleep(0)
        gate.set()
        await running
        await asyncio.to_thread(eventually, lambda: "failed" in project.kinds, what="it is recorded")

    asyncio.run(asyncio.wait_for(scenario(), 20))


@notices_leaving
def test_a_body_that_grows_too_large_after_its_client_left_is_given_up(make_project: MakeProject) -> None:
    async def scenario() -> None:
        gate, seen = asyncio.Event(), list[str]()
        view = async_view_of(lambda: produced(b"one ", b"x" * 100, b"never", gate=gate, seen=seen))
        project = make_project(path("", view), mode="asgi", max_response_bytes=50)
        connection = project.connection("POST", "/", b"{}", LINES)
        running = asyncio.create_task(connection.run())
        await connection.until(lambda sent: sent.body)
        connection.leave()
        await asyncio.sleep(0)
        gate.set()
        await running
        answer = await project.over_asgi("POST", "/", b"{}", LINES)
        assert answer.problem == "response-not-stored"
        assert seen[-1] == "GeneratorExit"

    asyncio.run(asyncio.wait_for(scenario(), 20))
