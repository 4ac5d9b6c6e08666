"""From what a user wrote to an engine and its options."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from idem_middleware import ConfigurationError, Engine, Event, EventKind, MemoryStore, Options, setup
from idem_middleware.ciphers import AesGcm
from idem_middleware.events import Observer
from idem_middleware.runtime import Runtime
from idem_middleware.upkeep import Upkeep, process_upkeep


@pytest.fixture(autouse=True)
def nobody_is_warned_yet() -> Iterator[None]:
    """The warning comes once per process."""
    setup._warned.clear()
    yield
    setup._warned.clear()


def test_a_store_makes_an_engine() -> None:
    """With the options beside it."""
    store = MemoryStore()
    engine, options = setup.build(store, None, {"lease_seconds": 5})
    assert engine.store is store
    assert engine.options is options
    assert options.lease_seconds == 5


def test_a_url_makes_a_store() -> None:
    """For settings that are text."""
    engine, _ = setup.build("memory://", None, {})
    assert isinstance(engine.store, MemoryStore)


def test_an_engine_is_shared_and_the_options_come_on_top() -> None:
    """Several routes, one upkeep and one cache."""
    engine = Engine(MemoryStore(), Options(lease_seconds=5, namespace="n"))
    same, options = setup.build(None, engine, {"lease_seconds": 7})
    assert same is engine
    assert (options.lease_seconds, options.namespace, engine.options.lease_seconds) == (7, "n", 5)


@pytest.mark.parametrize("engine", [None, Engine(MemoryStore(), Options())])
def test_a_store_and_an_engine_exclude_each_other(engine: Engine | None) -> None:
    """And one of them is needed."""
    with pytest.raises(ConfigurationError, match="give a store"):
        setup.build(None if engine is None else MemoryStore(), engine, {})


def test_all_problems_come_at_once() -> None:
    """Of the store and of the options."""
    with pytest.raises(ConfigurationError) as caught:
        setup.build(None, None, {"lease_secs": 5, "mode": "on"})
    assert len(caught.value.problems) == 3


def test_a_wrong_url_is_a_configuration_error() -> None:
    """Told at start-up, with what was given of it, together with what is wrong with the options."""
    with pytest.raises(ConfigurationError) as caught:
        setup.build("redis://user:secret@somewhere", None, {"lease_secs": 5})
    url, option = caught.value.problems
    assert "not redis://" in url
    assert "secret" not in url
    assert "lease_seconds" in option


@pytest.mark.parametrize("wrong", [5, object(), {"url": "memory://"}])
def test_what_is_no_store_is_named_by_its_type(wrong: Any) -> None:
    """Wherever a store is given."""
    for make in (lambda: setup.build(wrong, None, {}), lambda: Engine(wrong)):
        with pytest.raises(ConfigurationError, match=rf"not of type {type(wrong).__name__}"):
            make()


def test_a_wrong_mode_of_the_environment_is_told_once_and_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has set no `mode` in the code would look in the wrong place."""
    monkeypatch.setenv("IDEMPOTENCY_MODE", "bogus")
    with pytest.raises(ConfigurationError) as caught:
        setup.build("memory://", None, {})
    (problem,) = caught.value.problems
    assert "IDEMPOTENCY_MODE" in problem


def test_a_missing_caller_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """The one default that a service with several users has to change (kortix-ai/suna#5267)."""
    with caplog.at_level(logging.WARNING, "idem_middleware"):
        setup.build("memory://", None, {})
        setup.build("memory://", None, {})
    assert [record.message for record in caplog.records if "no caller is configured" in record.message] != []
    assert caplog.text.count("no caller is configured") == 1


@pytest.mark.parametrize("options", [{"caller": "shared"}, {"caller": lambda native: "ada"}, {"mode": "off"}])
def test_nobody_is_warned_where_it_is_meant(options: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    """Configured, said to be shared, or switched off."""
    with caplog.at_level(logging.WARNING, "idem_middleware"):
        setup.build("memory://", None, options)
    assert "no caller" not in caplog.text


class TalkingStore(MemoryStore):
    """Has something to say itself."""

    tell: Observer

    def subscribe(self, observer: Observer) -> None:
        """Who listens."""
        self.tell = observer


def test_what_the_store_says_reaches_the_observers() -> None:
    """Throttling, retries, clocks."""
    seen: list[Event] = []
    store = TalkingStore()
    Engine(store, Options(observers=[seen.append]))  # type: ignore[arg-type]
    store.tell(Event(kind=EventKind.CLOCK_SKEWED))
    assert seen == [Event(kind=EventKind.CLOCK_SKEWED)]


class TestEngines:
    """What an engine is made of."""

    def test_without_options_the_defaults_and_the_environment_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As with those from settings."""
        monkeypatch.setenv("IDEMPOTENCY_MODE", "off")
        assert Engine("memory://").options.mode == "off"

    def test_a_runtime_of_another_store_is_refused(self) -> None:
        """Its waiters and leases would be elsewhere."""
        with pytest.raises(ConfigurationError, match="another store"):
            Engine(MemoryStore(), runtime=Runtime(MemoryStore(), Options()))

    def test_a_runtime_brings_its_options(self) -> None:
        """Unless others are given."""
        store = MemoryStore()
        runtime = Runtime(store, Options(namespace="n"))
        assert Engine(store, runtime=runtime).options.namespace == "n"
        assert Engine(store, Options(), runtime=runtime).options.namespace == ""

    def test_the_asynchronous_twin_is_one(self) -> None:
        """It knows what it records, however often it is asked for."""
        engine = Engine(MemoryStore(), Options())
        assert engine.asynchronous is engine.asynchronous
        assert engine.asynchronous.runtime is engine.runtime

    def test_the_upkeep_that_is_given_is_used(self) -> None:
        """Also while it has nothing to do."""
        upkeep = Upkeep(threads=False)
        assert Runtime(MemoryStore(), Options(), upkeep=upkeep).upkeep is upkeep
        assert Runtime(MemoryStore(), Options()).upkeep is process_upkeep()


class TestGuessing:
    """Who can read the table can guess bodies and read answers, unless something is done about it."""

    @pytest.fixture(autouse=True)
    def nobody_was_told_yet(self) -> Iterator[None]:
        """The hint comes once per process."""
        setup._hinted.clear()
        yield
        setup._hinted.clear()

    def test_it_is_hinted_at_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """Where the table is one that others may read."""
        for _ in range(2):
            setup.build("dynamodb://table?region=eu-central-1", None, {})
        assert caplog.text.count("neither fingerprint_secret nor cipher") == 1

    @pytest.mark.parametrize(
        ("store", "options"),
        [
            ("memory://", {}),
            ("dynamodb://table?region=eu-central-1", {"mode": "off"}),
            ("dynamodb://table?region=eu-central-1", {"fingerprint_secret": b"s"}),
            ("dynamodb://table?region=eu-central-1", {"cipher": AesGcm({"a": b"k" * 32})}),
        ],
    )
    def test_it_is_not_where_nobody_could(
        self, caplog: pytest.LogCaptureFixture, store: str, options: dict[str, object]
    ) -> None:
        """In memory, switched off, or with either of them."""
        setup.build(store, None, options)
        assert "fingerprint_secret" not in caplog.text


def test_options_that_do_not_fit_the_engine_s_store_are_refused() -> None:
    """An engine that is shared was made for other options."""
    engine = Engine(MemoryStore(), Options())
    with pytest.raises(ConfigurationError, match="transactions"):
        setup.build(None, engine, {"claim_items": lambda request: []})


def test_where_the_framework_names_callers_none_need_be_configured() -> None:
    """So that each of them has a partition of its own."""

    class ByCaller(MemoryStore):
        by_caller = True

    assert setup.placement_problems(ByCaller(), Options(), default_caller=True) == []
    assert len(setup.placement_problems(ByCaller(), Options())) == 1
    assert len(setup.placement_problems(ByCaller(), Options(caller="shared"), default_caller=True)) == 1
