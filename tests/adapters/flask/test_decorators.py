"""Options of single views, classes and blueprints, in Flask's own idiom; and what claims where."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, request
from flask.typing import ResponseReturnValue
from flask.views import MethodView, View

from idem_flask import Idempotency, idempotent, not_idempotent
from idem_middleware import ConfigurationError
from tests.adapters.flask.shop import Shop, post, problem, replayed
from tests.adapters.support.bench import Bench


def login_required(view: Callable[..., Any]) -> Callable[..., Any]:
    """As everybody writes it."""

    @functools.wraps(view)
    def wrapper(*args: Any, **values: Any) -> Any:
        if "Authorization" not in request.headers:
            abort(401)
        return view(*args, **values)

    return wrapper


def careless(view: Callable[..., Any]) -> Callable[..., Any]:
    """Hides what it decorates."""

    def wrapper(*args: Any, **values: Any) -> Any:
        return view(*args, **values)

    return wrapper


@pytest.fixture
def app(bench: Bench) -> Flask:
    """Protects only what is marked."""
    app = Flask("marked")
    Idempotency(app, engine=bench.engine, exempt_paths=["/"])
    return app


class TestAView:
    """That is marked."""

    def test_is_protected_in_an_application_that_protects_nothing_else(self, app: Flask, bench: Bench) -> None:
        app.post("/a")(idempotent(lambda: "a"))
        app.post("/b", endpoint="b")(lambda: "b")
        client = app.test_client()
        assert problem(post(client, "/a", key=None)) == "key-missing"
        assert [replayed(post(client, "/a")), replayed(post(client, "/a"))] == [False, True]
        assert [post(client, "/b", key=None).text, replayed(post(client, "/b"))] == ["b", False]

    def test_has_options_of_its_own(self, app: Flask, bench: Bench) -> None:
        @app.post("/a")
        @idempotent(require_key=False, retention_seconds=10)
        def a() -> str:
            return "a"

        client = app.test_client()
        assert post(client, "/a", key=None).text == "a"
        post(client, "/a")
        assert replayed(post(client, "/a"))
        bench.pass_by(11)
        assert not replayed(post(client, "/a"))

    def test_can_be_left_out(self, bench: Bench) -> None:
        shop = Shop(bench)
        shop.app.post("/a")(not_idempotent(lambda: "a"))
        assert [shop.post("/a", key=None).text, shop.post("/a").text] == ["a", "a"]
        assert bench.calls == []

    def test_gets_its_arguments_and_keeps_its_name(self, app: Flask) -> None:
        @app.post("/a/<int:number>")
        @idempotent
        def a(number: int) -> str:
            """Say it."""
            return str(number)

        assert (a.__name__, a.__doc__) == ("a", "Say it.")
        assert post(app.test_client(), "/a/7").text == "7"

    def test_of_a_coroutine_is_protected(self, app: Flask) -> None:
        pytest.importorskip("asgiref")

        @app.post("/a")
        @idempotent
        async def a() -> str:
            return "a"

        assert [replayed(post(app.test_client(), "/a")), replayed(post(app.test_client(), "/a"))] == [False, True]

    def test_of_a_coroutine_can_be_awaited_by_the_decorators_above_it(self, app: Flask) -> None:
        pytest.importorskip("asgiref")

        def awaiting(view: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(view)
            async def wrapper(*args: Any, **values: Any) -> Any:
                return await view(*args, **values)

            return wrapper

        @app.post("/a")
        @awaiting
        @idempotent
        async def a() -> str:
            return "a"

        assert [replayed(post(app.test_client(), "/a")), replayed(post(app.test_client(), "/a"))] == [False, True]

    def test_that_is_none_of_a_functions_kind_is_protected_too(self, app: Flask) -> None:
        class Desk:
            def order(self) -> str:
                return "a"

        app.add_url_rule("/method", "method", idempotent(Desk().order), methods=["POST"])
        app.add_url_rule("/partial", "partial", idempotent(functools.partial(str, 7)), methods=["POST"])
        for path, text in (("/method", "a"), ("/partial", "7")):
            first, second = (post(app.test_client(), path, key=text) for _ in range(2))
            assert (first.text, second.text, replayed(second)) == (text, text, True)

    def test_answers_false_values_as_they_are(self, app: Flask, bench: Bench) -> None:
        app.post("/a")(idempotent(lambda: ""))
        assert [post(app.test_client(), "/a").data, post(app.test_client(), "/a").data] == [b"", b""]
        assert bench.state == "COMPLETED"

    def test_steps_aside_where_it_is_called_by_a_protected_one(self, app: Flask, bench: Bench) -> None:
        inner: Callable[[], str] = idempotent(lambda: "inner")
        app.post("/a")(idempotent(lambda: f"outer {inner()}"))
        assert [post(app.test_client(), "/a").text, post(app.test_client(), "/a").text] == [
            "outer inner",
            "outer inner",
        ]
        assert bench.states == ["COMPLETED"]

    def test_is_a_plain_function_for_whoever_calls_it_for_a_get(self, app: Flask, bench: Bench) -> None:
        app.get("/a")(idempotent(lambda: "a"))
        assert app.test_client().get("/a").text == "a"
        assert bench.calls == []

    def test_in_an_application_without_the_extension_says_what_is_missing(self) -> None:
        app = Flask("bare")
        app.testing = True
        app.post("/a")(idempotent(lambda: "a"))
        with pytest.raises(RuntimeError, match="no Idempotency extension"):
            post(app.test_client(), "/a")

    def test_serves_two_applications_by_the_options_of_each(self, bench: Bench) -> None:
        @idempotent(require_key=False)
        def a() -> str:
            return "a"

        for header in ("X-One", "X-Two"):
            app = Flask(header)
            Idempotency(app, engine=bench.engine, header=header, namespace=header)
            app.post("/a")(a)
            client = app.test_client()
            assert not replayed(client.post("/a", headers={header: "k"}))
            assert replayed(client.post("/a", headers={header: "k"}))


class TestWhereItClaims:
    """Exactly where the decorator is written."""

    def test_inside_of_a_login_no_stranger_sees_a_replay_or_a_refusal(self, app: Flask, bench: Bench) -> None:
        """margince/margince#5315: a replay was served before authorisation ran."""

        @app.post("/a")
        @login_required
        @idempotent
        def a() -> str:
            return "a"

        client = app.test_client()
        assert post(client, "/a").status_code == 401
        assert post(client, "/a", key=None).status_code == 401
        assert bench.calls == []
        assert post(client, "/a", headers={"Authorization": "me"}).text == "a"
        assert post(client, "/a").status_code == 401

    def test_outside_of_a_login_its_refusal_is_not_kept(self, app: Flask, bench: Bench) -> None:
        @app.post("/a")
        @idempotent
        @login_required
        def a() -> str:
            return "a"

        assert post(app.test_client(), "/a").status_code == 401
        assert bench.state == "FAILED"

    def test_above_the_route_it_works_by_the_view_that_is_registered(self, app: Flask) -> None:
        """Only what is below `app.route` is called."""

        @idempotent(require_key=False)
        @app.post("/a")
        def a() -> str:
            return "a"

        @not_idempotent
        @app.post("/b")
        def b() -> str:
            return "b"

        client = app.test_client()
        assert [replayed(post(client, "/a")), replayed(post(client, "/a"))] == [False, True]
        assert post(client, "/a", key=None).text == "a"
        assert post(client, "/b", key=None).text == "b"

    def test_hidden_by_a_careless_decorator_it_claims_by_itself(self, app: Flask) -> None:
        app.post("/a")(careless(idempotent(lambda: "a")))
        assert problem(post(app.test_client(), "/a", key=None)) == "key-missing"

    def test_hidden_by_one_that_reads_the_body_it_says_so(self, app: Flask) -> None:
        def reading(view: Callable[..., Any]) -> Callable[..., Any]:
            return lambda: view() if request.data else ""

        app.testing = True
        app.add_url_rule("/a", "a", reading(idempotent(lambda: "a")), methods=["POST"])
        with pytest.raises(RuntimeError, match="a part of the request's body was read"):
            post(app.test_client(), "/a", data=b"body")

    def test_hidden_where_all_is_protected_its_lost_options_are_reported_once(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        shop = Shop(bench)

        @shop.app.post("/a")
        @careless
        @idempotent(retention_seconds=10)
        def hidden_view() -> str:
            return "a"

        with caplog.at_level(logging.WARNING):
            assert [shop.post("/a", key="1").text, shop.post("/a", key="2").text] == ["a", "a"]
        warnings = [record.getMessage() for record in caplog.records if "have no effect" in record.getMessage()]
        assert len(warnings) == 1
        assert "hidden_view" in warnings[0]

    def test_twice_on_one_view_the_outer_one_counts(self, app: Flask, bench: Bench) -> None:
        app.post("/a")(idempotent(idempotent(lambda: "a"), require_key=False))
        assert post(app.test_client(), "/a", key=None).text == "a"


class TestAClass:
    """Of views."""

    def test_can_be_decorated_by_its_decorators(self, app: Flask) -> None:
        class Orders(MethodView):
            decorators = [idempotent(require_key=False), login_required]  # noqa: RUF012 - as Flask's documentation

            def post(self) -> str:
                return "a"

        app.add_url_rule("/a", view_func=Orders.as_view("a"))
        headers = {"Authorization": "me"}
        client = app.test_client()
        assert post(client, "/a", key=None, headers=headers).text == "a"
        assert [replayed(post(client, "/a", headers=headers)) for _ in range(2)] == [False, True]

    def test_can_be_decorated_itself(self, app: Flask) -> None:
        @idempotent(require_key=False)
        class Orders(View):
            methods = ["POST"]  # noqa: RUF012

            def dispatch_request(self) -> ResponseReturnValue:
                return "a"

        app.add_url_rule("/a", view_func=login_required(Orders.as_view("a")))
        headers = {"Authorization": "me"}
        assert post(app.test_client(), "/a", key=None, headers=headers).text == "a"
        assert [replayed(post(app.test_client(), "/a", headers=headers)) for _ in range(2)] == [False, True]

    def test_can_have_one_of_its_methods_decorated(self, app: Flask, bench: Bench) -> None:
        class Orders(MethodView):
            @idempotent(require_key=False)
            def post(self) -> str:
                return "a"

            def put(self) -> str:
                return "b"

        app.add_url_rule("/a", view_func=Orders.as_view("a"))
        client = app.test_client()
        assert post(client, "/a", key=None).text == "a"
        assert [replayed(post(client, "/a")), replayed(post(client, "/a"))] == [False, True]
        assert client.put("/a").text == "b"

    def test_can_have_one_of_its_methods_left_out(self, bench: Bench) -> None:
        class Orders(MethodView):
            @not_idempotent
            def post(self) -> str:
                return "a"

            def put(self) -> str:
                return "b"

        shop = Shop(bench)
        shop.app.add_url_rule("/a", view_func=Orders.as_view("a"))
        assert shop.post("/a", key=None).text == "a"
        assert problem(shop.client().put("/a")) == "key-missing"


class TestABlueprint:
    """And those within it."""

    @staticmethod
    def nested(app: Flask, *, mark: Callable[[Blueprint], object], view: Callable[[], str] = lambda: "a") -> None:
        outer, inner = (
            Blueprint("outer", "outer", url_prefix="/outer"),
            Blueprint("inner", "inner", url_prefix="/inner"),
        )
        mark(outer)
        inner.post("/a", endpoint="a")(view)
        outer.register_blueprint(inner)
        app.register_blueprint(outer)

    def test_is_protected_as_a_whole(self, app: Flask) -> None:
        self.nested(app, mark=lambda blueprint: idempotent(blueprint, require_key=False))
        client = app.test_client()
        assert post(client, "/outer/inner/a", key=None).text == "a"
        assert [replayed(post(client, "/outer/inner/a")) for _ in range(2)] == [False, True]

    def test_is_left_out_as_a_whole(self, bench: Bench) -> None:
        shop = Shop(bench)
        self.nested(shop.app, mark=not_idempotent)
        assert shop.post("/outer/inner/a", key=None).text == "a"

    def test_counts_less_than_its_views(self, bench: Bench) -> None:
        shop = Shop(bench)
        self.nested(shop.app, mark=not_idempotent, view=idempotent(lambda: "a"))
        assert problem(shop.post("/outer/inner/a", key=None)) == "key-missing"

    def test_that_answers_before_its_views_claims_nothing(self, app: Flask, bench: Bench) -> None:
        def mark(blueprint: Blueprint) -> None:
            idempotent(blueprint)
            blueprint.before_request(lambda: Response("closed", 403))

        self.nested(app, mark=mark)
        assert post(app.test_client(), "/outer/inner/a").text == "closed"
        assert bench.calls == []


class TestWrongOptions:
    """Are found where they are written."""

    @pytest.mark.parametrize("thing", [lambda: "a", Blueprint("b", "b")])
    def test_of_a_decorator(self, thing: Any) -> None:
        with pytest.raises(ConfigurationError, match="did you mean retention_seconds"):
            idempotent(thing, retention_second=1)
        with pytest.raises(ConfigurationError, match="wait_seconds must be"):
            idempotent(wait_seconds=-1)(thing)

    def test_are_not_those_that_the_application_makes_right(self, bench: Bench) -> None:
        """A longest time below the default lease is fine where the application's lease is shorter."""
        view = idempotent(lambda: "a", max_execution_seconds=20)
        shop = Shop(bench, lease_seconds=10)
        shop.app.post("/a")(view)
        assert shop.post("/a").text == "a"
