"""The closing checklist."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from botocore.config import Config

from idem_middleware import Engine, MemoryStore, Options
from idem_middleware.cli.applications import application
from idem_middleware.cli.diagnosis import Circumstances, Light, check_configuration, check_table_of, worst
from idem_middleware.cli.diagnosis.findings import Finding
from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import ConfigurationError, StoreMisconfigured
from idem_middleware.stores import DynamoDBStore, Store
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.describing import description_of
from idem_middleware.stores.urls import store_from_url
from idem_middleware.wsgi import IdempotencyMiddleware
from tests.cli.conftest import Run, RunJson
from tests.cli.test_records import claim, put

GIVEN = ("--retry-horizon", "3600", "--server-timeout", "30", "--balancer-timeout", "20")
KNOWN = Circumstances(retry_horizon_seconds=3600, server_timeout_seconds=30, balancer_timeout_seconds=20)
TABLE = DynamoDBStore("keys", region="eu-central-1")


def caller(request: object) -> str:
    return "acct_7"


GOOD = Options(caller=caller)


def named(value: dict[str, Any]) -> str:
    """An id that is the same in every process: a function has no such text."""
    return " ".join(f"{name}={'function' if callable(what) else what}" for name, what in value.items()) or "green"


def lights(options: Options, store: Store = TABLE, known: Circumstances = KNOWN) -> dict[str, Light]:
    return {finding.check: finding.light for finding in check_configuration(options, store, known)}


def not_green(options: Options, store: Store = TABLE, known: Circumstances = KNOWN) -> dict[str, str]:
    return {check: light.value for check, light in lights(options, store, known).items() if light is not Light.GREEN}


class TestTheConfiguration:
    """Each line, by what makes it change its colour."""

    def test_a_good_one_is_green(self) -> None:
        """All of it."""
        assert not_green(GOOD) == {}

    @pytest.mark.parametrize(
        ("changes", "found"),
        [
            ({"mode": "observe"}, {"mode": "yellow"}),
            ({"mode": "off"}, {"mode": "red"}),
            ({"retention_seconds": 3600}, {"retention": "red"}),
            ({"lease_seconds": 30}, {"lease": "yellow"}),
            ({"lease_seconds": 10, "max_execution_seconds": 20}, {"lease": "yellow", "renewal": "red"}),
            ({"key": "fingerprint"}, {"key": "yellow"}),
            ({"key": lambda request: "k"}, {"key": "yellow"}),
            ({"key": "detail.requestId"}, {"key": "red"}),
            ({"key": "detail.orderId"}, {}),
            ({"fingerprint_headers": ["X-Request-Id", "X-Version"]}, {"compared headers": "red"}),
            ({"fingerprint_headers": ["X-Version"]}, {}),
            ({"require_key": False}, {"missing keys": "yellow"}),
            ({"payload": "detail"}, {"mismatch": "yellow"}),
            ({"wait_seconds": 20}, {"in progress": "red"}),
            ({"wait_seconds": 5}, {}),
            ({"caller": None}, {"caller": "yellow"}),
            ({"caller": "shared"}, {}),
            ({"on_store_error": "bypass"}, {"store away": "yellow"}),
        ],
        ids=named,
    )
    def test_one_change_moves_its_own_line(self, changes: dict[str, Any], found: dict[str, str]) -> None:
        """And no other."""
        assert not_green(replace(GOOD, **changes)) == found

    def test_a_redrive_counts_to_the_retries(self) -> None:
        """A queue delivers again long after its client has given up."""
        assert not_green(GOOD, known=replace(KNOWN, redrive_seconds=86400.0)) == {"retention": "red"}

    def test_what_is_not_given_is_not_judged(self) -> None:
        """Grey, and it says what to give."""
        assert not_green(GOOD, known=Circumstances()) == {"retention": "grey", "lease": "grey"}

    def test_a_store_in_memory_is_for_development(self) -> None:
        """Red in production."""
        assert not_green(GOOD, MemoryStore()) == {"store": "red"}
        assert not_green(GOOD, MemoryStore(), replace(KNOWN, production=False)) == {"store": "yellow"}

    def test_a_slow_client_is_found(self) -> None:
        """As it counts its own tries."""
        slow = DynamoDBStore("keys", region="eu-central-1", client_config=Config(read_timeout=60))
        assert not_green(GOOD, slow) == {"SDK timeouts": "red"}

    def test_a_given_client_is_measured(self) -> None:
        """Its own settings, not ours."""
        import boto3  # noqa: PLC0415

        client = boto3.client("dynamodb", region_name="eu-central-1")
        assert not_green(GOOD, DynamoDBStore("keys", client=client)) == {"SDK timeouts": "red"}

    def test_a_short_timeout_needs_a_shorter_deadline(self) -> None:
        """Two decisions may come before an answer."""
        assert not_green(GOOD, known=replace(KNOWN, balancer_timeout_seconds=5.0)) == {"SDK timeouts": "yellow"}

    def test_everything_that_is_not_green_says_how_to_mend_it(self) -> None:
        """In words."""
        worst_of_all = Options(
            mode="off", key="timestamp", payload="a", require_key=False, on_store_error="bypass", wait_seconds=50,
            retention_seconds=10, fingerprint_headers=("Date",),
        )  # fmt: skip
        for finding in check_configuration(worst_of_all, MemoryStore(), KNOWN):
            assert (finding.light is Light.GREEN) == (finding.mend is None), finding


class TestTheTable:
    """On moto, where permissions and backups can be had."""

    @pytest.fixture
    def store(self, moto_table: str) -> DynamoDBStore:
        """A table as `table create` leaves it."""
        store = store_from_url(moto_table)
        assert isinstance(store, DynamoDBStore)
        return store

    @pytest.fixture
    def good(self, run: Run, store: DynamoDBStore, moto_table: str) -> DynamoDBStore:
        """There, and with all that protects it."""
        run("table", "create", "--store", moto_table)
        return store

    def found(self, store: DynamoDBStore, **how: Any) -> dict[str, Finding]:
        return {finding.check: finding for finding in check_table_of(store, **how)}

    def test_one_that_the_command_made_is_green(self, run: Run, good: DynamoDBStore, moto_table: str) -> None:
        """With a good configuration: green altogether, and the exit status says so."""
        told = run("doctor", "--store", moto_table, "--option", "caller=shared", "--strict", *GIVEN).output
        assert "Altogether: ● green" in told

    def test_an_audit_table_is_looked_at(self, good: DynamoDBStore) -> None:
        """That it is there, and can be consulted with a claim; a store without one has no such line."""
        assert "audit table" not in self.found(good)
        audited = DynamoDBStore(good.table, region=good.region, audit_table="keys-audit")
        assert self.found(audited)["audit table"].light is Light.RED
        audited.create_table()
        assert self.found(audited)["audit table"].light is Light.GREEN

    def test_a_missing_table(self, run: Run, moto_table: str) -> None:
        """Is red, and says how to get one."""
        told = run("doctor", "--store", moto_table, "--option", "caller=shared", status=1).output
        assert "idem-middleware table create" in told

    def test_what_protects_it_is_missed(self, store: DynamoDBStore) -> None:
        """TTL is needed; the rest is advice."""
        store.create_table(ttl=False)
        found = self.found(store)
        assert {check: f.light for check, f in found.items() if f.light is not Light.GREEN} == {
            "TTL": Light.RED,
            "recovery": Light.YELLOW,
            "deletion protection": Light.YELLOW,
        }

    def test_a_table_in_the_other_layout(self, good: DynamoDBStore) -> None:
        """Says which it is."""
        found = self.found(DynamoDBStore(good.table, region="eu-central-1", layout="caller"))
        assert found["key schema"].light is Light.RED
        assert "layout=flat" in (found["key schema"].mend or "")
        assert "may PutItem" not in found

    def test_a_permission_that_is_missing(self, good: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each is tried, and the one that is refused is named."""
        call = Admin.call

        def refuse(admin: Admin, operation: str, request: Any) -> Mapping[str, Any]:
            if operation == "update_item":
                raise StoreMisconfigured("not allowed", code="AccessDeniedException")
            return call(admin, operation, request)

        monkeypatch.setattr(Admin, "call", refuse)
        found = self.found(good)
        assert found["may UpdateItem"].light is Light.RED
        assert "dynamodb:UpdateItem" in (found["may UpdateItem"].mend or "")
        assert found["may PutItem"].light is Light.GREEN

    def test_an_operator_that_may_not_scan(self, good: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is no fault of the table's: grey."""
        call = Admin.call

        def refuse(admin: Admin, operation: str, request: Any) -> Mapping[str, Any]:
            if operation == "scan":
                raise StoreMisconfigured("not allowed", code="AccessDeniedException")
            return call(admin, operation, request)

        monkeypatch.setattr(Admin, "call", refuse)
        assert self.found(good)["deletion lag"].light is Light.GREY

    @pytest.mark.parametrize(("days", "light"), [(1, Light.GREEN), (4, Light.YELLOW), (9, Light.RED)])
    def test_how_late_the_deletions_are(self, good: DynamoDBStore, days: int, light: Light) -> None:
        """Measured on what lies there: two days are usual."""
        put(good, claim("a" * 64, age_seconds=(days + 1) * 86400))
        finding = self.found(good)["deletion lag"]
        assert (finding.light, "1 of all 1 items are over" in finding.found) == (light, True)

    def test_abandoned_claims_are_counted(self, good: DynamoDBStore) -> None:
        """A hint to look at them."""
        put(good, claim("a" * 64))
        assert self.found(good)["abandoned claims"].light is Light.YELLOW

    def test_a_sample_ends_where_it_is_told_to(self, good: DynamoDBStore) -> None:
        """So that a large table costs no more."""
        for number in range(5):
            put(good, claim(f"{number}" * 64))
        assert "of the first 3 items" in self.found(good, sample_items=3)["deletion lag"].found
        assert "deletion lag" not in self.found(good, sample_items=0)

    def test_two_regions_that_could_both_claim(self, good: DynamoDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Eventual consistency, and keys without homes."""
        described = {
            **good.admin().call("describe_table", {"TableName": good.table})["Table"],
            "Replicas": [{"RegionName": "eu-west-1", "ReplicaStatus": "ACTIVE"}],
        }
        monkeypatch.setattr(
            "idem_middleware.cli.tables.description_of", lambda _, *ttl: description_of(described, *ttl)
        )
        assert self.found(good)["regions"].light is Light.RED
        assert self.found(good, homes=("eu-central-1", "eu-west-1"))["regions"].light is Light.GREEN

    def test_strong_consistency_has_a_sweeper_instead_of_ttl(
        self, good: DynamoDBStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And what is late there is the sweeper's."""
        described = {
            **good.admin().call("describe_table", {"TableName": good.table})["Table"],
            "Replicas": [{"RegionName": "us-east-2"}, {"RegionName": "us-west-2"}],
            "MultiRegionConsistency": "STRONG",
        }
        told = description_of(described)
        monkeypatch.setattr("idem_middleware.cli.tables.description_of", lambda described, *ttl: told)
        put(good, claim("a" * 64, age_seconds=4 * 86400))
        found = self.found(good)
        assert (found["TTL"].light, found["regions"].light) == (Light.GREEN, Light.GREEN)
        assert "idem-middleware sweep" in (found["deletion lag"].mend or "")

    @pytest.mark.dynamodb_local
    def test_a_clock_that_is_off(self, local_table: str) -> None:
        """By the `Date` of DynamoDB's answers."""
        store = store_from_url(local_table)
        assert isinstance(store, DynamoDBStore)
        store.clock = CorrectedClock(wall=lambda: time.time() - 100)
        finding = self.found(store)["clock"]
        assert finding.light is Light.RED
        assert finding.found.startswith("this machine's is 1 min 40 s behind")

    @pytest.mark.dynamodb_local
    def test_an_emulator_is_green_where_it_can_be(self, run_json: RunJson, local_table: str) -> None:
        """It has no backups: grey, which counts for nothing."""
        told = run_json("doctor", "--store", local_table, "--option", "caller=shared", *GIVEN)
        assert told["light"] == "yellow"
        (table,) = [part for name, part in told["findings"].items() if name.startswith("table ")]
        odd = {finding["check"]: finding["light"] for finding in table if finding["light"] != "green"}
        assert odd == {"recovery": "grey", "deletion protection": "yellow"}


class TestExitStatuses:
    """For pipelines."""

    def test_yellow_fails_only_where_it_is_strict(self, run: Run, run_json: RunJson, moto_table: str) -> None:
        """Red always does."""
        run("table", "create", "--store", moto_table)
        given = ("doctor", "--store", moto_table, "--option", "require_key=false", "--option", "caller=shared", *GIVEN)
        assert run_json(*given)["light"] == "yellow"
        run(*given, "--strict", status=1)
        run(*given, "--option", "mode=off", status=1)

    def test_a_wrong_option_is_a_sentence(self, run: Run) -> None:
        """With the nearest right name."""
        assert "did you mean lease_seconds?" in run("doctor", "--option", "leese_seconds=5", status=2).output
        assert "NAME=VALUE" in run("doctor", "--option", "x", status=2).output

    def test_the_worst_light_is_the_light_of_all(self) -> None:
        """Grey counts for nothing."""
        assert worst([]) is Light.GREY
        assert worst([Finding("a", Light.GREY, ""), Finding("b", Light.GREEN, "")]) is Light.GREEN
        assert worst([Finding("a", Light.RED, ""), Finding("b", Light.YELLOW, "")]) is Light.RED


class _Flask:
    def __init__(self, protection: object) -> None:
        self.extensions = {"other": object(), "idempotency": protection}


class _Protection:
    def __init__(self, engine: Engine, options: Options) -> None:
        self.engine, self.options = engine, options


class _AppWithMiddleware:
    def __init__(self, **given: Any) -> None:
        entry = type("Middleware", (), {"cls": IdempotencyMiddleware, "kwargs": given})
        self.user_middleware = [entry]


ENGINE = Engine(MemoryStore(), GOOD)


class TestApplications:
    """Where the configuration is found: what real frameworks keep is tested with their adapters."""

    @pytest.fixture
    def module(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """A module of a service's, to put something into."""
        module = ModuleType("shop_under_test")
        monkeypatch.setitem(sys.modules, "shop_under_test", module)
        return module

    @pytest.mark.parametrize(
        "make",
        [
            lambda: ENGINE,
            lambda: IdempotencyMiddleware(lambda environ, start: [], engine=ENGINE),
            lambda: _Flask(_Protection(ENGINE, GOOD)),
            lambda: _AppWithMiddleware(engine=ENGINE),
            lambda: _AppWithMiddleware(store="memory://", caller=caller),
            lambda: {"STORE": "memory://", "CALLER": "shop.accounts.caller"},
        ],
        ids=["engine", "WSGI", "Flask", "Starlette, engine", "Starlette, options", "dictionary"],
    )
    def test_what_is_configured_is_found(self, module: ModuleType, make: Callable[[], Any]) -> None:
        """By its name, and without one."""
        module.app = make()  # type: ignore[attr-defined]
        for path in ("shop_under_test:app", "shop_under_test"):
            configured = application(path)
            assert isinstance(configured.store, MemoryStore)
            assert callable(configured.options.caller)

    def test_a_factory_is_called(self, module: ModuleType) -> None:
        """As servers do."""
        module.make = lambda: ENGINE  # type: ignore[attr-defined]
        assert application("shop_under_test:make()").options is GOOD

    def test_djangos_settings_have_a_default_caller(self, module: ModuleType) -> None:
        """The authenticated user."""
        module.IDEMPOTENCY = {"STORE": "dynamodb://keys?region=eu-central-1", "LEASE_SECONDS": 90}  # type: ignore[attr-defined]
        configured = application("shop_under_test")
        assert configured.options.lease_seconds == 90
        known = Circumstances(default_caller=configured.default_caller)
        assert lights(configured.options, configured.store, known)["caller"] is Light.GREEN

    @pytest.mark.parametrize(
        ("path", "sentence"),
        [
            ("no_such_module_here:app", "can't be imported"),
            ("shop_under_test:nothing", "has no nothing"),
            ("shop_under_test", "nothing of idem-middleware is configured"),
        ],
    )
    def test_what_is_not_there_is_a_sentence(self, module: ModuleType, run: Run, path: str, sentence: str) -> None:
        """Without a traceback."""
        assert sentence in run("doctor", "--app", path, status=2).output
        with pytest.raises(ConfigurationError):
            application(path)

    def test_a_module_that_fails_is_a_sentence(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With what failed; our own errors as they are."""
        (tmp_path / "shop_that_fails.py").write_text("1 / 0\n")
        (tmp_path / "shop_set_wrong.py").write_text("from idem_middleware import Options\nOptions(lease_seconds=0)\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        assert "can't be imported: ZeroDivisionError" in run("doctor", "--app", "shop_that_fails", status=2).output
        assert "lease_seconds must be" in run("doctor", "--app", "shop_set_wrong", status=2).output

    def test_several_regions_are_as_slow_as_the_slowest(self) -> None:
        """Each has a client of its own."""
        slow = DynamoDBStore("keys", region="eu-central-1", client_config=Config(read_timeout=60))
        regional: Any = SimpleNamespace(stores={"a": TABLE, "b": slow}, deadline_seconds=3.0)
        assert not_green(GOOD, regional) == {"SDK timeouts": "red"}

    def test_a_module_is_found_where_the_command_is_run(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As for a server."""
        (tmp_path / "shop_on_disk.py").write_text("IDEMPOTENCY = {'STORE': 'memory://'}\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        told = run("doctor", "--app", "shop_on_disk", status=1).output
        assert "in memory: each process has its own" in told
        run("doctor", "--app", "shop_on_disk", "--development")

    def test_a_table_set_for_other_commands_does_not_stand_for_the_service_s_own(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The documentation has the reader set IDEMPOTENCY_STORE: a good table there says nothing of the service."""
        (tmp_path / "shop_in_memory.py").write_text("IDEMPOTENCY = {'STORE': 'memory://'}\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setenv("IDEMPOTENCY_STORE", "dynamodb://keys?region=eu-central-1")
        told = run("doctor", "--app", "shop_in_memory", status=1).output
        assert "in memory: each process has its own" in told
