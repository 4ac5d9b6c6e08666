"""Rotating the fingerprint's secret: what was written under an earlier one is known until it is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from idem_middleware import ConfigurationError, Engine, Options, Request, RequestRefused, Response
from idem_middleware.body import RequestBody
from idem_middleware.decisions import Refuse, Replay, Swap, decide
from idem_middleware.problems import ProblemType
from idem_middleware.records import Status
from idem_middleware.stores import MemoryStore
from idem_middleware.testing import ManualClock
from tests.core.support.records import NOW, attempt_of, record_of

OLD, NEW = {"fingerprint_secret": "old"}, {"fingerprint_secret": "new"}
READING_NEW = {**OLD, "accepted_fingerprint_secrets": ["new"]}
READING_OLD = {**NEW, "accepted_fingerprint_secrets": ["old"]}
DONE = Response(201, (("content-type", "text/plain"),), b"done")


def post(body: bytes = b"{}", who: str = "ann") -> Request:
    """A request with credentials."""
    headers = (("idempotency-key", "k"), ("authorization", who))
    return Request(method="POST", path="/pay", headers=headers, body=RequestBody.from_bytes(body))


class Deployments:
    """One table, and processes with different options on it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.runs = 0

    def send(self, options: dict[str, Any], request: Request | None = None) -> int:
        """The status that a process with these options answers with."""

        def work(lease: object) -> Response:
            self.runs += 1
            return DONE

        return Engine(self.store, Options.from_mapping(options)).run(request or post(), work).status


@pytest.fixture
def deployments() -> Deployments:
    """Nothing is deployed yet."""
    return Deployments()


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (OLD, READING_NEW),
        (READING_NEW, READING_OLD),
        (READING_OLD, READING_NEW),
        (OLD, READING_OLD),
        (READING_OLD, NEW),
    ],
)
def test_a_retry_across_each_step_of_a_rotation_is_recognised(
    deployments: Deployments, first: dict[str, Any], then: dict[str, Any]
) -> None:
    """Accept the new one everywhere, write with it, and let the old one go when its records are over."""
    assert [deployments.send(first), deployments.send(then)] == [201, 201]
    assert deployments.runs == 1


def test_without_the_old_secret_a_retry_is_refused_and_runs_nothing(deployments: Deployments) -> None:
    """Nobody can tell any more whether it is the same request."""
    assert [deployments.send(OLD), deployments.send(NEW)] == [201, 422]
    assert deployments.runs == 1


def test_another_request_stays_another(deployments: Deployments) -> None:
    """Under any accepted secret; and so do other credentials."""
    deployments.send(OLD)
    assert deployments.send(READING_OLD, post(b'{"amount": 1}')) == 422
    assert deployments.send(READING_OLD, post(who="bob")) == 422
    assert deployments.runs == 1


def test_no_secret_may_be_an_earlier_one(deployments: Deployments) -> None:
    """The first secret of a service is a rotation, too."""
    assert deployments.send({}) == 201
    assert deployments.send({**NEW, "accepted_fingerprint_secrets": [None]}) == 201
    assert deployments.runs == 1


def test_what_is_claimed_anew_is_written_under_the_secret_in_force(deployments: Deployments) -> None:
    """So the old one can go when its retention is over."""
    deployments.send(OLD)
    deployments.clock.advance(86_401)
    assert deployments.send(READING_OLD) == 201
    assert deployments.send(NEW) == 201
    assert deployments.runs == 2


def test_work_that_does_not_come_by_http_is_recognised_too() -> None:
    """On both kinds of engine."""
    store = MemoryStore()
    Engine(store, Options.from_mapping(OLD)).run_once("k", {"order": 7}, lambda lease: "first")
    rotated = Engine(store, Options.from_mapping(READING_OLD))
    assert rotated.run_once("k", {"order": 7}, lambda lease: "again") == "first"

    async def again() -> str:
        async def work(lease: object) -> str:
            return "again"

        return await rotated.asynchronous.run_once("k", {"order": 7}, work)

    assert asyncio.run(again()) == "first"
    with pytest.raises(RequestRefused) as refused:
        rotated.run_once("k", {"order": 8}, lambda lease: "again")
    assert refused.value.problem.type is ProblemType.KEY_REUSED


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("found", [(b"print", b"caller"), (b"earlier", b"earlier caller")])
def test_a_decision_knows_no_difference_between_accepted_secrets(status: Status, found: tuple[bytes, bytes]) -> None:
    """In every state: what is done about a record is what would be done under the secret in force."""
    attempt = attempt_of(accepted=((b"earlier", b"earlier caller"),))
    record = record_of(status, fingerprint=found[0], caller_digest=found[1])
    ours = record_of(status)
    step, same = decide(attempt, record, NOW + 30), decide(attempt, ours, NOW + 30)
    assert type(step) is type(same)
    assert isinstance(step, (Refuse, Replay, Swap))
    if isinstance(step, Swap):
        assert (step.new.fingerprint, step.new.caller_digest) == (b"print", b"caller")


@pytest.mark.parametrize("changes", [{"fingerprint": b"other"}, {"caller_digest": b"other"}, {"caller_digest": None}])
def test_what_no_accepted_secret_makes_is_refused(changes: dict[str, Any]) -> None:
    """As ever."""
    attempt = attempt_of(accepted=((b"earlier", b"earlier caller"),))
    step = decide(attempt, replace(record_of(Status.COMPLETED), **changes), NOW)
    assert isinstance(step, Refuse)
    assert step.problem.type in (ProblemType.KEY_REUSED, ProblemType.CREDENTIALS_CHANGED)


@pytest.mark.parametrize("secrets", ["old", [""], [b""], [5], 5, {"old": 1}])
def test_what_is_no_secret_is_refused(secrets: Any) -> None:
    """At start-up, and without showing it."""
    with pytest.raises(ConfigurationError, match="accepted_fingerprint_secrets must be") as raised:
        Options(accepted_fingerprint_secrets=secrets)
    assert "old" not in str(raised.value)


def test_a_key_that_is_made_of_the_secret_cannot_be_rotated() -> None:
    """The option would promise what it can't keep."""
    with pytest.raises(ConfigurationError, match="key='fingerprint'"):
        Options(key="fingerprint", accepted_fingerprint_secrets=("old",))
