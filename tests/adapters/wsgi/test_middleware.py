"""The WSGI middleware: who is covered, what the application sees, what its exceptions leave behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.validate import validator

import pytest

from idem_middleware import ConfigurationError, EventKind, MemoryStore
from idem_middleware.body import SPOOL_BYTES
from idem_middleware.testing import Fault
from idem_middleware.wsgi import IdempotencyMiddleware
from idem_middleware.wsgi.middleware import LEASE
from tests.adapters.support.bench import Bench
from tests.adapters.support.server import Seen, Server, environ_of
from tests.adapters.wsgi.apps import STREAMED, TEXT, WHOLE, Answering, Closable, Counted

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def server_of(bench: Bench, app: WSGIApplication, **options: Any) -> Server:
    return Server(IdempotencyMiddleware(app, engine=bench.engine, **options), bench.journal)


def problem(seen: Seen) -> str:
    """The end of a problem's type."""
    assert seen.header("Content-Type") == "application/problem+json"
    kind: str = json.loads(seen.body)["type"]
    return kind.rpartition("/")[2].rpartition(":")[2]


class TestWhatIsProtected:
    """And what passes untouched."""

    def test_a_retry_is_replayed_and_not_run(self, bench: Bench) -> None:
        app = Answering()
        server = server_of(bench, app)
        assert [server.post().replayed, server.post().replayed] == [False, True]
        assert app.runs == 1

    def test_another_body_under_the_same_key_is_refused(self, bench: Bench) -> None:
        app = Answering()
        server = server_of(bench, app)
        server.post(body=b"1")
        assert problem(server.post(body=b"2")) == "key-reused"
        assert app.runs == 1

    def test_a_missing_key_is_refused_before_anything_is_read(self, bench: Bench) -> None:
        app = Answering()
        environ = environ_of(key=None)
        assert problem(server_of(bench, app).serve(environ)) == "key-missing"
        assert environ["wsgi.input"].tell() == 0
        assert app.runs == 0

    @pytest.mark.parametrize(
        ("request_", "options"),
        [
            ({"method": "GET", "body": None}, {}),
            ({"method": "POST", "path": "/health"}, {"exempt_paths": ["/health"]}),
            ({"method": "POST", "path": "/other"}, {"paths": ["/api"]}),
            ({"method": "POST", "key": None}, {"require_key": False}),
            ({"method": "POST"}, {"mode": "off"}),
        ],
    )
    def test_what_is_not_covered_keeps_its_environment_and_its_answer(
        self, bench: Bench, request_: dict[str, Any], options: dict[str, Any]
    ) -> None:
        produced = Closable([b"a"])
        app = Counted(Answering(body=produced))
        environ = environ_of(**request_)
        body = environ["wsgi.input"]
        started: list[str] = []
        middleware = IdempotencyMiddleware(app, engine=bench.engine, **options)

        def start_response(status: str, headers: list[tuple[str, str]], *rest: Any) -> Callable[[bytes], object]:
            started.append(status)
            return lambda data: None

        assert middleware(environ, start_response) is produced
        assert app.environs[0] is environ
        assert environ["wsgi.input"] is body
        assert LEASE not in environ
        assert bench.calls == []

    def test_the_path_of_a_mounted_application_counts_from_the_servers_root(self, bench: Bench) -> None:
        server = server_of(bench, Answering(), paths=["/shop/orders"])
        assert problem(server.post("/orders", key=None, SCRIPT_NAME="/shop")) == "key-missing"

    def test_the_application_finds_its_lease(self, bench: Bench) -> None:
        app = Counted(Answering())
        server_of(bench, app).post()
        assert app.environs[0][LEASE].attempt == 1

    def test_an_inner_instance_steps_aside(self, bench: Bench) -> None:
        app = Answering()
        inner = IdempotencyMiddleware(app, MemoryStore())
        server = server_of(bench, inner)
        assert [server.post().status, server.post().status] == [201, 201]
        assert app.runs == 1

    def test_an_inner_instance_protects_what_the_outer_leaves_out(self, bench: Bench) -> None:
        app = Answering()
        server = server_of(bench, IdempotencyMiddleware(app, MemoryStore()), exempt_paths=["/orders"])
        assert [server.post().replayed, server.post().replayed] == [False, True]
        assert bench.calls == []


class TestBodies:
    """The application reads as if nobody had read before."""

    @pytest.mark.parametrize("size", [0, 10, SPOOL_BYTES + 10])
    def test_come_whole(self, bench: Bench, size: int) -> None:
        app, body = Answering(), os.urandom(size)
        server_of(bench, app).post(body=body)
        assert app.inputs == [body]

    def test_chunked_ones_of_a_server_that_ends_its_input_come_whole(self, bench: Bench) -> None:
        seen = []

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            seen.append(environ["wsgi.input"].read())
            start_response("200 OK", [TEXT])
            return []

        server_of(bench, app).post(body=b"chunks", chunked=True)
        assert seen == [b"chunks"]

    def test_can_be_read_by_lines_and_by_a_caller_function_before(self, bench: Bench) -> None:
        seen = []

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            seen.extend(environ["wsgi.input"])
            start_response("200 OK", [TEXT])
            return []

        def caller(environ: WSGIEnvironment) -> str:
            return str(environ["wsgi.input"].readline())

        server_of(bench, app, caller=caller).post(body=b"me\nand more\n")
        assert seen == [b"me\n", b"and more\n"]

    def test_half_of_one_claims_nothing(self, bench: Bench) -> None:
        app = Answering()
        environ = environ_of(body=b"half")
        environ["CONTENT_LENGTH"] = "100"
        assert server_of(bench, app).serve(environ).status == 400
        assert (app.runs, bench.calls) == (0, [])

    @pytest.mark.parametrize("declared", [True, False])
    def test_too_large_ones_are_refused_and_claim_nothing(self, bench: Bench, declared: bool) -> None:  # noqa: FBT001
        app = Answering()
        environ = environ_of(body=b"x" * 101, chunked=not declared)
        source = environ["wsgi.input"]
        seen = server_of(bench, app, max_request_bytes=100).serve(environ)
        assert problem(seen) == "request-too-large"
        assert seen.status == 413
        assert (app.runs, bench.calls) == (0, [])
        assert source.tell() == 0 or not declared


class TestCallers:
    """Whose key it is."""

    @pytest.mark.parametrize("answer", [None, "", 1.5, object()])
    def test_who_can_not_be_named_is_refused(self, bench: Bench, answer: object) -> None:
        app = Answering()
        assert problem(server_of(bench, app, caller=lambda environ: answer).post()) == "caller-unknown"
        assert (app.runs, bench.calls) == (0, [])

    def test_a_function_that_raises_refuses(self, bench: Bench) -> None:
        def caller(environ: WSGIEnvironment) -> str:
            raise KeyError("REMOTE_USER")

        assert server_of(bench, Answering(), caller=caller).post().status == 403

    def test_each_has_keys_of_its_own(self, bench: Bench) -> None:
        app = Answering()
        server = server_of(bench, app, caller=lambda environ: environ["REMOTE_USER"])
        server.post(REMOTE_USER="ann")
        server.post(REMOTE_USER="bob")
        assert app.runs == 2
        assert server.post(REMOTE_USER="bob").replayed


class TestObserving:
    """`mode="observe"` reports, and lets everything run as before."""

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({}, "key-reused"),
            ({"caller": lambda environ: None}, "caller-unknown"),
            ({"max_request_bytes": 1}, "request-too-large"),
        ],
    )
    def test_what_would_be_refused_runs_with_its_whole_body(
        self, bench: Bench, options: dict[str, Any], told: str
    ) -> None:
        app = Answering()
        server = server_of(bench, app, mode="observe", **options)
        assert [server.post(body=b"one").status, server.post(body=b"two").status] == [201, 201]
        assert app.inputs == [b"one", b"two"]
        event = bench.told(EventKind.REFUSED)[-1]
        assert (event.reason, event.observed) == (told, True)

    def test_half_a_request_goes_on_as_without_it(self, bench: Bench) -> None:
        app = Answering()
        environ = environ_of(body=b"half")
        environ["CONTENT_LENGTH"] = "100"
        assert server_of(bench, app, mode="observe").serve(environ).status == 201
        assert app.inputs == [b"half"]


class TestWhatTheApplicationRaises:
    """Comes out as the same object; the record says what it means."""

    @pytest.mark.parametrize(
        ("error", "state"), [(ValueError("mine"), "FAILED"), (SystemExit(1), "PENDING"), (GeneratorExit(), "PENDING")]
    )
    @pytest.mark.parametrize("when", ["called", "iterated"])
    def test_before_its_answer(self, bench: Bench, error: BaseException, state: str, when: str) -> None:
        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            raise error
            yield b""

        raising = Answering(error=error) if when == "called" else app
        with pytest.raises(type(error)) as caught:
            server_of(bench, raising).post()
        assert caught.value is error
        assert bench.state == state

    def test_while_it_is_iterated_closes_it_and_nothing_that_close_raises_hides_it(self, bench: Bench) -> None:
        error = ValueError("mine")

        class Failing(Closable):
            def __iter__(self) -> Any:
                raise error
                yield b""

            def close(self) -> None:
                super().close()
                raise KeyError("another")

        produced = Failing([])
        with pytest.raises(ValueError, match="mine") as caught:
            server_of(bench, Answering(body=produced)).post()
        assert caught.value is error
        assert produced.closed == 1

    def test_a_body_of_no_bytes_is_a_failure_too(self, bench: Bench) -> None:
        with pytest.raises(TypeError):
            server_of(bench, Answering(body=b"bytes give numbers")).post()  # type: ignore[arg-type]
        assert bench.state == "FAILED"

    def test_with_on_error_refuse_nobody_runs_it_again(self, bench: Bench) -> None:
        app = Answering(error=ValueError("mine"))
        server = server_of(bench, app, on_error="refuse")
        with pytest.raises(ValueError, match="mine"):
            server.post()
        assert problem(server.post()) == "outcome-unknown"
        assert app.runs == 1


class TestWhatIsAnswered:
    """Which answers are final."""

    @pytest.mark.parametrize(
        ("status", "state"),
        [
            ("200 OK", "COMPLETED"),
            ("303 See Other", "COMPLETED"),
            ("404 Not Found", "COMPLETED"),
            ("500 Internal Server Error", "FAILED"),
            ("429 Too Many Requests", "FAILED"),
            ("308 Permanent Redirect", "FREE"),
        ],
    )
    def test_leaves_its_record(self, bench: Bench, status: str, state: str) -> None:
        server_of(bench, Answering(status)).post()
        assert bench.state == state

    @pytest.mark.parametrize(("allow", "state"), [("GET, HEAD", "FREE"), ("POST", "COMPLETED"), (None, "COMPLETED")])
    def test_a_405_of_a_dispatcher_leaves_the_key_free(self, bench: Bench, allow: str | None, state: str) -> None:
        headers = [TEXT] if allow is None else [TEXT, ("Allow", allow)]
        server_of(bench, Answering("405 Method Not Allowed", headers=headers)).post()
        assert bench.state == state

    def test_headers_come_again_in_order_but_those_of_the_moment(self, bench: Bench) -> None:
        kept = [TEXT, ("Link", "</1>"), ("Location", "/orders/1"), ("Link", "</2>"), ("ETag", '"x"')]
        server = server_of(bench, Answering(headers=[*kept, ("Set-Cookie", "a=1"), ("Date", "then")]))
        server.post()
        again = server.post()
        assert again.headers == [*kept, ("Idempotent-Replayed", "true"), ("Content-Length", "4")]

    def test_too_large_is_sent_and_not_kept(self, bench: Bench) -> None:
        server = server_of(bench, Answering(body=[b"x" * 101], headers=[TEXT]), max_response_bytes=100)
        assert len(server.post().body) == 101
        assert problem(server.post()) == "response-not-stored"


class TestTheStoreFails:
    """Before the work."""

    def test_nothing_runs(self, bench: Bench) -> None:
        app = Answering()
        bench.store.fail(Fault.LOST_REQUEST, on="create")
        seen = server_of(bench, app).post()
        assert problem(seen) == "store-unavailable"
        assert seen.header("Retry-After") == "1"
        assert app.runs == 0

    def test_with_bypass_it_runs_and_says_so(self, bench: Bench) -> None:
        bench.store.fail(Fault.LOST_REQUEST, on="create")
        seen = server_of(bench, Answering(), on_store_error="bypass").post()
        assert seen.body == b"done"
        assert seen.header("Idempotency-Bypassed") == "store-unavailable"


class TestConfiguration:
    """Wrong ones do not start."""

    def test_all_mistakes_come_at_once_with_the_nearest_name(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            IdempotencyMiddleware(Answering(), lease_second=30, wait_seconds=-1)
        text = str(caught.value)
        assert "lease_second is not an option; did you mean lease_seconds?" in text
        assert "wait_seconds must be" in text
        assert "give a store" in text

    def test_a_url_names_a_store(self) -> None:
        server = Server(IdempotencyMiddleware(Answering(), "memory://", caller="shared"))
        assert [server.post().replayed, server.post().replayed] == [False, True]


@pytest.mark.parametrize("app", [*WHOLE, *STREAMED], ids=lambda app: app.__name__)
@pytest.mark.parametrize("around", ["application", "middleware", "both"])
def test_the_specifications_validator_has_nothing_to_say(bench: Bench, app: WSGIApplication, around: str) -> None:
    """`wsgiref.validate` checks every call between server, middleware and application."""
    if around != "middleware":
        app = validator(app) if app.__name__ != "write_within_the_stream" else app
    middleware: WSGIApplication = IdempotencyMiddleware(app, engine=bench.engine)
    server = Server(middleware if around == "application" else validator(middleware))
    for expected in (201, 201, 400, 422):
        request = {400: {"key": None}, 422: {"body": b"other"}}.get(expected, {})
        assert server.serve(environ_of(**request)).status == expected  # type: ignore[arg-type]
