"""Which key a request has, for whom, and what it is: before anything is claimed."""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import UUID

import pytest

from idem_middleware import Options, Problem, ProblemType, Request
from idem_middleware.body import SPOOL_BYTES, RequestBody
from idem_middleware.identity import (
    Admitted,
    CallerUnknown,
    Identity,
    Passed,
    admit,
    call_caller,
    caller_name,
    identify,
)

JSON = (("Content-Type", "application/json"),)


def request(document: object = None, *, body: bytes | None = None, **changes: Any) -> Request:
    """A POST of this document."""
    body = json.dumps(document).encode() if body is None else body
    fields: dict[str, Any] = {"method": "POST", "path": "/orders", "headers": JSON, **changes}
    return Request(body=RequestBody.from_bytes(body), **fields)


def outcome(
    sent: Request, *, key: str | None = "k", name: str | None = None, **options: Any
) -> Identity | Passed | Problem:
    """What is made of a request that has this key in its header."""
    return identify(sent, Admitted(Options.from_mapping(options), key), name)


def identity(sent: Request, **rest: Any) -> Identity:
    """The same, for a request that is right."""
    found = outcome(sent, **rest)
    assert isinstance(found, Identity)
    return found


def problem(found: object) -> ProblemType:
    """The type of the problem."""
    assert isinstance(found, Problem)
    return found.type


class TestAdmission:
    """By the head alone."""

    def test_what_is_not_covered_passes(self) -> None:
        """Whatever its key looks like (IETF draft, section 2.5.1)."""
        assert admit(Options(), "GET", "/", ['"']) == Passed()

    def test_a_key_is_admitted(self) -> None:
        """Decoded."""
        assert admit(Options(), "POST", "/", ['"k"']) == Admitted(Options(), "k")

    @pytest.mark.parametrize("lines", [[""], ['"'], ["a b"], ["a", "a"], ["k" * 256]])
    def test_a_malformed_key_is_refused(self, lines: list[str]) -> None:
        """Before any hashing or I/O (granit-fx/granit-dotnet#1151), and also where a key is optional."""
        assert problem(admit(Options(require_key=False), "POST", "/", lines)) is ProblemType.KEY_INVALID

    def test_strictness_and_pattern_are_those_of_the_options(self) -> None:
        """Both are checked here."""
        assert problem(admit(Options(strict_key=True), "POST", "/", ["k"])) is ProblemType.KEY_INVALID
        assert problem(admit(Options(key_pattern="uuid"), "POST", "/", ["k"])) is ProblemType.KEY_INVALID

    def test_a_missing_key_is_refused_where_it_is_required(self) -> None:
        """The default."""
        assert problem(admit(Options(), "POST", "/", [])) is ProblemType.KEY_MISSING

    def test_a_missing_key_passes_where_it_is_optional(self) -> None:
        """No key, no record (aws-powertools/powertools-lambda-python#2465)."""
        assert admit(Options(require_key=False), "POST", "/", []) == Passed()

    def test_a_key_that_is_elsewhere_is_not_looked_for_in_the_header(self) -> None:
        """The body is not read yet."""
        options = Options(key="orderId")
        assert admit(options, "POST", "/", []) == admit(options, "POST", "/", ["x"]) == Admitted(options, None)


class TestCaller:
    """Who sends the request."""

    def test_without_a_function_nobody_is_asked(self) -> None:
        """Neither by default nor where sharing is meant."""
        for options in (Options(), Options(caller="shared")):
            assert call_caller(options, object()) is None
            assert caller_name(options, "anything") is None

    @pytest.mark.parametrize(("answer", "name"), [("ada", "ada"), (7, "7"), (0, "0"), (UUID(int=1), str(UUID(int=1)))])
    def test_a_stable_name(self, answer: object, name: str) -> None:
        """A string, a whole number or a UUID."""
        options = Options(caller=lambda native: answer)
        assert caller_name(options, call_caller(options, None)) == name

    @pytest.mark.parametrize("answer", [None, "", False, True, 1.5, b"ada", object()])
    def test_no_name_is_no_caller(self, answer: object) -> None:
        """It never falls into a bucket that several share (KanishJebaMathewM/Truxify#2382)."""
        options = Options(caller=lambda native: answer)
        with pytest.raises(CallerUnknown):
            caller_name(options, call_caller(options, None))

    def test_a_function_that_raises_names_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        """Its error is logged, and the cause is kept."""

        def function(native: object) -> str:
            raise LookupError("no session")

        with caplog.at_level(logging.ERROR, "idem_middleware"), pytest.raises(CallerUnknown) as caught:
            call_caller(Options(caller=function), None)
        assert isinstance(caught.value.__cause__, LookupError)
        assert "caller function raised" in caplog.text

    def test_it_gets_the_frameworks_own_request(self) -> None:
        """Which knows the user."""
        assert call_caller(Options(caller=lambda native: native["user"]), {"user": "ada"}) == "ada"

    def test_callers_do_not_share_keys(self) -> None:
        """The same key and body of two are two pieces of work (kortix-ai/suna#5267, arun0009/idempotent#217)."""
        pks = {identity(request(1), name=name, caller=str).pk for name in ("ada", "bob")}
        assert len(pks | {identity(request(1)).pk}) == 3

    def test_namespaces_do_not_share_keys(self) -> None:
        """Several services may use one table."""
        assert identity(request(1), namespace="a").pk != identity(request(1), namespace="b").pk


class TestCredentials:
    """Where no caller is configured, other credentials are another caller."""

    def digest(self, *headers: tuple[str, str], **options: Any) -> bytes | None:
        """What is kept of these headers."""
        return identity(request(1, headers=headers), **options).caller_digest

    def test_each_credential_counts(self) -> None:
        """And none are credentials, too."""
        digests = {
            self.digest(),
            self.digest(("Authorization", "a")),
            self.digest(("X-Api-Key", "a")),
            self.digest(("Authorization", "a"), ("Authorization", "a")),
            self.digest(("Authorization", "aa")),
            self.digest(("Authorization", "")),
        }
        assert len(digests) == 6

    def test_other_headers_and_case_do_not_count(self) -> None:
        """Cookies say nothing stable."""
        assert self.digest(("AUTHORIZATION", "a"), ("Cookie", "b")) == self.digest(("authorization", "a"))

    def test_a_secret_goes_into_it(self) -> None:
        """So that a stolen table tells no passwords."""
        header = ("Authorization", "Basic YTpi")
        assert self.digest(header, fingerprint_secret="s") != self.digest(header)

    @pytest.mark.parametrize("caller", ["shared", lambda native: "ada"])
    def test_nothing_is_kept_where_callers_are_configured(self, caller: object) -> None:
        """Tokens are refreshed between retries."""
        assert self.digest(("Authorization", "a"), caller=caller) is None

    def test_any_text_of_a_header_can_be_digested(self) -> None:
        """Latin-1, and what a broken server makes of other bytes."""
        assert self.digest(("Authorization", "\xe9\udcff"))


class TestKeyElsewhere:
    """From the body, from a function, or from what the request is."""

    def test_by_path(self) -> None:
        """A business identity, however deep."""
        assert of_key(request({"detail": {"orderId": "k"}}), "detail.orderId").pk == identity(request(1)).pk

    @pytest.mark.parametrize("document", [{"id": "k"}, {"id": "k", "more": [1]}])
    def test_the_value_is_the_key(self, document: object) -> None:
        """The same as in the header."""
        assert of_key(request(document), "id").pk == identity(request(1)).pk

    def test_the_body_is_read_once_for_key_and_payload(self) -> None:
        """And both find theirs."""
        first = made_of_key(request({"id": "k", "ts": 1}), "id", payload="id")
        assert made_of_key(request({"id": "k", "ts": 2}), "id", payload="id") == first

    def test_a_number_is_its_digits(self) -> None:
        """Business keys often are numbers."""
        assert of_key(request({"id": 17}), "id").pk == of_key(request({"id": "17"}), "id").pk

    @pytest.mark.parametrize("body", [b"", b"no json", b'{"id": null}', b"{}", b"[1]"])
    def test_nothing_found_is_a_missing_key(self, body: bytes) -> None:
        """Or nothing at all, where it is optional."""
        sent = request(body=body)
        assert problem(made_of_key(sent, "id")) is ProblemType.KEY_MISSING
        assert made_of_key(sent, "id", require_key=False) == Passed()

    @pytest.mark.parametrize("value", [1.5, True, [], {}, "", "\xe9", "x" * 256])
    def test_what_is_no_key_is_invalid(self, value: object) -> None:
        """It is not shortened, joined or guessed."""
        assert problem(made_of_key(request({"id": value}), "id")) is ProblemType.KEY_INVALID

    def test_a_body_too_large_to_be_read_has_no_key(self) -> None:
        """It lies in a file."""
        body = RequestBody()
        body.write(b'{"id": "k", "x": "' + b"x" * SPOOL_BYTES + b'"}')
        with body:
            sent = Request(method="POST", path="/", headers=JSON, body=body)
            assert problem(made_of_key(sent, "id")) is ProblemType.KEY_MISSING

    def test_by_function(self) -> None:
        """Of the whole request."""
        assert (
            of_key(request(1, query="key=k"), lambda sent: sent.query.removeprefix("key=")).pk
            == identity(request(1)).pk
        )

    def test_a_function_that_raises_finds_nothing(self) -> None:
        """A body that it can't read is the client's."""
        assert problem(made_of_key(request({}), lambda sent: sent.json()["id"])) is ProblemType.KEY_MISSING

    def test_the_pattern_counts_here_too(self) -> None:
        """Wherever the key comes from."""
        assert problem(made_of_key(request({"id": "k"}), "id", key_pattern="uuid")) is ProblemType.KEY_INVALID

    def test_by_fingerprint(self) -> None:
        """Clients that can't send a key: the same request is the same work."""
        first = of_key(request({"a": 1, "b": 2}), "fingerprint")
        assert of_key(request(body=b'{"b":2,"a":1}'), "fingerprint").pk == first.pk
        assert of_key(request({"a": 1}), "fingerprint").pk != first.pk


def made_of_key(sent: Request, key: object, **options: Any) -> Identity | Passed | Problem:
    """What is made of a request whose key is found by `key`."""
    return identify(sent, Admitted(Options.from_mapping({"key": key, **options}), None), None)


def of_key(sent: Request, key: object) -> Identity:
    """The same, for a request that is right."""
    found = made_of_key(sent, key)
    assert isinstance(found, Identity)
    return found


class TestFingerprint:
    """What two requests must have in common."""

    def print_of(self, sent: Request, **options: Any) -> bytes:
        """What is compared."""
        return identity(sent, **options).fingerprint

    @pytest.mark.parametrize(
        "other",
        [
            request({"a": 1}, method="PUT"),
            request({"a": 1}, path="/orders/2"),
            request({"a": 1}, query="dry=1"),
            request({"a": 1}, headers=()),
            request({"a": 2}),
        ],
    )
    def test_each_part_of_a_request_counts(self, other: Request) -> None:
        """No foreign replay (RamaAditya49/titen#37, pathosDev/actor-ts#609)."""
        assert self.print_of(other) != self.print_of(request({"a": 1}))

    def test_chosen_headers_count(self) -> None:
        """In any case and order of the option, repeated lines included."""
        one = request(1, headers=(*JSON, ("X-Version", "1")))
        two = request(1, headers=(*JSON, ("x-version", "2")))
        assert self.print_of(one) == self.print_of(two)
        chosen = {"fingerprint_headers": ["X-VERSION", "Accept"]}
        assert self.print_of(one, **chosen) != self.print_of(two, **chosen)
        assert self.print_of(one, **chosen) == self.print_of(one, fingerprint_headers=["accept", "x-version"])

    def test_a_path_narrows_what_counts(self) -> None:
        """A time stamp may differ."""
        one, two = request({"order": 1, "ts": 1}), request({"order": 1, "ts": 2})
        assert self.print_of(one, payload="order") == self.print_of(two, payload="order")
        assert self.print_of(one, payload="order") != self.print_of(request({"order": 2}), payload="order")

    def test_a_body_that_is_not_json_counts_as_written(self) -> None:
        """A path finds nothing in it; that must not make all such bodies one."""
        one, two = request(body=b"a"), request(body=b"b")
        assert self.print_of(one, payload="order") != self.print_of(two, payload="order")

    def test_a_function_narrows_what_counts(self) -> None:
        """Of anything in the request."""
        assert self.print_of(request(1, query="a"), payload=lambda sent: 7) == self.print_of(
            request(2, query="a"), payload=lambda sent: 7
        )

    @pytest.mark.parametrize(
        "function", [lambda sent: sent.json()["order"], lambda sent: sent.json(), lambda sent: object()]
    )
    def test_a_function_that_can_not_read_the_request_refuses_it(self, function: object) -> None:
        """Neither a crash nor a comparison of nothing (aws-powertools/powertools-lambda-python#5150)."""
        assert problem(outcome(request(body=b"[}"), payload=function)) is ProblemType.KEY_INVALID

    def test_a_secret_makes_it_a_mac(self) -> None:
        """Guessable bodies can't be guessed from the table."""
        assert self.print_of(request(1), fingerprint_secret="s") != self.print_of(request(1))

    def test_it_is_made_of_documented_inputs_alone(self) -> None:
        """No names of code, so that a refactoring changes no key (aws-powertools/powertools-lambda-python#1330)."""
        assert self.print_of(request(1, native=object())) == self.print_of(request(1, native="other"))


def test_logs_may_show_a_digest_of_the_key() -> None:
    """The first 12 digits."""
    found = identity(request(1))
    assert found.key_digest == found.pk[:12]


def test_a_request_reads_its_own_headers_and_json() -> None:
    """What functions of the options work with."""
    sent = request({"a": 1}, headers=(("X-A", "1"), ("x-a", "2")))
    assert (sent.header("X-a"), sent.header("y")) == ("1", None)
    assert sent.json() is not None
    body = RequestBody()
    body.write(b"[" + b" " * SPOOL_BYTES + b"]")
    with body, pytest.raises(ValueError, match="too large"):
        Request(method="POST", path="/", body=body).json()
