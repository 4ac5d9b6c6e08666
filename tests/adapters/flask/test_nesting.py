"""Applications within applications, contexts that are copied, and middleware around: one request is claimed once."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, Response, copy_current_request_context, current_app, g, request
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.wrappers import Response as WerkzeugResponse

from idem_flask import Idempotency
from idem_middleware import MemoryStore
from idem_middleware.wsgi import IdempotencyMiddleware
from tests.adapters.flask.shop import Shop, post, replayed
from tests.adapters.support.bench import Bench
from tests.adapters.support.server import Server, environ_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class TestADispatcher:
    """Of Werkzeug, with several applications."""

    def test_mounts_two_that_are_protected_each_by_itself(self, bench: Bench) -> None:
        one, two = Shop(bench, namespace="one"), Shop(bench, namespace="two")
        server = Server(DispatcherMiddleware(one.app, {"/two": two.app}))
        for path in ("/orders", "/two/orders"):
            assert [server.post(path).replayed, server.post(path).replayed] == [False, True]
        assert (one.runs, two.runs) == (1, 1)

    def test_of_two_with_one_namespace_tells_their_paths_apart(self, bench: Bench) -> None:
        one, two = Shop(bench), Shop(bench)
        server = Server(DispatcherMiddleware(one.app, {"/two": two.app}))
        assert [server.post("/orders").status, server.post("/two/orders").status] == [201, 422]

    @pytest.mark.parametrize("inside", [True, False])
    def test_around_the_applications_own_stack_changes_nothing(self, bench: Bench, inside: bool) -> None:  # noqa: FBT001
        other = Shop(bench, exempt_paths=["/"])
        app = Flask("outer")
        app.post("/orders")(lambda: request.data)
        if inside:
            app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/other": other.app})  # type: ignore[method-assign]
        Idempotency(app, engine=bench.engine)
        if not inside:
            app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/other": other.app})  # type: ignore[method-assign]
        server = Server(app)
        assert [server.post(body=b"x").body, server.post(body=b"x").body] == [b"x", b"x"]
        assert [server.post("/other/orders", key=None).status for _ in range(2)] == [201, 201]
        assert len(bench.records) == 1


class TestAnInnerApplication:
    """Called by a view of another one, with the same environment or a copy."""

    @staticmethod
    def outer(bench: Bench, call: Callable[[Flask], Any], *, protected: bool = True) -> tuple[Shop, Shop]:
        inner = Shop(bench)
        shop = Shop(bench, lambda: call(inner.app), **({} if protected else {"exempt_paths": ["/"]}))
        return shop, inner

    @staticmethod
    def by_response(app: Flask) -> WerkzeugResponse:
        return Response.from_app(app, request.environ)

    @staticmethod
    def by_hand(app: Flask) -> bytes:
        return b"".join(app.wsgi_app(request.environ, lambda *_: lambda data: None))

    @pytest.mark.parametrize("how", ["by_response", "by_hand"])
    def test_steps_aside_for_the_outer_claim(self, bench: Bench, how: str) -> None:
        shop, inner = self.outer(bench, getattr(self, how))
        assert [shop.post().text, shop.post().text] == ["done", "done"]
        assert (shop.runs, inner.runs) == (1, 1)
        assert bench.states == ["COMPLETED"]

    def test_leaves_the_outer_claim_alone_when_it_fails(self, bench: Bench) -> None:
        """aws-powertools/powertools-lambda-typescript#5675: a cleanup hook freed a claim that was not its own."""
        shop, inner = self.outer(bench, self.by_response)

        def failing() -> str:
            raise ValueError("inner")

        def answer() -> str:
            assert Response.from_app(inner.app, request.environ).status_code == 500
            assert bench.state == "PENDING"
            return "outer went on"

        inner.answer, shop.answer = failing, answer
        assert shop.post().text == "outer went on"
        assert bench.state == "COMPLETED"

    def test_finds_the_outer_lease(self, bench: Bench) -> None:
        shop, inner = self.outer(bench, self.by_response)
        inner.answer = lambda: str(g.idempotency.attempt)
        assert shop.post().text == "1"

    def test_is_protected_by_itself_where_the_outer_one_is_not(self, bench: Bench) -> None:
        shop, inner = self.outer(bench, self.by_response, protected=False)
        assert [replayed(shop.post()), replayed(shop.post())] == [False, True]
        assert (shop.runs, inner.runs) == (2, 1)

    def test_may_be_the_same_one(self, bench: Bench) -> None:
        shop = Shop(bench)
        shop.app.post("/again")(lambda: Response.from_app(current_app, {**request.environ, "PATH_INFO": "/orders"}))
        assert [shop.post("/again").text, replayed(shop.post("/again"))] == ["done", True]
        assert shop.runs == 1


class TestContexts:
    """Of Flask, that are copied or made by hand."""

    @pytest.mark.parametrize("ends", ["before the view", "after the view"])
    def test_a_copied_one_that_ends_elsewhere_frees_no_claim(self, bench: Bench, ends: str) -> None:
        """Its end calls the teardown functions, in the middle of the request that it was copied from."""
        go = threading.Event()
        threads: list[threading.Thread] = []

        def answer() -> str:
            work = copy_current_request_context(lambda: go.wait(20))
            # A context of its own, as a greenlet or a thread has.
            thread = threading.Thread(target=contextvars.Context().run, args=(work,))
            thread.start()
            threads.append(thread)
            if ends == "before the view":
                go.set()
                thread.join()
            assert bench.state == "PENDING"
            return "done"

        shop = Shop(bench, answer)
        assert shop.post().text == "done"
        go.set()
        threads[0].join()
        assert bench.state == "COMPLETED"
        assert shop.runs == 1

    def test_one_made_by_hand_within_a_view_is_no_request(self, bench: Bench) -> None:
        def answer() -> str:
            with current_app.test_request_context("/orders", method="POST"):
                pass
            assert bench.state == "PENDING"
            return "done"

        assert Shop(bench, answer).post().text == "done"
        assert bench.state == "COMPLETED"

    def test_one_made_by_hand_outside_of_any_runs_a_view_unprotected(self, bench: Bench) -> None:
        shop = Shop(bench)
        with shop.app.test_request_context("/orders", method="POST"):
            assert shop.app.full_dispatch_request().status_code == 201
            assert g.idempotency is None
        assert bench.calls == []


class TestAround:
    """Middleware of WSGI around the application."""

    def test_our_own_claims_and_the_extension_steps_aside(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: str(g.idempotency.attempt))
        server = Server(IdempotencyMiddleware(shop.app, MemoryStore()))
        assert [server.post().body, server.post().replayed] == [b"1", True]
        assert shop.runs == 1
        assert bench.calls == []

    def test_our_own_holds_even_an_error_of_flasks_back_until_it_is_recorded(self, bench: Bench) -> None:
        app = Flask("bare")
        app.post("/orders")(lambda: "done")
        server = Server(IdempotencyMiddleware(app, engine=bench.engine), bench.journal)
        server.post()
        assert bench.journal[:3] == ["stored PENDING", "stored COMPLETED", "head 200"]

    def test_a_fix_for_proxies_goes_on_either_side(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: request.host_url, caller=lambda flask_request: flask_request.remote_addr)
        shop.app.wsgi_app = ProxyFix(shop.app.wsgi_app)  # type: ignore[method-assign]
        headers = {"X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "https"}
        assert shop.post(headers=headers).text == "https://localhost/"
        assert replayed(shop.post(headers=headers))
        assert not replayed(shop.post(headers={**headers, "X-Forwarded-For": "10.0.0.2"}))

    def test_one_that_answers_by_itself_within_leaves_the_key_free(self, bench: Bench) -> None:
        app = Flask("bare")

        def closed(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            start_response("503 Closed", [])
            return []

        app.wsgi_app = closed  # type: ignore[method-assign]
        Idempotency(app, engine=bench.engine)
        assert Server(app).serve(environ_of()).status == 503
        assert bench.calls == []


def test_clients_that_overlap_in_one_process_run_it_once(bench: Bench) -> None:
    """idempot-dev/idempot-js#181, useautumn/autumn#1851: the loser of a race hears of work in progress."""
    shop = Shop(bench)

    def answer() -> str:
        during = post(shop.client())
        assert during.status_code == 409
        assert int(during.headers["Retry-After"]) >= 1
        other = post(shop.client(), data=b"other")
        assert other.status_code == 422
        return "done"

    shop.answer = answer
    assert shop.post().text == "done"
    assert replayed(shop.post())
    assert shop.runs == 1
