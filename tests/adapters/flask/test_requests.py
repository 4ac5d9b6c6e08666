"""What a Flask application with the extension does to its requests and answers."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, Response, after_this_request, flash, g, get_flashed_messages, redirect, request, session
from flask.typing import ResponseReturnValue
from flask.views import MethodView

from idem_flask import Idempotency
from idem_middleware import EventKind
from idem_middleware.testing import Fault
from tests.adapters.flask.shop import Shop, post, problem, replayed
from tests.adapters.support.bench import Bench


def test_a_retry_is_replayed_and_not_run(bench: Bench) -> None:
    shop = Shop(bench)
    first, second = shop.post(), shop.post()
    assert (first.status_code, first.data, replayed(first)) == (201, b"done", False)
    assert (second.status_code, second.data, replayed(second)) == (201, b"done", True)
    assert shop.runs == 1


def test_a_replay_has_the_same_headers_in_order_and_no_more_of_flasks_own(bench: Bench) -> None:
    def answer() -> Response:
        response = Response(b"\x00\xff", 202)
        response.headers.clear()
        for name, value in (("Link", "</1>"), ("ETag", '"x"'), ("Link", "</2>"), ("X-Note", "gr\xfc\xdf")):
            response.headers.add(name, value)
        return response

    shop = Shop(bench, answer)
    first, second = shop.post(), shop.post()
    kept = [("Link", "</1>"), ("ETag", '"x"'), ("Link", "</2>"), ("X-Note", "gr\xfc\xdf")]
    assert list(first.headers) == [*kept, ("Content-Length", "2")]
    assert list(second.headers) == [*kept, ("Idempotent-Replayed", "true"), ("Content-Length", "2")]
    assert second.data == b"\x00\xff"


def test_a_location_with_letters_of_any_language_is_replayed_as_it_was_sent(bench: Bench) -> None:
    shop = Shop(bench, lambda: Response("", 201, {"Location": "/bestellungen/größe"}))
    assert shop.post().headers["Location"] == shop.post().headers["Location"] == "/bestellungen/gr%C3%B6%C3%9Fe"


def test_the_record_is_there_before_the_first_byte(bench: Bench) -> None:
    Shop(bench).server().post()
    assert bench.journal == ["stored PENDING", "stored COMPLETED", "head 201", "sent done", "complete", "close"]


class TestWhatIsNotCovered:
    """Passes as if nothing were there."""

    def test_a_get_and_its_head(self, bench: Bench) -> None:
        shop = Shop(bench)
        assert shop.client().get("/orders", headers={"Idempotency-Key": "k"}).status_code == 201
        assert shop.client().head("/orders").status_code == 201
        assert bench.calls == []

    def test_a_preflight(self, bench: Bench) -> None:
        assert Shop(bench).client().options("/orders").status_code == 200
        assert bench.calls == []

    @pytest.mark.parametrize("options", [{"exempt_paths": ["/orders"]}, {"paths": ["/else"]}, {"mode": "off"}])
    def test_what_the_options_leave_out(self, bench: Bench, options: dict[str, Any]) -> None:
        shop = Shop(bench, **options)
        assert [shop.post(key=None).status_code, shop.post().status_code] == [201, 201]
        assert (shop.runs, bench.calls) == (2, [])

    def test_paths_are_the_applications_own_wherever_it_is_mounted(self, bench: Bench) -> None:
        shop = Shop(bench, exempt_paths=["/orders"])
        assert shop.post(key=None, base_url="http://localhost/shop").status_code == 201


class TestWhatTheViewFinds:
    """In `flask.g.idempotency`."""

    def test_is_its_lease(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: f"{g.idempotency.attempt} {g.idempotency.derive_key('mail')}")
        attempt, _, derived = shop.post().text.partition(" ")
        assert attempt == "1"
        assert len(derived) == 36

    def test_is_none_where_nothing_is_protected(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: str(g.idempotency), exempt_paths=["/"])
        assert shop.post().text == "None"
        assert shop.client().get("/orders").text == "None"

    def test_is_not_that_of_the_request_before_where_a_test_keeps_the_application_context(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: str(g.idempotency is None), require_key=False)
        with shop.app.app_context():
            assert [shop.post().text, shop.post(key=None).text] == ["False", "True"]

    def test_can_be_settled_by_the_view_itself(self, bench: Bench) -> None:
        def answer() -> ResponseReturnValue:
            g.idempotency.fail()
            return "not really", 200

        shop = Shop(bench, answer)
        assert [replayed(shop.post()), replayed(shop.post())] == [False, False]
        assert shop.runs == 2


class TestWhoAnswersBeforeTheView:
    """Nothing is claimed for what never reached a view."""

    @pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/only-get", 405), ("/folder", 308)])
    def test_the_router_leaves_the_key_free(self, bench: Bench, path: str, status: int) -> None:
        shop = Shop(bench)
        shop.app.get("/only-get")(lambda: "")
        shop.app.add_url_rule("/folder/", "folder", view_func=lambda: "here", methods=["POST"])
        assert shop.post(path).status_code == status
        assert bench.calls == []
        assert shop.post().status_code == 201

    def test_a_redirected_client_may_use_the_same_key_at_the_new_address(self, bench: Bench) -> None:
        shop = Shop(bench)
        shop.app.add_url_rule("/folder/", "folder", view_func=shop.order, methods=["POST"])
        assert shop.post("/folder", follow_redirects=True).status_code == 201
        assert bench.state == "COMPLETED"

    def test_a_login_redirect_is_never_stored(self, bench: Bench) -> None:
        shop = Shop(bench)

        @shop.app.before_request
        def login() -> ResponseReturnValue | None:
            return None if "user" in session else redirect("/login")

        client = shop.client()
        assert post(client).status_code == 302
        assert bench.calls == []
        with client.session_transaction() as known:
            known["user"] = "ann"
        assert [post(client).status_code, post(client).status_code] == [201, 201]
        assert shop.runs == 1

    def test_a_replay_asks_for_the_login_first(self, bench: Bench) -> None:
        """margince/margince#5315, MCKRUZ/microsoft-agentic-harness#127: replays came before authorisation."""
        shop, allowed = Shop(bench), [True]

        @shop.app.before_request
        def authorise() -> ResponseReturnValue | None:
            return None if allowed[0] else ("revoked", 403)

        assert shop.post().status_code == 201
        allowed[0] = False
        assert shop.post().status_code == 403

    def test_an_extension_that_aborts_later_leaves_nothing_behind(self, bench: Bench) -> None:
        shop = Shop(bench)
        shop.app.before_request(lambda: ("try later", 503))
        assert shop.post().status_code == 503
        assert bench.calls == []

    def test_a_method_that_a_view_class_lacks_leaves_the_key_free(self, bench: Bench) -> None:
        class Orders(MethodView):
            def get(self) -> str:
                return ""

        shop = Shop(bench)
        shop.app.add_url_rule("/class", view_func=Orders.as_view("class"), methods=["GET"])
        assert shop.post("/class").status_code == 405
        assert bench.calls == []

    def test_a_views_own_405_says_that_no_handler_took_the_method(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: Response("", 405, {"Allow": "GET"}))
        shop.post()
        assert bench.state == "FREE"


class TestWhatIsAddedToAnswers:
    """By the view, by the application, by the session."""

    def test_what_the_view_asks_for_after_this_request_is_kept(self, bench: Bench) -> None:
        def answer() -> str:
            @after_this_request
            def add(response: Response) -> Response:
                response.headers["X-By-View"] = "1"
                return response

            return "done"

        shop = Shop(bench, answer)
        assert [shop.post().headers.get("X-By-View"), shop.post().headers.get("X-By-View")] == ["1", "1"]

    def test_what_the_application_adds_to_every_answer_is_added_to_replays_anew(self, bench: Bench) -> None:
        shop = Shop(bench)

        @shop.app.after_request
        def cors(response: Response) -> Response:
            response.headers["Access-Control-Allow-Origin"] = request.headers.get("Origin", "")
            response.headers.add("Vary", "Origin")
            return response

        shop.post(headers={"Origin": "https://a.example"})
        for _ in range(2):
            again = shop.post(headers={"Origin": "https://b.example"})
            assert replayed(again)
            assert again.headers["Access-Control-Allow-Origin"] == "https://b.example"
            assert again.headers.getlist("Vary") == ["Origin"]

    def test_refusals_pass_it_too(self, bench: Bench) -> None:
        """NousResearch/hermes-agent#3530: a browser can't read a refusal that does not come by the CORS layer."""
        shop = Shop(bench)

        @shop.app.after_request
        def cors(response: Response) -> Response:
            response.headers["Access-Control-Allow-Origin"] = "*"
            return response

        refused = shop.post(key=None)
        assert problem(refused) == "key-missing"
        assert refused.headers["Access-Control-Allow-Origin"] == "*"

    def test_a_session_is_opened_and_saved_as_ever_and_its_cookie_is_in_no_replay(self, bench: Bench) -> None:
        def answer() -> str:
            session["orders"] = session.get("orders", 0) + 1
            flash("ordered")
            return "done"

        shop = Shop(bench, answer)
        client, stranger = shop.client(), shop.client()
        assert "Set-Cookie" in post(client).headers
        again = post(stranger)
        assert replayed(again)
        assert "Set-Cookie" not in again.headers
        assert stranger.get_cookie("session") is None
        assert replayed(post(client))
        with client.session_transaction() as known:
            assert known["orders"] == 1
            assert known["_flashes"] == [("message", "ordered")]

    def test_a_replay_consumes_no_flashed_message(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: str(get_flashed_messages()))
        client = shop.client()
        post(client)
        with client.session_transaction() as known:
            known["_flashes"] = [("message", "later")]
        assert replayed(post(client))
        assert client.get("/orders").text == "['later']"

    def test_cookies_of_the_view_are_not_replayed(self, bench: Bench) -> None:
        def answer() -> Response:
            response = Response("done")
            response.set_cookie("token", "mine")
            return response

        shop = Shop(bench, answer)
        assert "Set-Cookie" in shop.post().headers
        assert "Set-Cookie" not in shop.post().headers


class TestWhoCalls:
    """`caller` gets Flask's own request."""

    def test_by_anything_that_the_request_says(self, bench: Bench) -> None:
        shop = Shop(bench, caller=lambda flask_request: flask_request.authorization.username)
        for user in ("ann", "bob", "ann"):
            shop.post(auth=(user, "x"))
        assert shop.runs == 2

    def test_by_the_session(self, bench: Bench) -> None:
        shop = Shop(bench, caller=lambda _: session.get("user"))
        assert problem(shop.post()) == "caller-unknown"
        client = shop.client()
        with client.session_transaction() as known:
            known["user"] = 7
        assert post(client).status_code == 201

    def test_by_the_body_without_using_it_up(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: request.get_json()["user"], caller=lambda req: req.get_json()["user"])
        assert shop.post(json={"user": "ann"}).text == "ann"

    @pytest.mark.parametrize("answer", [None, "", b"ann", 1.5, ["ann"], True])
    def test_who_has_no_name_is_refused_and_runs_nothing(self, bench: Bench, answer: object) -> None:
        shop = Shop(bench, caller=lambda _: answer)
        refused = shop.post()
        assert (problem(refused), refused.status_code) == ("caller-unknown", 403)
        assert (shop.runs, bench.calls) == (0, [])

    def test_a_function_that_raises_refuses_and_its_error_is_logged(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        shop = Shop(bench, caller=lambda _: session["user"])
        assert problem(shop.post()) == "caller-unknown"
        assert "KeyError" in caplog.text

    def test_a_callers_refusal_is_only_reported_while_observing(self, bench: Bench) -> None:
        shop = Shop(bench, caller=lambda _: None, mode="observe")
        assert shop.post().status_code == 201
        assert bench.told(EventKind.REFUSED)[-1].observed


class TestModes:
    """For a roll-out."""

    def test_observe_decides_and_reports_and_runs_everything(self, bench: Bench) -> None:
        shop = Shop(bench, mode="observe")
        assert [shop.post().status_code, shop.post(data="other").status_code, shop.post(key=None).status_code] == [
            201
        ] * 3
        assert shop.runs == 3
        assert [event.reason for event in bench.told(EventKind.REFUSED)] == ["key-reused", "key-missing"]

    def test_the_environment_switches_everything_off(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("IDEMPOTENCY_MODE", "off")
        shop = Shop(bench)
        assert [shop.post().status_code, shop.post().status_code] == [201, 201]
        assert (shop.runs, bench.calls) == (2, [])


class TestTheStoreFails:
    """Before the work and after it."""

    def test_before_it_nothing_runs(self, bench: Bench) -> None:
        """Dev1822/paySphere#1919, unkeyed/unkey#5282: with the store down requests ran unprotected unnoticed."""
        shop = Shop(bench)
        bench.store.fail(Fault.LOST_REQUEST, on="create")
        refused = shop.post()
        assert (problem(refused), refused.status_code, refused.headers["Retry-After"]) == (
            "store-unavailable",
            503,
            "1",
        )
        assert shop.runs == 0

    def test_with_bypass_the_answer_says_that_it_ran_unprotected(self, bench: Bench) -> None:
        shop = Shop(bench, on_store_error="bypass")
        bench.store.fail(Fault.LOST_REQUEST, on="create")
        answer = shop.post()
        assert (answer.text, answer.headers["Idempotency-Bypassed"]) == ("done", "store-unavailable")
        assert "bypassed" in bench.kinds

    def test_after_it_the_client_has_its_true_answer_and_nothing_runs_twice(self, bench: Bench) -> None:
        """aws-powertools/powertools-lambda-typescript#2944: a result that could not be saved freed its key."""
        shop = Shop(bench)
        bench.store.fail(Fault.LOST_REQUEST, on="swap", times=None)
        assert shop.post().text == "done"
        assert problem(shop.post()) == "in-progress"
        bench.store.recover()
        bench.pass_by(10)
        assert replayed(shop.post())
        assert shop.runs == 1


class TestALostLease:
    """The work takes so long that another worker takes the key over."""

    def test_its_client_gets_the_winners_answer_and_the_views_answer_is_closed(self, bench: Bench) -> None:
        closed: list[str] = []
        shop = Shop(bench)

        def answer() -> Response:
            bench.clock.advance(100)
            shop.answer = lambda: "winner"
            assert shop.post().text == "winner"
            response = Response("loser")
            response.call_on_close(lambda: closed.append("loser"))
            return response

        shop.answer = answer
        loser = shop.post()
        assert (loser.text, replayed(loser)) == ("winner", True)
        loser.close()
        assert closed == ["loser"]
        assert bench.told(EventKind.EXECUTED_NOT_RECORDED)

    def test_its_client_gets_its_own_answer_while_there_is_no_other(self, bench: Bench) -> None:
        shop = Shop(bench)

        def answer() -> str:
            bench.take_over()
            return "mine"

        shop.answer = answer
        assert shop.post().text == "mine"
        assert bench.records[0].owner == "another"


def test_apps_of_a_factory_share_nothing_but_what_they_are_given(bench: Bench) -> None:
    shops = [Shop(bench, namespace=name) for name in ("a", "b")]
    assert [shop.post().status_code for shop in shops] == [201, 201]
    assert [replayed(shop.post()) for shop in shops] == [True, True]
    assert [shop.runs for shop in shops] == [1, 1]


def test_a_subclass_that_dispatches_in_its_own_way_is_protected_too(bench: Bench) -> None:
    class Own(Flask):
        def dispatch_request(self, *args: Any) -> Any:
            answer: Any = super().dispatch_request(*args)
            return f"own {answer}"

    app = Own("own")
    Idempotency(app, engine=bench.engine)
    app.post("/orders")(lambda: "done")
    assert [post(app.test_client()).text, post(app.test_client()).text] == ["own done", "own done"]
    assert bench.state == "COMPLETED"
