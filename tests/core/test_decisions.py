"""What is done about a record: every question of the decision, and its neighbours in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware import Options, ProblemType
from idem_middleware.ciphers import AesGcm
from idem_middleware.claims import judge
from idem_middleware.decisions import (
    Adopt,
    Attempt,
    Create,
    Execute,
    Probe,
    Refuse,
    Replay,
    Step,
    Swap,
    Wait,
    decide,
    is_late,
)
from idem_middleware.messages import Request
from idem_middleware.records import Chunks, KeptResponse, OmittedResponse, Record, Status
from idem_middleware.stores.base import GONE
from tests.core.support.records import KEPT, MINE, NOW, THEIRS, attempt_of, record_of

PENDING = record_of()
COMPLETED = record_of(Status.COMPLETED)
FAILED = record_of(Status.FAILED)
MARGIN = 2.0
JUST = 1e-3

RETRY = Options()
REFUSE_ABANDONED = Options(on_abandoned="refuse")
REFUSE_EXPIRED = Options(on_expired="refuse", tombstone_seconds=86_400)


def summary(step: Step) -> str:
    """A step in a word or two."""
    match step:
        case Refuse(problem):
            return f"refuse {problem.type.slug}"
        case Swap(_, new):
            return f"swap attempt {new.attempt}"
        case Wait(_, seconds):
            return f"wait {seconds:g}"
        case _:
            return type(step).__name__.lower()


ROWS = [
    # what is it | options | patience | found | seconds after the claim | step
    ("nothing there", RETRY, 0, None, 0, "create"),
    # another schema
    ("a newer schema", RETRY, 0, replace(PENDING, schema=2), 0, "refuse record-unreadable"),
    ("a damaged record", RETRY, 0, replace(COMPLETED, schema=-1), 0, "refuse record-unreadable"),
    ("a newer schema, lease over", RETRY, 0, replace(PENDING, schema=2), 1000, "refuse record-unreadable"),
    (
        "a newer schema, another print",
        RETRY,
        0,
        replace(PENDING, schema=2, fingerprint=b""),
        0,
        "refuse record-unreadable",
    ),
    ("a newer schema, just bound", RETRY, 0, replace(PENDING, schema=2), 86_400 - JUST, "refuse record-unreadable"),
    ("a newer schema, no longer bound", RETRY, 0, replace(PENDING, schema=2), 86_400, "swap attempt 1"),
    # the key's end
    ("pending, just bound", RETRY, 0, PENDING, 86_400 - JUST, "swap attempt 2"),
    ("pending, no longer bound", RETRY, 0, PENDING, 86_400, "swap attempt 1"),
    ("pending, long free", RETRY, 0, PENDING, 86_400 + JUST, "swap attempt 1"),
    ("pending, free, refusing", REFUSE_ABANDONED, 0, PENDING, 86_400, "swap attempt 1"),
    ("failed, just bound", RETRY, 0, FAILED, 86_400 - JUST, "swap attempt 2"),
    ("failed, no longer bound", RETRY, 0, FAILED, 86_400, "swap attempt 1"),
    ("completed, no longer bound", REFUSE_EXPIRED, 0, COMPLETED, 2 * 86_400, "swap attempt 1"),
    ("another print, just bound", RETRY, 0, replace(PENDING, fingerprint=b"x"), 86_400 - JUST, "refuse key-reused"),
    ("another print, free", RETRY, 0, replace(PENDING, fingerprint=b"x"), 86_400, "swap attempt 1"),
    ("another caller, free", RETRY, 0, replace(PENDING, caller_digest=b"x"), 86_400, "swap attempt 1"),
    # another request or caller, whatever the state
    ("pending, another print", RETRY, 5, replace(PENDING, fingerprint=b"x"), 0, "refuse key-reused"),
    ("lease over, another print", RETRY, 0, replace(PENDING, fingerprint=b"x"), 1000, "refuse key-reused"),
    ("failed, another print", RETRY, 0, replace(FAILED, fingerprint=b"x"), 1000, "refuse key-reused"),
    ("completed, another print", RETRY, 0, replace(COMPLETED, fingerprint=b"x"), 0, "refuse key-reused"),
    ("expired, another print", RETRY, 0, replace(COMPLETED, fingerprint=b"x"), 86_400, "refuse key-reused"),
    ("pending, another caller", RETRY, 5, replace(PENDING, caller_digest=b"x"), 0, "refuse credentials-changed"),
    ("lease over, another caller", RETRY, 0, replace(PENDING, caller_digest=b"x"), 99, "refuse credentials-changed"),
    ("failed, another caller", RETRY, 0, replace(FAILED, caller_digest=b"x"), 99, "refuse credentials-changed"),
    ("failed, credentials turned away", RETRY, 0, replace(FAILED, caller_digest=None), 99, "swap attempt 2"),
    (
        "failed, credentials turned away, work checkpointed",
        RETRY,
        0,
        replace(FAILED, caller_digest=None, checkpoint=b"paid"),
        99,
        "refuse credentials-changed",
    ),
    ("pending, no caller kept", RETRY, 0, replace(PENDING, caller_digest=None), 99, "refuse credentials-changed"),
    ("completed, another caller", RETRY, 0, replace(COMPLETED, caller_digest=b"x"), 0, "refuse credentials-changed"),
    ("completed, no caller kept", RETRY, 0, replace(COMPLETED, caller_digest=None), 0, "refuse credentials-changed"),
    (
        "another caller and print: says nothing about the request",
        RETRY,
        0,
        replace(COMPLETED, caller_digest=b"x", fingerprint=b"x"),
        0,
        "refuse credentials-changed",
    ),
    # completed
    ("completed", RETRY, 0, COMPLETED, 0, "replay"),
    ("completed, just kept", RETRY, 0, COMPLETED, 86_400 - JUST, "replay"),
    ("completed, expired", RETRY, 0, COMPLETED, 86_400, "swap attempt 1"),
    ("completed, expired, refusing", REFUSE_EXPIRED, 0, COMPLETED, 86_400, "refuse key-expired"),
    ("completed, tombstone's last", REFUSE_EXPIRED, 0, COMPLETED, 2 * 86_400 - JUST, "refuse key-expired"),
    ("completed, no answer at all", RETRY, 0, replace(COMPLETED, response=None), 0, "refuse response-not-stored"),
    (
        "completed, answer not kept",
        RETRY,
        0,
        replace(COMPLETED, response=OmittedResponse(reason="response-not-stored")),
        0,
        "refuse response-not-stored",
    ),
    (
        "completed, outcome unknown",
        RETRY,
        0,
        replace(COMPLETED, response=OmittedResponse(reason="outcome-unknown")),
        0,
        "refuse outcome-unknown",
    ),
    (
        "completed, for a reason of tomorrow",
        RETRY,
        0,
        replace(COMPLETED, response=OmittedResponse(reason="of-tomorrow")),
        0,
        "refuse record-unreadable",
    ),
    # failed
    ("failed, pause begins", RETRY, 0, FAILED, 0, "refuse retry-later"),
    ("failed, pause ends", RETRY, 0, FAILED, 10 - JUST, "refuse retry-later"),
    ("failed, pause over", RETRY, 0, FAILED, 10, "swap attempt 2"),
    ("failed, on abandoned refuse", REFUSE_ABANDONED, 0, FAILED, 10, "swap attempt 2"),
    # pending, alive
    ("pending", RETRY, 0, PENDING, 0, "refuse in-progress"),
    ("pending, patient", RETRY, 5, PENDING, 0, "wait 5"),
    ("pending, more patient than the lease", RETRY, 90, PENDING, 0, "wait 62"),
    ("pending, lease ends", RETRY, 0, PENDING, 60 - JUST, "refuse in-progress"),
    ("pending, in the margin", RETRY, 0, PENDING, 60, "refuse in-progress"),
    ("pending, margin ends", RETRY, 0, PENDING, 60 + MARGIN - JUST, "refuse in-progress"),
    # pending, over
    ("lease over", RETRY, 0, PENDING, 60 + MARGIN, "swap attempt 2"),
    ("lease long over", RETRY, 5, PENDING, 60 + MARGIN + JUST, "swap attempt 2"),
    ("in the margin, refusing", REFUSE_ABANDONED, 0, PENDING, 60 + MARGIN - JUST, "refuse in-progress"),
    ("lease over, refusing", REFUSE_ABANDONED, 0, PENDING, 60 + MARGIN, "refuse outcome-unknown"),
    ("lease over, refusing, patient", REFUSE_ABANDONED, 5, PENDING, 60 + MARGIN, "refuse outcome-unknown"),
]


@pytest.mark.parametrize(
    ("options", "patience", "found", "after", "step"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_decision(options: Options, patience: float, found: Record | None, after: float, step: str) -> None:
    """Each row is one state, one instant and what follows."""
    assert summary(decide(attempt_of(options, patience_seconds=patience), found, NOW + after)) == step


class TestOwnWrites:
    """A write whose reply was lost meets itself (aws/aws-sdk-java#2667)."""

    TRIED = record_of(owner=MINE, version=4)

    def decide(self, found: Record, *, after: float = 0, tried: Record | None = None) -> Step:
        """The step about a record of mine."""
        return decide(attempt_of(tried=tried or self.TRIED), found, NOW + after)

    @pytest.mark.parametrize("status", list(Status))
    def test_what_was_tried_counts_as_written(self, status: Status) -> None:
        """Version, owner and status are those of the try."""
        tried = record_of(status, owner=MINE, version=4)
        assert self.decide(tried, tried=tried) == Execute(tried)

    def test_it_counts_even_if_the_key_is_free_by_now(self) -> None:
        """A released key is free at once, and its release has succeeded all the same."""
        tried = record_of(Status.FAILED, owner=MINE, version=4, bound_until=NOW - 1)
        assert self.decide(tried, tried=tried) == Execute(tried)

    def test_another_version_of_my_claim_is_adopted(self) -> None:
        """A renewal whose reply was lost."""
        found = replace(self.TRIED, version=3)
        completed = record_of(Status.COMPLETED, owner=MINE, version=3)
        assert self.decide(found) == Adopt(found)
        assert self.decide(found, tried=completed) == Adopt(found)

    def test_an_earlier_try_of_the_same_version_is_not_taken_for_this_one(self) -> None:
        """Of two renewals that were both sent as version 4, what stands there is what counts."""
        found = replace(self.TRIED, expires_at=self.TRIED.expires_at - 1)
        assert self.decide(found) == Adopt(found)

    def test_a_checkpoint_that_does_not_stand_there_was_not_written(self) -> None:
        """The renewal that took its version knew nothing of it."""
        assert self.decide(self.TRIED, tried=replace(self.TRIED, checkpoint=b"paid")) == Adopt(self.TRIED)

    def test_my_claim_is_adopted_when_its_completion_is_not_there(self) -> None:
        """The same version, but still pending."""
        assert self.decide(self.TRIED, tried=record_of(Status.COMPLETED, owner=MINE, version=4)) == Adopt(self.TRIED)

    def test_another_completion_of_mine_is_a_replay(self) -> None:
        """Anything else of mine is judged as found."""
        found = record_of(Status.COMPLETED, owner=MINE, version=9)
        assert self.decide(found) == Replay(found, KEPT)

    def test_a_failure_of_mine_at_another_version_is_run_again(self) -> None:
        """Anything else of mine is judged as found."""
        found = record_of(Status.FAILED, owner=MINE, version=9)
        assert summary(self.decide(found, after=10)) == "swap attempt 2"

    def test_without_a_try_nothing_is_mine(self) -> None:
        """The same owner by chance, or by a caller's mistake, is no reason to run."""
        assert summary(decide(attempt_of(), self.TRIED, NOW)) == "refuse in-progress"

    def test_the_same_version_of_another_owner_is_not_mine(self) -> None:
        """Versions alone prove nothing."""
        assert summary(self.decide(replace(self.TRIED, owner=THEIRS))) == "refuse in-progress"


class TestFreshClaims:
    """What is written when a lease is taken."""

    def claim(self, found: Record | None, after: float, options: Options = RETRY) -> Record:
        """The record that the step writes."""
        step = decide(attempt_of(options), found, NOW + after)
        assert isinstance(step, Create | Swap)
        return step.new

    def test_a_first_claim_has_version_and_attempt_one(self) -> None:
        """Nothing stood there."""
        new = self.claim(None, 0)
        assert (new.status, new.version, new.attempt, new.owner) == (Status.PENDING, 1, 1, MINE)
        assert (new.created_at, new.expires_at, new.bound_until) == (NOW, NOW + 60, NOW + 86_400)
        assert (new.fingerprint, new.caller_digest, new.response) == (b"print", b"caller", None)

    @pytest.mark.parametrize(("found", "after"), [(PENDING, 62), (FAILED, 10), (COMPLETED, 86_400), (PENDING, 86_400)])
    def test_each_takes_the_next_version(self, found: Record, after: float) -> None:
        """The version is the fencing token."""
        assert self.claim(found, after).version == found.version + 1

    @pytest.mark.parametrize(("found", "after"), [(PENDING, 62), (FAILED, 10)])
    def test_the_checkpoint_survives_a_crash_and_a_failure(self, found: Record, after: float) -> None:
        """The next attempt learns what was done."""
        assert self.claim(replace(found, checkpoint=b"paid"), after).checkpoint == b"paid"

    @pytest.mark.parametrize(("found", "after"), [(COMPLETED, 86_400), (PENDING, 86_400), (FAILED, 86_400)])
    def test_the_checkpoint_ends_with_the_key(self, found: Record, after: float) -> None:
        """Bound anew, the key has no past."""
        assert self.claim(replace(found, checkpoint=b"paid"), after).checkpoint is None

    def test_a_lease_longer_than_the_retention_binds_the_key_while_it_lasts(self) -> None:
        """The key is not free while somebody runs."""
        new = self.claim(None, 0, Options(lease_seconds=60, retention_seconds=1))
        assert new.bound_until == new.expires_at + MARGIN

    def test_the_response_of_an_expired_record_is_dropped(self) -> None:
        """A fresh claim holds no answer."""
        assert self.claim(COMPLETED, 86_400).response is None


class TestRetryAfter:
    """Refusals that pass tell when to come again (ietf-wg-httpapi/idempotency#11, novuhq/docs#202)."""

    @pytest.mark.parametrize(
        ("after", "seconds"), [(0, 5), (56.9, 5), (57.1, 5), (58, 4), (58.5, 4), (61.5, 1), (61.999, 1)]
    )
    def test_in_progress(self, after: float, seconds: int) -> None:
        """Whole seconds, from the remaining time, 1 to 5."""
        step = decide(attempt_of(), PENDING, NOW + after)
        assert isinstance(step, Refuse)
        assert step.problem.retry_after_seconds == seconds

    @pytest.mark.parametrize(("after", "seconds"), [(0, 5), (7.5, 3), (9.9, 1)])
    def test_retry_later(self, after: float, seconds: int) -> None:
        """As long as the pause goes on."""
        step = decide(attempt_of(), FAILED, NOW + after)
        assert isinstance(step, Refuse)
        assert step.problem.retry_after_seconds == seconds

    @pytest.mark.parametrize("found", [replace(PENDING, fingerprint=b"x"), replace(COMPLETED, response=None)])
    def test_what_does_not_pass_has_none(self, found: Record) -> None:
        """Coming again would change nothing."""
        step = decide(attempt_of(), found, NOW)
        assert isinstance(step, Refuse)
        assert step.problem.retry_after_seconds is None


def test_an_answer_that_is_not_kept_tells_where_to_look() -> None:
    """The Location of the first answer, if it had one."""
    omitted = OmittedResponse(reason="response-not-stored", location="/orders/7")
    step = decide(attempt_of(), replace(COMPLETED, response=omitted), NOW)
    assert isinstance(step, Refuse)
    assert (step.problem.type, step.problem.location) == (ProblemType.RESPONSE_NOT_STORED, "/orders/7")


# --- properties -------------------------------------------------------------------------------------------------------

many = settings(max_examples=500, deadline=None)
instants = st.floats(min_value=NOW - 1000, max_value=NOW + 1000)
often = st.sampled_from([0, 0, 0, 1])
responses = st.sampled_from(
    [
        None,
        KEPT,
        KeptResponse(status=200, headers=(), chunks=Chunks(1, 1, b"")),
        OmittedResponse(reason="outcome-unknown"),
        OmittedResponse(reason="?"),
    ]
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record that a worker of any version may have left."""
    status = draw(st.sampled_from(Status))
    expires_at = draw(instants)
    return Record(
        pk="pk",
        status=status,
        version=draw(st.integers(1, 5)),
        owner=draw(st.sampled_from([MINE, THEIRS])),
        attempt=draw(st.integers(0, 3)),
        fingerprint=(b"print", b"other")[draw(often)],
        caller_digest=(b"caller", draw(st.sampled_from([None, b"other"])))[draw(often)],
        created_at=draw(instants),
        expires_at=expires_at,
        # No lease is longer than its key is bound.
        bound_until=max(draw(instants), expires_at + MARGIN if status is Status.PENDING else NOW - 1000),
        response=draw(responses),
        checkpoint=draw(st.sampled_from([None, b"paid"])),
        schema=(1, draw(st.sampled_from([-1, 2])))[draw(often)],
    )


@st.composite
def attempts(draw: st.DrawFn) -> Attempt:
    """Any try, by any options that matter here."""
    options = Options(
        on_abandoned=draw(st.sampled_from(["retry", "refuse"])),
        on_expired=draw(st.sampled_from(["execute", "refuse"])),
        tombstone_seconds=10,
        lease_seconds=draw(st.sampled_from([1, 60])),
        retention_seconds=draw(st.sampled_from([1, 500])),
    )
    return attempt_of(
        options,
        patience_seconds=draw(st.sampled_from([0.0, 0.1, 30.0])),
        tried=draw(st.none() | records().map(lambda tried: replace(tried, owner=MINE))),
    )


@many
@given(attempts(), st.none() | records(), instants)
def test_every_record_has_a_step(attempt: Attempt, found: Record | None, now: float) -> None:
    """Whatever stands there, nothing raises."""
    assert isinstance(decide(attempt, found, now), Step)


@many
@given(attempts(), records(), instants)
def test_the_live_lease_of_another_is_never_run_or_written_over(attempt: Attempt, found: Record, now: float) -> None:
    """While a lease and its margin last, its owner is alone."""
    if found.owner == THEIRS and found.status is Status.PENDING and now < found.expires_at + MARGIN:
        assert isinstance(decide(attempt, found, now), Wait | Refuse)


@many
@given(attempts(), records(), instants)
def test_another_request_or_caller_learns_and_runs_nothing_while_the_key_is_bound(
    attempt: Attempt, found: Record, now: float
) -> None:
    """No replay, no wait, no run (aws-powertools/powertools-lambda-python#3781, idempot-dev/idempot-js#183).

    A failure that is bound to no credentials is nobody's yet: the view turned those away that it came with.
    """
    is_nobodys = found.status is Status.FAILED and found.caller_digest is None and found.checkpoint is None
    is_another_callers = found.caller_digest != attempt.caller_digest and not is_nobodys
    is_foreign = found.fingerprint != attempt.fingerprint or is_another_callers
    if is_foreign and found.owner == THEIRS and now < found.bound_until:
        assert isinstance(decide(attempt, found, now), Refuse)


@many
@given(attempts(), records(), instants)
def test_what_can_not_be_read_is_never_run_while_it_is_bound(attempt: Attempt, found: Record, now: float) -> None:
    """Neither crash nor absence (apache/polaris#5122)."""
    if found.schema != 1 and found.owner == THEIRS and now < found.bound_until:
        step = decide(attempt, found, now)
        assert isinstance(step, Refuse)
        assert step.problem.type is ProblemType.RECORD_UNREADABLE


@many
@given(attempts(), records(), instants)
def test_a_replay_is_of_a_completed_record_within_its_retention(attempt: Attempt, found: Record, now: float) -> None:
    """However late the sweeper is (pallets-eco/flask-session#240)."""
    step = decide(attempt, found, now)
    if isinstance(step, Replay):
        assert found.status is Status.COMPLETED
        assert now < min(found.expires_at, found.bound_until)
        assert step.response is found.response


@many
@given(attempts(), st.none() | records(), instants)
def test_what_is_written_is_bound_beyond_its_lease(attempt: Attempt, found: Record | None, now: float) -> None:
    """No other request gets a key whose lease is alive."""
    step = decide(attempt, found, now)
    if isinstance(step, Create | Swap):
        assert step.new.status is Status.PENDING
        before = attempt.tried if found is None else found
        assert step.new.version == (1 if before is None else before.version + 1)
        assert step.new.bound_until >= step.new.expires_at + attempt.margin_seconds
        assert step.new.owner == attempt.owner
        assert step.new.ttl > step.new.bound_until


@many
@given(attempts(), records(), instants)
def test_waiting_ends_with_patience_or_with_the_lease(attempt: Attempt, found: Record, now: float) -> None:
    """Whichever is sooner."""
    step = decide(attempt, found, now)
    if isinstance(step, Wait):
        assert 0 < step.seconds <= attempt.patience_seconds
        assert now + step.seconds <= found.expires_at + MARGIN + 1e-6


@many
@given(attempts(), records(), instants)
def test_only_own_writes_are_taken_as_written(attempt: Attempt, found: Record, now: float) -> None:
    """Executing on another's record would be a second run."""
    step = decide(attempt, found, now)
    if isinstance(step, Execute | Adopt):
        assert found.owner == attempt.owner
        assert attempt.tried is not None
        assert step.record is found


def test_a_claim_made_again_where_it_was_swept_is_another_one() -> None:
    """Who read the first one long ago, and wants to put its own in that place, must not fit the second.

    A process that was frozen for minutes renews its claim late, finds nothing, and claims anew as the same owner.
    """
    first = attempt_of().claim(None, NOW)
    again = judge(attempt_of(), first, GONE, NOW + 120)
    assert isinstance(again, Create)
    seen, stands = (first.owner, first.version), (again.new.owner, again.new.version)
    assert seen != stands


def test_a_key_that_is_bound_anew_knows_nothing_of_what_was_there() -> None:
    """Another request's checkpoint is none of this one's."""
    old = record_of(checkpoint=b"half", transaction="t-1")
    fresh = attempt_of().claim(old, NOW)
    assert (fresh.checkpoint, fresh.transaction) == (None, None)


def test_the_next_attempt_knows_what_the_last_one_has_left() -> None:
    """Its checkpoint, and which transaction was carried out."""
    old = record_of(checkpoint=b"half", transaction="t-1")
    next_one = attempt_of().claim(old, NOW, attempt=2, anew=False)
    assert (next_one.checkpoint, next_one.transaction) == (b"half", "t-1")


def test_a_first_claim_has_nothing_to_know() -> None:
    """Nothing stands there."""
    for anew in (True, False):
        first = attempt_of().claim(None, NOW, anew=anew)
        assert (first.checkpoint, first.transaction, first.version) == (None, None, 1)


@pytest.mark.parametrize(
    ("found", "late"),
    [
        (None, False),
        (record_of(), False),
        (record_of(Status.FAILED), False),
        (record_of(Status.COMPLETED, response=KEPT), True),
        (record_of(Status.COMPLETED, response=KEPT, fingerprint=b"another"), False),
    ],
    ids=["nothing", "running", "failed", "done", "another request"],
)
def test_only_what_was_done_makes_a_duplicate_late(found: Record | None, late: bool) -> None:  # noqa: FBT001
    """What claims anew where the same request was done, is a retry that came when its answer was kept no longer."""
    assert is_late(attempt_of(), found) is late


def test_the_request_of_an_attempt_is_no_part_of_what_it_is() -> None:
    """Two tries at one piece of work are equal whatever object they came as, and nothing of it is in their text."""
    one, other = (attempt_of(request=Request(method="POST", path="/secret-path")) for _ in range(2))
    assert one == other
    assert "secret-path" not in repr(one)
    assert attempt_of().request is None
    assert (attempt_of().probed, attempt_of().accepted, attempt_of().tried) == (None, (), None)


def test_an_attempt_neither_waits_nor_allows_for_clocks_unless_it_is_told_to() -> None:
    """Who decides for itself, without a runtime, gets nothing that it did not ask for."""
    attempt = Attempt(pk="pk", owner=MINE, fingerprint=b"print", caller_digest=None, options=Options())
    assert (attempt.patience_seconds, attempt.margin_seconds) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("accepted", "outcome"),
    [
        ((b"old print", b"old caller"), Replay),
        ((b"old print", b"another"), ProblemType.CREDENTIALS_CHANGED),
        ((b"another", b"old caller"), ProblemType.KEY_REUSED),
    ],
    ids=["both", "another caller", "another request"],
)
def test_what_was_written_under_an_earlier_secret_is_known_by_its_digests_there(
    accepted: tuple[bytes, bytes], outcome: object
) -> None:
    """Of the caller as of the request: each for itself."""
    found = record_of(Status.COMPLETED, response=KEPT, fingerprint=b"old print", caller_digest=b"old caller")
    step = decide(attempt_of(accepted=((b"none", b"none"), accepted)), found, NOW)
    if isinstance(step, Refuse):
        assert step.problem.type is outcome
    else:
        assert type(step) is outcome


class TestProbing:
    """What is decided about an abandoned claim where the user may know what became of it."""

    LATE = NOW + 100  # the lease of the claim, and the margin, are over

    def step(self, *, on_abandoned: Literal["retry", "refuse"] = "retry", **asked: Any) -> Step:
        """What is decided about somebody's claim at version 3."""
        options = Options(prober=lambda _: None, on_abandoned=on_abandoned)
        return decide(attempt_of(options, **asked), PENDING, self.LATE)

    @pytest.mark.parametrize("probed", [None, ("another", 3, True), (THEIRS, 2, True)])
    def test_who_has_not_asked_about_this_claim_asks(self, probed: tuple[str, int, bool] | None) -> None:
        """What was said of another one, or of an earlier version, says nothing of this."""
        assert self.step(probed=probed) == Probe(PENDING)

    @pytest.mark.parametrize("on_abandoned", ["retry", "refuse"])
    def test_what_was_not_done_runs_again(self, on_abandoned: Literal["retry", "refuse"]) -> None:
        """Also where what is unknown is refused: it is known now."""
        step = self.step(on_abandoned=on_abandoned, probed=(THEIRS, 3, True))
        assert isinstance(step, Swap)
        assert (step.old, step.new.attempt) == (PENDING, 2)

    def test_what_stays_unknown_is_as_without_asking(self) -> None:
        """By `on_abandoned`."""
        assert isinstance(self.step(probed=(THEIRS, 3, False)), Swap)
        refused = self.step(on_abandoned="refuse", probed=(THEIRS, 3, False))
        assert isinstance(refused, Refuse)
        assert refused.problem.type is ProblemType.OUTCOME_UNKNOWN


@pytest.mark.parametrize(
    ("cipher", "told"),
    [
        (None, "/orders/1"),
        (AesGcm({"now": b"k" * 32}), None),
        (AesGcm({"now": b"k" * 32}, reads_plain=True), "/orders/1"),
    ],
    ids=["no cipher", "a cipher", "a cipher that still reads what is not sealed"],
)
def test_a_location_that_nobody_has_sealed_is_believed_only_where_that_is_meant(
    cipher: AesGcm | None, told: str | None
) -> None:
    """Whoever can write to the table could send clients elsewhere."""
    omitted = OmittedResponse(reason=ProblemType.RESPONSE_NOT_STORED.slug, location="/orders/1")
    step = decide(attempt_of(Options(cipher=cipher)), record_of(Status.COMPLETED, response=omitted), NOW)
    assert isinstance(step, Refuse)
    assert step.problem.location == told
