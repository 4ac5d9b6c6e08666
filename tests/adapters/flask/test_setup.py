"""Setting the extension up: by the constructor, by `init_app`, by the application's configuration."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from flask import Flask

from idem_flask import Idempotency
from idem_middleware import ConfigurationError, Engine, MemoryStore
from tests.adapters.flask.shop import post, problem, replayed
from tests.adapters.support.bench import Bench


def app_of(**config: Any) -> Flask:
    app = Flask("app")
    app.config.update(config)
    app.post("/orders")(lambda: "done")
    return app


def protects(app: Flask) -> bool:
    client = app.test_client()
    return [replayed(post(client)), replayed(post(client))] == [False, True]


class TestAStore:
    """Or an engine that has one."""

    @pytest.mark.parametrize(
        "given",
        [{"store": "memory://"}, {"store": MemoryStore()}, {"engine": Engine(MemoryStore())}],
        ids=["url", "store", "engine"],
    )
    @pytest.mark.parametrize("where", ["constructor", "constructor then init_app", "init_app"])
    def test_can_be_given_in_each_place(self, given: dict[str, Any], where: str) -> None:
        """An empty memory store is false, and nevertheless a store."""
        app = app_of(IDEMPOTENCY_NAMESPACE=where)
        if where == "constructor":
            Idempotency(app, **given)
        elif where == "init_app":
            Idempotency().init_app(app, **given)
        else:
            Idempotency(**given).init_app(app)
        assert protects(app)

    def test_can_stand_in_the_configuration(self) -> None:
        app = app_of(IDEMPOTENCY_STORE="memory://")
        Idempotency(app)
        assert protects(app)

    def test_that_is_given_wins_over_the_configured_one(self) -> None:
        store = MemoryStore()
        app = app_of(IDEMPOTENCY_STORE="dynamodb://nowhere?region=eu-west-1")
        Idempotency(app, store)
        assert protects(app)
        assert len(store) == 1

    def test_that_init_app_gets_wins_over_the_constructors(self) -> None:
        first, second = MemoryStore(), MemoryStore()
        app = app_of()
        Idempotency(store=first).init_app(app, second)
        assert protects(app)
        assert (len(first), len(second)) == (0, 1)

    def test_has_to_be_somewhere(self) -> None:
        with pytest.raises(ConfigurationError, match="give a store"):
            Idempotency(app_of())

    def test_and_an_engine_are_one_too_many(self, bench: Bench) -> None:
        with pytest.raises(ConfigurationError, match="give a store"):
            Idempotency(app_of(), bench.memory, engine=bench.engine)


class TestOptions:
    """From three places."""

    def test_of_init_app_win_over_the_constructors_and_those_over_the_configuration(self, bench: Bench) -> None:
        app = app_of(IDEMPOTENCY_HEADER="X-Config", IDEMPOTENCY_REQUIRE_KEY=False, IDEMPOTENCY_NAMESPACE="config")
        extension = Idempotency(engine=bench.engine, namespace="constructor", header="X-Constructor")
        extension.init_app(app, header="X-Init")
        client = app.test_client()
        assert post(client, key=None).text == "done"
        assert [replayed(client.post("/orders", headers={"X-Init": "k"})) for _ in range(2)] == [False, True]

    def test_come_from_the_environment_as_flask_reads_it(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLASK_IDEMPOTENCY_REQUIRE_KEY", "false")
        app = app_of()
        app.config.from_prefixed_env()
        Idempotency(app, engine=bench.engine)
        assert post(app.test_client(), key=None).text == "done"

    def test_wrong_ones_come_all_at_once_with_the_nearest_name_as_it_would_be_written_there(self) -> None:
        app = app_of(IDEMPOTENCY_LEASE_SECOND=30, IDEMPOTENCY_WAIT_SECONDS="long")
        with pytest.raises(ConfigurationError) as caught:
            Idempotency(app, retention=10)
        text = str(caught.value)
        assert "IDEMPOTENCY_LEASE_SECOND is not an option; did you mean IDEMPOTENCY_LEASE_SECONDS?" in text
        assert "wait_seconds must be" in text
        assert "retention is not an option; did you mean retention_seconds?" in text
        assert "give a store" in text
        assert "idempotency" not in app.extensions

    def test_only_an_unknown_name_in_the_configuration_is_found_too(self) -> None:
        with pytest.raises(
            ConfigurationError, match="IDEMPOTENCY_CALER is not an option; did you mean IDEMPOTENCY_CALLER"
        ):
            Idempotency(app_of(IDEMPOTENCY_CALER="shared"), "memory://")

    def test_of_others_are_none_of_ours(self, bench: Bench) -> None:
        Idempotency(app_of(IDEMPOTENT=1, OTHER_IDEMPOTENCY_X=2), engine=bench.engine)


class TestSeveralApplications:
    """By one extension."""

    def test_have_their_own_options_and_share_the_store(self, bench: Bench) -> None:
        extension = Idempotency(engine=bench.engine)
        one, two = app_of(IDEMPOTENCY_NAMESPACE="one"), app_of(IDEMPOTENCY_REQUIRE_KEY=False)
        extension.init_app(one)
        extension.init_app(two, namespace="two")
        assert problem(post(one.test_client(), key=None)) == "key-missing"
        assert post(two.test_client(), key=None).text == "done"
        assert protects(one)
        assert protects(two)
        assert len(bench.records) == 2

    def test_leave_nothing_on_the_extension(self, bench: Bench) -> None:
        extension = Idempotency(engine=bench.engine)
        before = dict(vars(extension))
        for _ in range(2):
            extension.init_app(app_of(), lease_seconds=30)
        assert vars(extension) == before

    def test_can_be_made_and_dropped_without_end(self, bench: Bench) -> None:
        extension = Idempotency(engine=bench.engine)
        app = app_of()
        extension.init_app(app)
        assert protects(app)
        gone = weakref.ref(app)
        del app
        gc.collect()
        assert gone() is None

    def test_are_each_set_up_once(self, bench: Bench) -> None:
        app = app_of()
        Idempotency(app, engine=bench.engine)
        with pytest.raises(RuntimeError, match="already"):
            Idempotency(app, engine=bench.engine)
