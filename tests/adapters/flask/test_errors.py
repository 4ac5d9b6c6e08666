"""What a view, a hook or a stream raises comes out unchanged, and the record is in the state that it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from flask import Response, abort, after_this_request, request
from werkzeug.exceptions import Conflict

from tests.adapters.flask.shop import Shop, post, problem, replayed
from tests.adapters.support.bench import Bench

PROPAGATING: list[dict[str, bool]] = [{"TESTING": True}, {"DEBUG": True}, {"PROPAGATE_EXCEPTIONS": True}]
HANDLING: list[dict[str, bool]] = [{}, {"TESTING": True, "PROPAGATE_EXCEPTIONS": False}]


class GreenTimeout(BaseException):
    """As of gevent and eventlet: stops what runs, wherever it is."""


def raising(error: BaseException) -> Callable[..., Any]:
    def answer(*args: object) -> Any:
        raise error

    return answer


class TestOfTheView:
    """Once it runs."""

    @pytest.mark.parametrize("config", HANDLING, ids=str)
    def test_becomes_flasks_500_and_the_next_try_runs(self, bench: Bench, config: dict[str, bool]) -> None:
        """snok/asgi-idempotency-header#16, useautumn/autumn#1851: a failure kept its key busy for hours."""
        shop = Shop(bench, raising(ValueError("mine")))
        shop.app.config.update(config)
        assert shop.post().status_code == 500
        assert bench.state == "FAILED"
        shop.answer = lambda: "done"
        assert [shop.post().text, replayed(shop.post())] == ["done", True]

    @pytest.mark.parametrize("config", PROPAGATING, ids=str)
    def test_comes_out_as_the_same_object_where_flask_lets_it(self, bench: Bench, config: dict[str, bool]) -> None:
        """pallets/flask#3393, pallets/flask#2066: then `after_request` functions are not called."""
        error = ValueError("mine")
        shop = Shop(bench, raising(error))
        shop.app.config.update(config)
        with pytest.raises(ValueError, match="mine") as caught:
            shop.server().post()
        assert caught.value is error
        assert bench.state == "FAILED"

    @pytest.mark.parametrize("config", [*PROPAGATING, *HANDLING], ids=str)
    @pytest.mark.parametrize("error", [GreenTimeout(), SystemExit(1), KeyboardInterrupt(), GeneratorExit()], ids=repr)
    def test_that_stops_it_half_way_leaves_the_outcome_unknown(
        self, bench: Bench, error: BaseException, config: dict[str, bool]
    ) -> None:
        """elchin92/avito-mcp#60: whether it may run again depends on whether it had begun, not on who stopped it."""
        shop = Shop(bench, raising(error))
        shop.app.config.update(config)
        with pytest.raises(type(error)) as caught:
            shop.server().post()
        assert caught.value is error
        assert bench.state == "PENDING"
        assert "abandoned" in bench.kinds
        assert problem(shop.post()) == "in-progress"

    def test_handled_by_an_errorhandler_is_judged_by_its_answer(self, bench: Bench) -> None:
        """paveg/hono-idempotency#178: a conflict of the domain is final."""
        shop = Shop(bench, raising(LookupError("sold out")))
        shop.app.register_error_handler(LookupError, lambda error: (str(error), 409))
        first, second = shop.post(), shop.post()
        assert (first.text, second.text) == ("sold out", "sold out")
        assert replayed(second)

    def test_handled_with_a_500_is_a_failure(self, bench: Bench) -> None:
        shop = Shop(bench, raising(LookupError("mine")))
        shop.app.register_error_handler(LookupError, lambda error: ("sorry", 500))
        assert shop.post().text == "sorry"
        assert bench.state == "FAILED"

    def test_handled_by_a_handler_that_raises_is_a_failure(self, bench: Bench) -> None:
        shop = Shop(bench, raising(LookupError("mine")))
        shop.app.register_error_handler(LookupError, raising(ValueError("the handler's")))
        assert shop.post().status_code == 500
        assert bench.state == "FAILED"

    @pytest.mark.parametrize(
        ("code", "state"),
        [(400, "COMPLETED"), (404, "COMPLETED"), (409, "COMPLETED"), (401, "FAILED"), (429, "FAILED"), (503, "FAILED")],
    )
    def test_by_abort_is_the_answer_that_it_says(self, bench: Bench, code: int, state: str) -> None:
        shop = Shop(bench, lambda: abort(code))
        assert shop.post().status_code == code
        assert bench.state == state

    def test_by_abort_is_recorded_before_its_first_byte(self, bench: Bench) -> None:
        """Werkzeug gives such an answer as an iterator, though it lies in memory."""
        Shop(bench, lambda: abort(404)).server().post()
        assert bench.journal[:3] == ["stored PENDING", "stored COMPLETED", "head 404"]

    def test_by_abort_with_a_response_of_its_own(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: abort(Response("gone", 410)))
        assert [shop.post().text, shop.post().text] == ["gone", "gone"]
        assert shop.runs == 1

    def test_of_a_view_that_returns_nothing_is_a_failure(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: None)  # type: ignore[arg-type,return-value]
        assert shop.post().status_code == 500
        assert bench.state == "FAILED"

    def test_with_on_error_store_is_kept_as_its_500(self, bench: Bench) -> None:
        shop = Shop(bench, raising(ValueError("mine")), on_error="store")
        assert [shop.post().status_code, shop.post().status_code] == [500, 500]
        assert shop.runs == 1

    @pytest.mark.parametrize("config", [{}, {"TESTING": True}], ids=str)
    def test_with_on_error_refuse_is_an_unknown_outcome(self, bench: Bench, config: dict[str, bool]) -> None:
        shop = Shop(bench, raising(TimeoutError("of the provider")), on_error="refuse")
        shop.app.config.update(config)
        with pytest.raises(TimeoutError) if config else nullcontext():
            shop.server().post()
        assert problem(shop.post()) == "outcome-unknown"
        assert shop.runs == 1


class TestOfHooks:
    """Around the view."""

    def test_before_it_claims_nothing(self, bench: Bench) -> None:
        shop = Shop(bench)
        shop.app.before_request(raising(ValueError("mine")))
        assert shop.post().status_code == 500
        assert bench.calls == []

    def test_before_it_by_a_user_of_the_router_neither(self, bench: Bench) -> None:
        shop = Shop(bench)
        shop.app.url_value_preprocessor(raising(Conflict()))
        assert shop.post().status_code == 409
        assert bench.calls == []

    @pytest.mark.parametrize("config", [{}, {"TESTING": True}], ids=str)
    def test_after_this_request_is_a_failure(self, bench: Bench, config: dict[str, bool]) -> None:
        """pallets/flask#3607: what fails there skips everything after it."""

        def answer() -> str:
            after_this_request(raising(ValueError("mine")))
            return "done"

        shop = Shop(bench, answer)
        shop.app.config.update(config)
        with pytest.raises(ValueError, match="mine") if config else nullcontext():
            assert shop.server().post().status == 500
        assert bench.state == "FAILED"

    @pytest.mark.parametrize("config", [{}, {"TESTING": True}], ids=str)
    def test_after_request_leaves_the_answer_recorded_for_the_retry(
        self, bench: Bench, config: dict[str, bool]
    ) -> None:
        shop = Shop(bench)
        error: list[BaseException] = [ValueError("mine")]

        @shop.app.after_request
        def fail_once(response: Response) -> Response:
            if error:
                raise error.pop()
            return response

        shop.app.config.update(config)
        with pytest.raises(ValueError, match="mine") if config else nullcontext():
            assert shop.server().post().status == 500
        assert [shop.post().text, shop.runs] == ["done", 1]

    @pytest.mark.parametrize("config", [{}, {"TESTING": True}], ids=str)
    def test_after_request_of_a_stream_that_never_began_is_a_failure(
        self, bench: Bench, config: dict[str, bool]
    ) -> None:
        shop = Shop(bench, lambda: iter(["never ", "sent"]))
        shop.app.after_request(raising(ValueError("mine")))
        shop.app.config.update(config)
        with pytest.raises(ValueError, match="mine") if config else nullcontext():
            assert shop.server().post().status == 500
        assert bench.state == "FAILED"

    @pytest.mark.parametrize(("streamed", "state"), [(False, "COMPLETED"), (True, "FAILED")])
    def test_in_teardown_comes_out(self, bench: Bench, streamed: bool, state: str) -> None:  # noqa: FBT001
        error = ValueError("mine")
        shop = Shop(bench, lambda: iter(["a"]) if streamed else "a")
        shop.app.teardown_request(raising(error))
        with pytest.raises(ValueError, match="mine") as caught:
            shop.server().post()
        assert caught.value is error
        assert bench.state == state

    def test_teardown_functions_see_what_they_see_without_us(self, bench: Bench) -> None:
        seen: list[tuple[str, BaseException | None]] = []
        error = ValueError("mine")
        for mode in ("enforce", "off"):
            shop = Shop(bench, raising(error), mode=mode)
            shop.app.teardown_request(lambda exc, mode=mode: seen.append((mode, exc)))
            shop.post()
        assert seen == [("enforce", error), ("off", error)]


class TestOfAStream:
    """In the middle of its answer."""

    @pytest.mark.parametrize(
        ("error", "state"), [(ValueError("mine"), "FAILED"), (GreenTimeout(), "PENDING")], ids=repr
    )
    def test_comes_out_as_the_same_object(self, bench: Bench, error: BaseException, state: str) -> None:
        def pieces() -> Iterator[str]:
            yield "half"
            raise error

        shop = Shop(bench, pieces)
        with pytest.raises(type(error)) as caught:
            shop.server().post()
        assert caught.value is error
        assert bench.state == state


def test_the_debuggers_and_the_test_clients_kept_contexts_change_nothing(bench: Bench) -> None:
    shop = Shop(bench, raising(ValueError("mine")))
    with shop.client() as client:
        assert post(client).status_code == 500
        assert request.path == "/orders"
        assert bench.state == "FAILED"
    shop.answer = lambda: "done"
    with shop.client() as client:
        assert post(client).text == "done"
        assert bench.state == "COMPLETED"
    assert bench.state == "COMPLETED"
