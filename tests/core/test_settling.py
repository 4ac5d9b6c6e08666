"""What is written when work has ended."""

from __future__ import annotations

import pytest

from idem_middleware import Options, Response
from idem_middleware.bodies import MAX_HEADER_BYTES
from idem_middleware.events import EventKind
from idem_middleware.problems import ProblemType
from idem_middleware.records import KeptResponse, OmittedResponse, Record, Status
from idem_middleware.settling import (
    COMPLETIONS,
    Plan,
    plan_answer,
    plan_completion,
    plan_exception,
    plan_failure,
    plan_omission,
    plan_release,
)
from tests.core.support.records import NOW, record_of

DEFAULT = Options()


def made(plan: Plan) -> Record:
    """What the plan puts in the place of a claim."""
    return plan.make(record_of(), NOW + 1)


def test_a_kept_answer_is_completed_with_its_kept_headers() -> None:
    """Status, chosen headers, body."""
    plan = plan_answer(Response(201, (("location", "/1"), ("date", "now")), b"x"), DEFAULT, inline_bytes=None)
    new = made(plan)
    assert (plan.kind, plan.status, plan.location, new.status) == (EventKind.COMPLETED, 201, "/1", Status.COMPLETED)
    assert new.response == KeptResponse(status=201, headers=(("location", "/1"),), body=b"x")


def test_an_answer_that_is_not_kept_fails() -> None:
    """The next retry runs again."""
    plan = plan_answer(Response(503), DEFAULT, inline_bytes=None)
    assert (plan.kind, plan.status, made(plan).status) == (EventKind.FAILED, 503, Status.FAILED)


@pytest.mark.parametrize(("status", "bound_to"), [(401, None), (403, None), (429, b"caller"), (503, b"caller")])
def test_credentials_that_the_view_turned_away_bind_nothing(status: int, bound_to: bytes | None) -> None:
    """The answer asks for other ones, so a retry that comes with them is no stranger's."""
    assert made(plan_answer(Response(status), DEFAULT, inline_bytes=None)).caller_digest == bound_to


def test_an_answer_from_before_the_view_releases() -> None:
    """The key is as good as new."""
    plan = plan_answer(Response(404), DEFAULT, inline_bytes=None, from_view=False)
    assert (plan.kind, plan.status, made(plan).bound_until <= NOW) == (EventKind.RELEASED, 404, True)


@pytest.mark.parametrize(
    "plan",
    [
        plan_answer(Response(500), Options(on_error="refuse"), inline_bytes=None),
        plan_exception(Options(on_error="refuse")),
    ],
)
def test_an_error_of_unknown_outcome_is_final(plan: Plan) -> None:
    """It is never run again, and its retries are told so."""
    assert plan.kind is EventKind.COMPLETED_WITHOUT_ANSWER
    assert made(plan).response == OmittedResponse(reason="outcome-unknown")


def test_an_answer_can_be_kept_from_the_table() -> None:
    """Of one that holds a new secret, nothing is known afterwards but that it was done."""
    plan = plan_answer(Response(201, (), b"secret"), Options(max_response_bytes=0), inline_bytes=None)
    assert plan.kind is EventKind.COMPLETED_WITHOUT_ANSWER
    assert made(plan).response == OmittedResponse(reason="response-not-stored")


def test_an_exception_fails_by_default() -> None:
    """The next retry runs again."""
    assert plan_exception(DEFAULT).kind is EventKind.FAILED


class TestTooLarge:
    """Never a reason to run again (gofiber/fiber#4018)."""

    @pytest.mark.parametrize(("size", "kept"), [(9, True), (10, True), (11, False)])
    def test_by_its_body(self, size: int, *, kept: bool) -> None:
        """Up to `max_response_bytes`, itself included."""
        plan = plan_completion(Response(200, (), b"x" * size), Options(max_response_bytes=10), inline_bytes=None)
        assert isinstance(made(plan).response, KeptResponse) is kept

    def test_by_its_headers(self) -> None:
        """More than any store could hold beside the claim."""
        headers = (("x", "y" * MAX_HEADER_BYTES),)
        plan = plan_completion(Response(200, headers), DEFAULT, inline_bytes=None)
        assert made(plan).response == OmittedResponse(reason="response-not-stored")

    def test_it_tells_where_to_look(self) -> None:
        """The Location is small."""
        response = Response(201, (("Location", "/1"),), b"xx")
        plan = plan_completion(response, Options(max_response_bytes=1), inline_bytes=None)
        assert made(plan).response == OmittedResponse(reason="response-not-stored", location="/1")


def test_a_large_answer_is_put_into_chunks_first() -> None:
    """What the record points at must be there when it points at it."""
    plan = plan_completion(Response(200, (), bytes(range(256)) * 8), DEFAULT, inline_bytes=64)
    response = made(plan).response
    assert isinstance(response, KeptResponse)
    assert response.chunks is not None
    assert response.chunks.count == len(plan.chunks) == 1


def test_a_completion_keeps_even_an_error() -> None:
    """Whoever says "complete" means it."""
    assert made(plan_completion(Response(500), DEFAULT, inline_bytes=None)).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("plan", "completion"),
    [
        (plan_completion(Response(200), DEFAULT, inline_bytes=None), True),
        (plan_omission(ProblemType.RESPONSE_NOT_STORED, None, DEFAULT), True),
        (plan_failure(DEFAULT), False),
        (plan_release(), False),
    ],
)
def test_completions_are_the_plans_that_say_done(plan: Plan, *, completion: bool) -> None:
    """Losing one of these is "executed, not recorded"."""
    assert (plan.kind in COMPLETIONS) is completion is (made(plan).status is Status.COMPLETED)


def test_the_retention_starts_when_it_is_written() -> None:
    """A plan that is carried out late keeps its answer as long."""
    plan = plan_completion(Response(200), Options(retention_seconds=100), inline_bytes=None)
    assert plan.make(record_of(), NOW + 40).expires_at == NOW + 140
