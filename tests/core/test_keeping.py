"""Which answers are final, and what of them is given again."""

from __future__ import annotations

import logging

import pytest

from idem_middleware import Options, Response
from idem_middleware.keeping import Verdict, failure_verdict, kept_headers, method_refused, verdict
from idem_middleware.messages import HeaderPairs

DEFAULT = Options()
KEEP, FAIL, RELEASE, UNKNOWN = Verdict.KEEP, Verdict.FAIL, Verdict.RELEASE, Verdict.OUTCOME_UNKNOWN


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((200, 201, 202, 204, 206, 299), KEEP),
        ((301, 302, 303), KEEP),
        ((400, 402, 404, 405, 409, 410, 412, 415, 422, 451, 499), KEEP),
        ((401, 403, 407, 408, 421, 425, 429), FAIL),
        ((100, 103, 199, 300, 304), FAIL),
        ((307, 308), RELEASE),
        ((500, 501, 502, 503, 504, 599), FAIL),
    ],
)
def test_default_rules(statuses: tuple[int, ...], expected: Verdict) -> None:
    """Passing errors are not pinned to the key (LabsCrypt/remitlend#1329), final ones are."""
    assert {verdict(Response(status), DEFAULT) for status in statuses} == {expected}


@pytest.mark.parametrize("status", [200, 404, 422, 500])
def test_what_the_framework_answered_before_the_view_releases_the_key(status: int) -> None:
    """Nothing was begun."""
    assert verdict(Response(status), Options(on_error="store"), from_view=False) is RELEASE


@pytest.mark.parametrize(
    ("on_error", "answer", "exception"), [("retry", FAIL, FAIL), ("store", KEEP, FAIL), ("refuse", UNKNOWN, UNKNOWN)]
)
def test_on_error(on_error: str, answer: Verdict, exception: Verdict) -> None:
    """A 5xx can be kept as it is; of an exception there is nothing to keep."""
    options = Options.from_mapping({"on_error": on_error})
    assert verdict(Response(500), options) is answer
    assert failure_verdict(options) is exception


class TestStoreIf:
    """A predicate of the user's (paveg/hono-idempotency#178, ietf-wg-httpapi/idempotency#41)."""

    def test_it_decides(self) -> None:
        """True keeps, False does not."""
        options = Options(store_if=lambda response: response.status == 503)
        assert verdict(Response(503), options) is KEEP
        assert verdict(Response(200), options) is FAIL

    def test_none_leaves_it_to_the_default_rules(self) -> None:
        """So that a predicate need only name its exceptions."""
        options = Options(store_if=lambda response: False if response.status == 404 else None)
        assert [verdict(Response(status), options) for status in (404, 200, 500)] == [FAIL, KEEP, FAIL]

    def test_it_is_not_asked_about_what_never_reached_the_view(self) -> None:
        """There is no outcome to judge."""
        options = Options(store_if=lambda response: pytest.fail("asked"))
        assert verdict(Response(404), options, from_view=False) is RELEASE

    def test_one_that_raises_leaves_it_to_the_default_rules(self, caplog: pytest.LogCaptureFixture) -> None:
        """The work is done; its client must get its answer."""

        def broken(response: Response) -> bool:
            raise LookupError(response.status)

        with caplog.at_level(logging.ERROR, "idem_middleware"):
            assert verdict(Response(201), Options(store_if=broken)) is KEEP
        assert "store_if" in caplog.text


def kept(*headers: tuple[str, str], **options: object) -> list[str]:
    """The names that survive."""
    return [name for name, _ in kept_headers(headers, Options.from_mapping(options))]


def test_what_describes_the_result_is_kept_in_order() -> None:
    """Media type, location, validators, repeated lines (VSN2015/concerns_on_rails#47, fullstackhero/docs#240)."""
    headers: HeaderPairs = (
        ("Content-Type", "text/csv"),
        ("Location", "/orders/7"),
        ("Link", "<a>"),
        ("ETag", '"1"'),
        ("Link", "<b>"),
        ("Vary", "Accept"),
        ("X-Own", ""),
    )
    assert kept_headers(headers, DEFAULT) == headers


@pytest.mark.parametrize(
    "name",
    [
        "Connection", "Keep-Alive", "Transfer-Encoding", "TE", "Trailer", "Upgrade", "Content-Length",
        "Proxy-Authenticate", "Date", "Server", "Age", "Via", "Set-Cookie", "WWW-Authenticate", "Retry-After",
        "RateLimit", "RateLimit-Remaining", "X-RateLimit-Limit", "X-Rate-Limit-Reset", "X-Request-ID", "traceparent",
        "X-B3-TraceId", "Server-Timing", "Access-Control-Allow-Origin", "Idempotency-Key", "Idempotent-Replayed",
    ],
)  # fmt: skip
def test_what_belongs_to_one_exchange_is_not_kept(name: str) -> None:
    """Nor is framing, which would describe another body (granit-fx/granit-dotnet#1151, ikyriak/IdempotentAPI#21)."""
    assert kept((name, "x"), (name.upper(), "x"), (name.lower(), "x")) == []


def test_a_header_named_by_connection_is_not_kept() -> None:
    """It is of this connection (RFC 9110, section 7.6.1)."""
    assert kept(("Connection", "close, X-Hop"), ("x-hop", "1"), ("X-Other", "1")) == ["X-Other"]


def test_drop_headers_drops() -> None:
    """In any case."""
    assert kept(("X-Token", "t"), ("X-Other", "1"), drop_headers=["x-TOKEN"]) == ["X-Other"]


def test_keep_headers_brings_back() -> None:
    """What is dropped by default, by name or by prefix."""
    assert kept(("Set-Cookie", "a"), ("RateLimit-Limit", "1"), keep_headers=["set-cookie", "ratelimit-limit"]) == [
        "Set-Cookie",
        "RateLimit-Limit",
    ]


@pytest.mark.parametrize("name", ["Connection", "Transfer-Encoding", "Content-Length", "Upgrade"])
def test_keep_headers_can_not_bring_back_framing(name: str) -> None:
    """Such an answer would be broken."""
    assert kept((name, "1"), keep_headers=[name]) == []


def test_drop_wins_over_keep() -> None:
    """The safer of two contradicting wishes."""
    assert kept(("ETag", "1"), keep_headers=["etag"], drop_headers=["etag"]) == []


def test_the_marks_own_name_is_never_kept() -> None:
    """A replay has exactly one."""
    assert kept(("X-Replayed", "true"), replay_header="X-Replayed") == []


@pytest.mark.parametrize(
    ("allow", "refused"),
    [(("GET, HEAD",), True), (("GET, post",), False), (("GET", "POST"), False), ((), False), (("",), True)],
)
def test_a_405_that_does_not_allow_the_method_never_reached_the_view(allow: tuple[str, ...], *, refused: bool) -> None:
    """Its Allow lacks the method; an empty one allows none (RFC 9110, sections 10.2.1 and 15.5.6)."""
    assert method_refused(tuple(("Allow", value) for value in allow), "POST") is refused
