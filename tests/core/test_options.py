"""Options: what is wrong is told at once, all of it, with what is right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from idem_middleware import ConfigurationError, Options
from idem_middleware.options import MODE_VARIABLE, accepted_values

WRONG: list[tuple[str, object]] = [
    ("mode", "on"),
    ("methods", "POST"),
    ("methods", []),
    ("methods", ["GET"]),
    ("methods", ["PO ST"]),
    ("methods", 5),
    ("paths", "/api"),
    ("paths", ["api"]),
    ("paths", [5]),
    ("exempt_paths", ["admin/"]),
    ("require_key", "yes"),
    ("header", "Idempotency Key"),
    ("header", None),
    ("key", "detail..orderId"),
    ("key", ""),
    ("key", 5),
    ("strict_key", 1),
    ("key_pattern", "["),
    ("key_pattern", 5),
    ("caller", "user"),
    ("caller", 5),
    ("namespace", None),
    ("payload", "a["),
    ("payload", b"a"),
    ("fingerprint_headers", "Accept"),
    ("fingerprint_headers", ["Ac cept"]),
    ("fingerprint_secret", ""),
    ("fingerprint_secret", b""),
    ("fingerprint_secret", 5),
    ("accepted_fingerprint_secrets", [""]),
    ("lease_seconds", 0.5),
    ("lease_seconds", "60"),
    ("lease_seconds", True),
    ("lease_seconds", float("nan")),
    ("max_execution_seconds", "900"),
    ("max_execution_seconds", 30),
    ("on_abandoned", "fail"),
    ("wait_seconds", -1),
    ("max_waiters", -1),
    ("max_waiters_per_key", True),
    ("max_waiting_threads", 1.5),
    ("retention_seconds", 0),
    ("retention_seconds", float("inf")),
    ("tombstone_seconds", -1),
    ("on_expired", "run"),
    ("on_expired", "refuse"),
    ("store_if", True),
    ("before_store", "redact"),
    ("claim_items", []),
    ("on_claim_refused", "sold out"),
    ("prober", "look it up"),
    ("prober_seconds", 0),
    ("cipher", b"k" * 32),
    ("on_error", "keep"),
    ("retry_after_failure_seconds", -0.1),
    ("max_request_bytes", -1),
    ("max_request_bytes", 1.5),
    ("max_response_bytes", None),
    ("max_response_bytes", True),
    ("local_cache_bytes", -1),
    ("drop_headers", "Date"),
    ("keep_headers", ["a b"]),
    ("on_store_error", "ignore"),
    ("replay_header", ""),
    ("docs_url", "docs.example"),
    ("docs_url", "https://docs.example/<x>"),
    ("observers", [None]),
    ("observers", print),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda value: repr(value) if not callable(value) else "f")
def test_a_wrong_value_is_told_by_its_name(name: str, value: object) -> None:
    """One sentence, and what is right in it."""
    with pytest.raises(ConfigurationError) as caught:
        Options.from_mapping({name: value})
    assert len(caught.value.problems) == 1
    assert name in caught.value.problems[0]


def test_every_option_was_wrong_once() -> None:
    """No option goes unchecked."""
    assert {name for name, _ in WRONG} == set(Options.names()) == {field.name for field in fields(Options)}


def test_the_defaults_are_right() -> None:
    """And those that the documentation promises."""
    options = Options()
    assert (options.mode, options.require_key, options.header) == ("enforce", True, "Idempotency-Key")
    assert options.methods == {"POST", "PUT", "PATCH", "DELETE"}
    assert (options.lease_seconds, options.max_execution_seconds, options.wait_seconds) == (60, 900, 0)
    assert (options.retention_seconds, options.max_response_bytes) == (86_400, 8 * 1024 * 1024)


class TestLoading:
    """From the mapping of a framework."""

    def test_all_problems_come_in_one_error(self) -> None:
        """Unknown names and wrong values alike."""
        with pytest.raises(ConfigurationError) as caught:
            Options.from_mapping({"lease": 5, "mode": "on", "wait_seconds": -1, "zzzzz": 1})
        assert caught.value.problems[:2] == (
            "lease is not an option; did you mean lease_seconds?",
            "zzzzz is not an option",
        )
        assert [problem.split()[0] for problem in caught.value.problems[2:]] == ["mode", "wait_seconds"]
        assert str(caught.value) == "; ".join(caught.value.problems)

    def test_unknown_names_alone_are_an_error(self) -> None:
        """A misspelt option is not a default."""
        with pytest.raises(ConfigurationError, match="did you mean on_error"):
            Options.from_mapping({"on_eror": "store"})

    @pytest.mark.parametrize("written", ["IDEMPOTENCY_LEASE_SECONDS", "idempotency_lease_seconds"])
    def test_a_prefix_in_any_case(self, written: str) -> None:
        """Settings are written in capitals in Django and Flask, elsewhere not."""
        settings = {written: 5, "SECRET_KEY": "x", "LEASE_SECONDS": 7}
        assert Options.from_mapping(settings, prefix="IDEMPOTENCY_").lease_seconds == 5

    @pytest.mark.parametrize(
        ("written", "right"),
        [
            ("IDEMPOTENCY_LEASE_SECS", "IDEMPOTENCY_LEASE_SECONDS"),
            ("idempotency_lease_secs", "idempotency_lease_seconds"),
        ],
    )
    def test_the_right_name_is_written_as_the_wrong_one_was(self, written: str, right: str) -> None:
        """Prefix and case, so that it can be copied."""
        with pytest.raises(ConfigurationError) as caught:
            Options.from_mapping({written: 5}, prefix="IDEMPOTENCY_")
        assert caught.value.problems == (f"{written} is not an option; did you mean {right}?",)

    @pytest.mark.parametrize(("value", "right"), [("enforced", "enforce"), ("obsrve", "observe")])
    def test_a_near_choice_is_offered(self, value: str, right: str) -> None:
        """Among all that are possible."""
        with pytest.raises(ConfigurationError, match=f"did you mean '{right}'"):
            Options.from_mapping({"mode": value})

    def test_long_values_are_not_shown_whole(self) -> None:
        """An error is one line."""
        with pytest.raises(ConfigurationError) as caught:
            Options.from_mapping({"docs_url": "x" * 500})
        assert len(str(caught.value)) < 200

    def test_a_secret_is_shown_nowhere(self) -> None:
        """Neither in an error nor in a representation."""
        assert "s3cret" not in repr(Options(fingerprint_secret="s3cret"))
        with pytest.raises(ConfigurationError) as caught:
            Options.from_mapping({"fingerprint_secret": ["s3cret"]})
        assert "s3cret" not in str(caught.value)


class TestEnvironment:
    """IDEMPOTENCY_MODE: the switch for an emergency."""

    def test_it_wins_over_the_setting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever the code says."""
        monkeypatch.setenv(MODE_VARIABLE, "OFF")
        assert Options.from_mapping({"mode": "enforce"}).mode == "off"

    def test_empty_it_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if it were not there."""
        monkeypatch.setenv(MODE_VARIABLE, "")
        assert Options.from_mapping({"mode": "observe"}).mode == "observe"

    def test_wrong_it_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A switch that does nothing would be worse."""
        monkeypatch.setenv(MODE_VARIABLE, "of")
        with pytest.raises(ConfigurationError, match="did you mean 'off'"):
            Options.from_mapping({})

    def test_options_made_directly_do_not_read_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a program says itself is what it gets."""
        monkeypatch.setenv(MODE_VARIABLE, "off")
        assert Options().mode == "enforce"


class TestMerging:
    """A view's own options on top of the application's."""

    BASE = Options(lease_seconds=30, namespace="orders")

    def test_what_is_given_wins_and_the_rest_stays(self) -> None:
        """One level, no surprise."""
        merged = self.BASE.merge({"lease_seconds": 5, "wait_seconds": 1})
        assert (merged.lease_seconds, merged.wait_seconds, merged.namespace) == (5, 1, "orders")
        assert self.BASE.lease_seconds == 30

    def test_nothing_on_top_changes_nothing(self) -> None:
        """Not even the object."""
        assert self.BASE.merge({}) is self.BASE

    def test_relations_are_checked_in_the_result(self) -> None:
        """Each alone would be right."""
        with pytest.raises(ConfigurationError, match="must not be shorter than lease_seconds"):
            self.BASE.merge({"max_execution_seconds": 20})

    def test_what_was_compiled_for_the_base_is_not_used(self) -> None:
        """Each has its own patterns."""
        base = Options(key_pattern="a+")
        assert base.compiled_key_pattern is not None
        merged = base.merge({"key_pattern": "b+"})
        assert merged.compiled_key_pattern is not None
        assert merged.compiled_key_pattern.fullmatch("bb")


class TestForms:
    """Values may be written in the ways that come to mind."""

    def test_methods_in_any_case_and_collection(self) -> None:
        """A list does."""
        assert Options.from_mapping({"methods": ["post", "Put"]}).methods == {"POST", "PUT"}

    def test_header_names_in_any_case(self) -> None:
        """HTTP does not care."""
        options = Options.from_mapping({"drop_headers": ["X-A"], "keep_headers": ("Date",)})
        assert options.drop_headers == {"x-a"}
        assert options.keep_headers == {"date"}

    @pytest.mark.parametrize(("given", "secret"), [(None, None), ("s", b"s"), (b"s", b"s")])
    def test_a_secret_is_text_or_bytes(self, given: str | bytes | None, secret: bytes | None) -> None:
        """Environment variables are text."""
        assert Options(fingerprint_secret=given).secret == secret

    def test_a_uuid_pattern_by_name(self) -> None:
        """What most services want."""
        pattern = Options(key_pattern="uuid").compiled_key_pattern
        assert pattern is not None
        assert pattern.fullmatch("8e03978e-40d5-43e8-bc93-6894a57f9324")
        assert not pattern.fullmatch("k")

    def test_a_compiled_pattern_is_taken_as_it_is(self) -> None:
        """Flags included."""
        pattern = re.compile("a", re.IGNORECASE)
        assert Options(key_pattern=pattern).compiled_key_pattern is pattern
        assert Options().compiled_key_pattern is None

    def test_paths_in_the_body_are_compiled_once(self) -> None:
        """A key of the name "fingerprint" is none."""
        options = Options(key="detail.orderId", payload="detail")
        assert options.key_path is options.key_path
        assert options.key_path is not None
        assert options.payload_path is not None
        assert Options(key="fingerprint").key_path is None
        assert Options(payload=lambda request: 1).payload_path is None


@pytest.mark.parametrize(
    ("options", "method", "path", "covered"),
    [
        ({}, "POST", "/any", True),
        ({}, "GET", "/any", False),
        ({}, "post", "/any", True),
        ({"methods": ["POST"]}, "PUT", "/any", False),
        ({"mode": "off"}, "POST", "/any", False),
        ({"mode": "observe"}, "POST", "/any", True),
        ({"paths": ["/api"]}, "POST", "/api", True),
        ({"paths": ["/api"]}, "POST", "/api/x", True),
        ({"paths": ["/api"]}, "POST", "/apix", False),
        ({"paths": ["/api/"]}, "POST", "/api", False),
        ({"paths": ["/"]}, "POST", "/any", True),
        ({"paths": [re.compile(r"/v\d+/")]}, "POST", "/v12/orders", True),
        ({"paths": [re.compile(r"/v\d+/")]}, "POST", "/orders", False),
        ({"exempt_paths": ["/admin"]}, "POST", "/admin/login", False),
        ({"exempt_paths": ["/admin"]}, "POST", "/orders", True),
        ({"paths": ["/api"], "exempt_paths": ["/api/hooks"]}, "POST", "/api/hooks/1", False),
    ],
)
def test_covers(options: dict[str, Any], method: str, path: str, *, covered: bool) -> None:
    """Which requests are protected at all."""
    assert Options.from_mapping(options).covers(method, path) is covered


def test_functions_are_right_where_they_are_asked_for() -> None:
    """Key, caller, payload, predicate, observers."""

    def function(*_: object) -> None: ...

    functions: dict[str, Callable[..., None]] = dict.fromkeys(("key", "caller", "payload", "store_if"), function)
    assert Options.from_mapping({**functions, "observers": [function]}).observers == (function,)


@pytest.mark.parametrize("name", ["caller", "key", "payload"])
def test_a_function_of_the_user_s_may_look_at_the_framework_s_request(name: str) -> None:
    """So it has to be made; a JMESPath looks at the body alone."""
    functions: dict[str, Any] = {name: lambda request: "a"}
    assert Options(**functions).looks_at_native
    assert not Options(key="a.b", payload="a.b", caller="shared").looks_at_native


def test_what_an_option_takes_can_be_said_in_words() -> None:
    """For the documentation."""
    assert accepted_values("on_error") == '`"retry"` or `"store"` or `"refuse"`'
    assert accepted_values("lease_seconds") == "1 seconds or more"
    assert accepted_values("namespace") is None
