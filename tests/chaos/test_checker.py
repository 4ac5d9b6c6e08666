"""The checker finds what it is there to find: every planted violation, and nothing in a history that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import Verdict, check
from tests.chaos.history import End, Gone, History, Line, Policy, Run, Told, Try, Up, dumped, history_of, read_trail

RETRY = Policy("retry", "retry", "retry", 2.0)
REFUSE = Policy("refuse", "refuse", "refuse", 2.0)
MIXED = Policy("mixed", "refuse", "retry", 2.0)

A, B = "sha-of-a", "sha-of-b"


def tried(id_: str, at: float = 10.0, **members: Any) -> Try:
    """One answered try; by default it succeeded with its own answer."""
    values: dict[str, Any] = {
        "name": "w",
        "key": "k",
        "caller": None,
        "credentials": None,
        "body": A,
        "digest": "d",
        "sent_at": at,
        "ended_at": at + 0.1,
        "outcome": "answered",
        "status": 201,
        "answer_of": id_,
        "answer": "sha-of-answer",
    }
    return Try(id=id_, **{**values, **members})


def refused(id_: str, at: float, status: int, problem: str | None, **members: Any) -> Try:
    return tried(id_, at, status=status, problem=problem, answer_of=None, answer=None, **members)


def lost(id_: str, at: float, **members: Any) -> Try:
    return tried(id_, at, outcome="lost", status=None, answer_of=None, answer=None, **members)


def replay(id_: str, at: float, of: str, **members: Any) -> Try:
    return tried(id_, at, answer_of=of, replayed=True, **members)


def ran(id_: str, at: float = 10.0, *, pid: int = 1, body: str = A, name: str = "w") -> Run:
    return Run(id=id_, name=name, pid=pid, arrived_at=at, at=at + 0.01, body=body)


def ended(id_: str, at: float = 10.05, *, pid: int = 1, status: int | None = 201) -> End:
    return End(id=id_, pid=pid, at=at, status=status)


def said(event: str, at: float, *, pid: int = 1, reason: str | None = None, digest: str | None = "d") -> Told:
    return Told(pid=pid, at=at, event=event, digest=digest, reason=reason)


def judged(
    tries: list[Try], lines: list[Line], policy: Policy = RETRY, logged: dict[str, int] | None = None
) -> Verdict:
    return check(history_of(policy, tries, lines, logged or {}, {0: 0.0, 1: 120.0, 2: -120.0}))


def promises(verdict: Verdict) -> set[str]:
    return {violation.promise for violation in verdict.violations}


def good() -> tuple[list[Try], list[Line]]:
    """A lost answer, a retry that replays, another body that is refused, and the last look."""
    tries = [
        lost("t1", 10.0),
        replay("t2", 11.0, "t1"),
        refused("t3", 11.5, 422, "key-reused", body=B),
        replay("q", 20.0, "t1", quiet=True),
    ]
    return tries, [ran("t1"), ended("t1")]


@pytest.mark.parametrize("policy", [RETRY, REFUSE, MIXED], ids=lambda policy: policy.name)
def test_a_right_history_has_no_violations(policy: Policy) -> None:
    """Whatever the policy."""
    verdict = judged(*good(), policy, {"w": 1})
    assert verdict.violations == ()
    assert not verdict.reasons
    assert not verdict.exceptions


def test_a_crash_is_a_reason_to_run_again_where_that_is_allowed() -> None:
    """When the lease is over."""
    tries = [
        lost("t1", 10.0),
        refused("t2", 11.0, 409, "in-progress"),
        tried("t3", 14.5),
        replay("q", 20.0, "t3", quiet=True),
    ]
    lines: list[Line] = [ran("t1"), Gone(pid=1, at=10.5), ran("t3", 14.5, pid=2), ended("t3", 14.6, pid=2)]
    verdict = judged(tries, lines)
    assert verdict.violations == ()
    assert verdict.reasons == {"crashed": 1}
    for policy in (REFUSE, MIXED):
        assert promises(judged(tries, lines, policy)) == {"bounded runs"}


def test_a_failure_is_a_reason_to_run_again_at_once_where_that_is_allowed() -> None:
    """By its answer, or by its plan where its process could tell no more."""
    tries = [refused("t1", 10.0, 500, None, fails=True), tried("t2", 10.2), replay("q", 20.0, "t2", quiet=True)]
    lines: list[Line] = [ran("t1"), ended("t1", status=500), ran("t2", 10.2), ended("t2", 10.3)]
    for policy in (RETRY, MIXED):
        verdict = judged(tries, lines, policy)
        assert verdict.violations == ()
        assert verdict.reasons == {"failed": 1}
    assert promises(judged(tries, lines, REFUSE)) == {"bounded runs"}

    silent: list[Line] = [ran("t1"), Gone(pid=1, at=10.1), ran("t2", 10.2, pid=2), ended("t2", 10.3, pid=2)]
    assert judged(tries, silent).violations == ()


def test_a_lost_lease_is_a_reason_to_run_again() -> None:
    """If its worker said so, and not before it was over."""
    tries = [lost("t1", 10.0), tried("t2", 14.5), replay("q", 20.0, "t2", quiet=True)]
    lines: list[Line] = [ran("t1"), ran("t2", 14.5, pid=2), ended("t2", 14.6, pid=2)]
    assert promises(judged(tries, lines)) == {"bounded runs"}
    verdict = judged(tries, [*lines, said("lease_lost", 15.0)])
    assert verdict.violations == ()
    assert verdict.reasons == {"lost lease": 1}
    assert promises(judged(tries, [*lines, said("lease_lost", 15.0, pid=3)])) == {"bounded runs"}
    assert promises(judged(tries, [*lines, said("lease_lost", 15.0, digest="other")])) == {"bounded runs"}


def test_an_answer_that_could_not_be_recorded_is_counted_and_no_violation() -> None:
    """Documented: shown, and then run again, or not known any more."""
    unrecorded = said("store_failed", 10.2, reason="recording")
    tries = [tried("t1", 10.0), tried("t2", 14.5), replay("q", 20.0, "t2", quiet=True)]
    lines: list[Line] = [ran("t1"), ended("t1", 10.3), ran("t2", 14.5, pid=2), ended("t2", 14.6, pid=2)]
    verdict = judged(tries, [*lines, unrecorded, Gone(pid=1, at=11.0)])
    assert verdict.violations == ()
    assert sum(verdict.exceptions.values()) == 1

    tries = [tried("t1", 10.0), refused("q", 20.0, 409, "outcome-unknown", quiet=True)]
    verdict = judged(tries, [ran("t1"), ended("t1", 10.3), unrecorded], REFUSE)
    assert verdict.violations == ()
    assert sum(verdict.exceptions.values()) == 1


# --- planted violations -----------------------------------------------------------------------------------------------

Planted = Callable[[], tuple[list[Try], list[Line], Policy]]


def ran_again_for_no_reason() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return tries, [*lines, ran("t2", 14.0), ended("t2", 14.1)], RETRY


def ran_again_after_its_record() -> tuple[list[Try], list[Line], Policy]:
    """A crash after the record is no reason."""
    tries, lines = good()
    return tries, [*lines, Gone(pid=1, at=12.0), ran("t2", 15.0, pid=2), ended("t2", 15.1, pid=2)], RETRY


def ran_again_before_the_lease_was_over() -> tuple[list[Try], list[Line], Policy]:
    """As a worker with a wrong clock would."""
    tries = [lost("t1", 10.0), tried("t2", 11.0), replay("q", 20.0, "t2", quiet=True)]
    return tries, [ran("t1"), Gone(pid=1, at=10.5), ran("t2", 11.0, pid=2), ended("t2", 11.1, pid=2)], RETRY


def one_request_ran_twice() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return tries, [*lines, ran("t1", 10.3)], RETRY


def ran_twice_although_refused() -> tuple[list[Try], list[Line], Policy]:
    tries = [lost("t1", 10.0), tried("t2", 15.0), replay("q", 20.0, "t2", quiet=True)]
    return tries, [ran("t1"), Gone(pid=1, at=10.5), ran("t2", 15.0, pid=2), ended("t2", 15.1, pid=2)], REFUSE


def crashed_before_it_could_fail() -> tuple[list[Try], list[Line], Policy]:
    """The plan to fail is no failure yet."""
    tries = [lost("t1", 10.0, fails=True, delay=1.0), tried("t2", 15.0), replay("q", 20.0, "t2", quiet=True)]
    return tries, [ran("t1"), Gone(pid=1, at=10.5), ran("t2", 15.0, pid=2), ended("t2", 15.1, pid=2)], MIXED


def two_answers() -> tuple[list[Try], list[Line], Policy]:
    tries = [tried("t1", 10.0), tried("t2", 15.0), replay("q", 20.0, "t2", quiet=True)]
    return tries, [ran("t1"), Gone(pid=1, at=10.5), ran("t2", 15.0, pid=2), ended("t2", 15.1, pid=2)], RETRY


def a_damaged_replay() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries[:-1], replace(tries[-1], answer="sha-of-half")], lines, RETRY


def a_damaged_replay_of_an_answer_that_all_saw() -> tuple[list[Try], list[Line], Policy]:
    tries = [tried("t1"), replay("t2", 11.0, "t1", status=200), replay("q", 20.0, "t1", quiet=True)]
    return tries, [ran("t1"), ended("t1")], RETRY


def an_answer_for_another_caller() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return (
        [*tries, replay("u1", 12.0, "t1", caller="u"), replay("u2", 20.0, "t1", caller="u", quiet=True)],
        lines,
        RETRY,
    )


def an_answer_for_another_body() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, replay("u", 12.0, "t1", body=B)], lines, RETRY


def an_answer_for_other_credentials() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, replay("u", 12.0, "t1", credentials="someone")], lines, RETRY


def an_answer_from_nowhere() -> tuple[list[Try], list[Line], Policy]:
    return [tried("t1"), replay("q", 20.0, "t1", quiet=True)], [], RETRY


def an_answer_without_its_maker() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, tried("t4", 12.0, answer_of=None)], lines, RETRY


def another_body_ran() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return tries, [*lines, ran("t3", 15.0, pid=2, body=B), said("lease_lost", 15.0)], RETRY


def the_handler_saw_another_body() -> tuple[list[Try], list[Line], Policy]:
    tries, _ = good()
    return tries, [ran("t1", body=B), ended("t1")], RETRY


def stuck() -> tuple[list[Try], list[Line], Policy]:
    return (
        [lost("t1", 10.0), refused("q", 60.0, 409, "in-progress", quiet=True)],
        [ran("t1"), Gone(pid=1, at=10.5)],
        RETRY,
    )


def stuck_after_a_corrected_clock() -> tuple[list[Try], list[Line], Policy]:
    tries, lines, policy = locked_by_a_wrong_clock()
    return tries, [*lines, said("clock_skewed", 9.0, digest=None)], policy


def stuck_although_its_process_lives() -> tuple[list[Try], list[Line], Policy]:
    tries, lines, policy = locked_by_a_wrong_clock()
    return tries, [line for line in lines if not isinstance(line, Gone)], policy


def stuck_after_a_right_clock() -> tuple[list[Try], list[Line], Policy]:
    tries, _, policy = locked_by_a_wrong_clock()
    return tries, [Up(pid=1, at=1.0, machine=0), said("store_retried", 10.01), Gone(pid=1, at=10.5)], policy


def locked_by_a_wrong_clock() -> tuple[list[Try], list[Line], Policy]:
    return (
        [lost("t1", 10.0, machine=1), refused("q", 60.0, 409, "in-progress", quiet=True)],
        [Up(pid=1, at=1.0, machine=1), said("store_retried", 10.01), Gone(pid=1, at=10.5)],
        RETRY,
    )


def an_error_of_a_handler_that_nobody_cancelled() -> tuple[list[Try], list[Line], Policy]:
    tries, lines, policy = cut_off_by_a_leaving_server()
    return tries, [line for line in lines if not isinstance(line, Told)], policy


def an_error_of_a_server_that_stays() -> tuple[list[Try], list[Line], Policy]:
    tries, lines, policy = cut_off_by_a_leaving_server()
    return tries, [line for line in lines if not isinstance(line, Gone)], policy


def cut_off_by_a_leaving_server() -> tuple[list[Try], list[Line], Policy]:
    return (
        [refused("t1", 10.0, 500, None), tried("q", 20.0, quiet=True)],
        [
            ran("t1"),
            said("abandoned", 13.9),
            ended("t1", 14.0, status=None),
            Gone(pid=1, at=14.1),
            ran("q", 20.0, pid=2),
            ended("q", 20.05, pid=2),
        ],
        RETRY,
    )


def unreachable() -> tuple[list[Try], list[Line], Policy]:
    return [lost("t1", 10.0), lost("q", 60.0, quiet=True)], [ran("t1")], RETRY


def never_asked_again() -> tuple[list[Try], list[Line], Policy]:
    return [lost("t1", 10.0)], [ran("t1")], RETRY


def acknowledged_and_lost() -> tuple[list[Try], list[Line], Policy]:
    return [tried("t1"), refused("q", 20.0, 409, "outcome-unknown", quiet=True)], [ran("t1"), ended("t1")], REFUSE


def an_unmarked_replay() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, replace(tries[1], id="t4", replayed=False)], lines, RETRY


def a_marked_first_answer() -> tuple[list[Try], list[Line], Policy]:
    return [tried("t1", replayed=True), replay("q", 20.0, "t1", quiet=True)], [ran("t1"), ended("t1")], RETRY


def reused_by_nobody() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [one for one in tries if one.body == A] + [refused("t5", 12.0, 422, "key-reused")], lines, RETRY


def unknown_although_retried() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, refused("t5", 12.0, 409, "outcome-unknown")], lines, RETRY


def an_error_nobody_planned() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, refused("t5", 12.0, 500, None)], lines, RETRY


def a_stored_answer_that_is_not() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return [*tries, refused("t5", 12.0, 409, "response-not-stored")], lines, RETRY


def an_exception_of_the_products_own() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return tries, [*lines, said("internal_error", 12.0, digest=None, reason="KeyError")], RETRY


def nobody_asked() -> tuple[list[Try], list[Line], Policy]:
    tries, lines = good()
    return tries, [*lines, ran("t9", 12.0, name="x")], RETRY


@pytest.mark.parametrize(
    ("planted", "promise"),
    [
        (ran_again_for_no_reason, "bounded runs"),
        (ran_again_after_its_record, "bounded runs"),
        (ran_again_before_the_lease_was_over, "bounded runs"),
        (one_request_ran_twice, "bounded runs"),
        (ran_twice_although_refused, "bounded runs"),
        (crashed_before_it_could_fail, "bounded runs"),
        (two_answers, "one answer"),
        (a_damaged_replay, "one answer"),
        (a_damaged_replay_of_an_answer_that_all_saw, "one answer"),
        (an_answer_for_another_caller, "one's own answer"),
        (an_answer_for_another_body, "one's own answer"),
        (an_answer_for_other_credentials, "one's own answer"),
        (an_answer_from_nowhere, "one's own answer"),
        (an_answer_without_its_maker, "one's own answer"),
        (another_body_ran, "one request a key"),
        (the_handler_saw_another_body, "one request a key"),
        (stuck, "nothing is stuck"),
        (stuck_after_a_corrected_clock, "nothing is stuck"),
        (stuck_although_its_process_lives, "nothing is stuck"),
        (stuck_after_a_right_clock, "nothing is stuck"),
        (an_error_of_a_handler_that_nobody_cancelled, "every answer has its reason"),
        (an_error_of_a_server_that_stays, "every answer has its reason"),
        (unreachable, "nothing is stuck"),
        (never_asked_again, "nothing is stuck"),
        (acknowledged_and_lost, "nothing acknowledged is lost"),
        (an_unmarked_replay, "replays are marked"),
        (a_marked_first_answer, "replays are marked"),
        (reused_by_nobody, "every answer has its reason"),
        (unknown_although_retried, "every answer has its reason"),
        (an_error_nobody_planned, "every answer has its reason"),
        (a_stored_answer_that_is_not, "every answer has its reason"),
        (an_exception_of_the_products_own, "no errors of its own"),
        (nobody_asked, "what runs was asked for"),
    ],
)
def test_a_planted_violation_is_found(planted: Planted, promise: str) -> None:
    """By the promise that it breaks, and told with its evidence."""
    verdict = judged(*planted())
    assert promise in promises(verdict)
    assert all(str(violation) for violation in verdict.violations)


@pytest.mark.parametrize("limit", [locked_by_a_wrong_clock, cut_off_by_a_leaving_server])
def test_a_documented_limit_is_counted_apart(limit: Planted) -> None:
    """Where all that the documentation says of it holds: each part that is missing makes it a violation."""
    verdict = judged(*limit())
    assert not verdict.violations
    assert sum(verdict.exceptions.values()) == 1


def test_the_log_of_the_probe_is_believed_more_than_the_trail() -> None:
    """A run that left no trail is one all the same."""
    assert promises(judged(*good(), RETRY, {"w": 2})) == {"what runs was asked for"}


def test_a_trail_survives_the_file_and_loses_only_an_unfinished_line(tmp_path: Path) -> None:
    """Its writers are killed at any moment."""
    lines: list[Line] = [ran("t1"), ended("t1"), said("lease_lost", 1.0), Gone(pid=1, at=2.0)]
    path = tmp_path / "trail"
    path.write_bytes(b"".join(map(dumped, lines)) + dumped(ran("t2"))[:20])
    assert read_trail(path) == lines
    assert read_trail(tmp_path / "none") == []
    assert isinstance(history_of(RETRY, [], lines, {}), History)
