"""Refusals: RFC 9457 problem details that tell a client what to do, and nothing about the key."""

from __future__ import annotations

import json

import pytest

from idem_middleware import Problem, ProblemType, Response
from idem_middleware.problems import problem_response

STATUSES = {
    "key-missing": 400,
    "key-invalid": 400,
    "key-reused": 422,
    "credentials-changed": 422,
    "caller-unknown": 403,
    "in-progress": 409,
    "retry-later": 409,
    "outcome-unknown": 409,
    "response-not-stored": 409,
    "key-expired": 409,
    "record-unreadable": 409,
    "claim-refused": 409,
    "store-unavailable": 503,
    "request-too-large": 413,
}
every_type = pytest.mark.parametrize("kind", ProblemType, ids=lambda kind: kind.slug)


def members(response: Response) -> dict[str, object]:
    """The body, read."""
    read: dict[str, object] = json.loads(response.body)
    return read


def test_statuses() -> None:
    """As the IETF draft and its users agree."""
    assert {kind.slug: kind.status for kind in ProblemType} == STATUSES


@every_type
def test_a_problem_is_a_whole_answer(kind: ProblemType) -> None:
    """Members, media type, and nothing that a cache would keep."""
    response = problem_response(Problem(kind))
    assert response.status == kind.status
    assert members(response) == {
        "type": f"urn:idem-middleware:problem:{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": kind.detail,
    }
    assert response.headers == (
        ("content-type", "application/problem+json"),
        ("cache-control", "no-store"),
        ("content-length", str(len(response.body))),
    )


@every_type
def test_titles_and_details_are_sentences(kind: ProblemType) -> None:
    """For the client's developer."""
    assert kind.title[0].isupper()
    assert kind.detail.endswith(".")


@every_type
def test_only_what_is_ever_recorded_is_believed(kind: ProblemType) -> None:
    """A record that said that nothing was done, or that it still runs, was not written by us."""
    recorded = kind in (ProblemType.RESPONSE_NOT_STORED, ProblemType.OUTCOME_UNKNOWN)
    assert ProblemType.recorded(kind.slug) is (kind if recorded else ProblemType.RECORD_UNREADABLE)


def test_an_unknown_slug_is_a_record_that_can_not_be_read() -> None:
    """A newer version's reason."""
    assert ProblemType.recorded("of-tomorrow") is ProblemType.RECORD_UNREADABLE


@pytest.mark.parametrize(
    ("docs_url", "page"),
    [
        ("https://docs.example/idempotency", "https://docs.example/idempotency/key-reused"),
        ("https://docs.example/idempotency/", "https://docs.example/idempotency/key-reused"),
        ("https://docs.example/page#", "https://docs.example/page#key-reused"),
        ("https://docs.example/?topic=", "https://docs.example/?topic=key-reused"),
    ],
)
def test_docs_url_leads_to_a_page_for_each_problem(docs_url: str, page: str) -> None:
    """As `type` and as a link (IETF draft, section 2.7)."""
    response = problem_response(Problem(ProblemType.KEY_REUSED), docs_url)
    assert members(response)["type"] == page
    assert response.header("Link") == f'<{page}>; rel="describedby"'


def test_retry_after_and_location_are_headers() -> None:
    """When to come again, and where to look."""
    response = problem_response(Problem(ProblemType.IN_PROGRESS, retry_after_seconds=3, location="/orders/7"))
    assert (response.header("retry-after"), response.header("location")) == ("3", "/orders/7")


def test_a_reason_adds_to_the_detail() -> None:
    """It does not take its place."""
    problem = Problem(ProblemType.KEY_INVALID, reason="It is empty.")
    assert members(problem_response(problem))["detail"] == "The idempotency key is not valid. It is empty."
