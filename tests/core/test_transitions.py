"""What owners write: only what the table allows, each time with the next version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idem_middleware import Options, transitions
from idem_middleware.decisions import Create, Refuse, Swap, decide
from idem_middleware.records import TRANSITIONS, OmittedResponse, Record, Status
from tests.core.support.records import KEPT, NOW, attempt_of, record_of

OPTIONS = Options(retention_seconds=1000, tombstone_seconds=50, retry_after_failure_seconds=5)
NO_PAUSE = Options(retention_seconds=1000)
EDGES = {(edge.before, edge.after) for edge in TRANSITIONS}

WRITES: dict[str, Callable[[Record, float], Record]] = {
    "completed": lambda old, now: transitions.completed(old, KEPT, now, OPTIONS),
    "omitted": lambda old, now: transitions.completed(old, OmittedResponse(reason="outcome-unknown"), now, OPTIONS),
    "failed": lambda old, now: transitions.failed(old, now, OPTIONS),
    "failed without a pause": lambda old, now: transitions.failed(old, now, NO_PAUSE),
    "released": transitions.released,
    "renewed": lambda old, now: transitions.renewed(old, now, OPTIONS, 2.0),
    "undone": transitions.undone,
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@every_write
def test_every_write_lies_on_the_table(write: Callable[[Record, float], Record]) -> None:
    """From PENDING to what the table allows."""
    assert (Status.PENDING, write(record_of(), NOW).status) in EDGES


@every_write
@pytest.mark.parametrize("attempt", [1, 3])
@pytest.mark.parametrize("written", [None, b"paid"], ids=["nothing written", "something written"])
def test_every_write_is_the_next_version_of_the_same_claim(
    write: Callable[[Record, float], Record], attempt: int, written: bytes | None
) -> None:
    """The fencing token moves by one; whose it is and for what does not move."""
    old = record_of(attempt=attempt, checkpoint=written)
    new = write(old, NOW + 1)
    assert new.version == old.version + 1
    assert (new.pk, new.owner, new.fingerprint, new.caller_digest) == (
        old.pk,
        old.owner,
        old.fingerprint,
        old.caller_digest,
    )


END = {"status", "version", "expires_at"}
CHANGES: dict[str, set[str]] = {
    "completed": {*END, "bound_until", "response", "checkpoint", "transaction"},
    "omitted": {*END, "bound_until", "response", "checkpoint", "transaction"},
    "failed": END,
    "failed without a pause": END,
    "released": {*END, "response"},
    "renewed": {"version", "expires_at"},
    "undone": {*END, "attempt"},
    "checkpointed": {"version", "checkpoint"},
    "checkpointed by a transaction": {"version", "checkpoint", "transaction"},
    "erased": {"version", "response", "checkpoint"},
}
ALL_WRITES: dict[str, Callable[[Record, float], Record]] = {
    **WRITES,
    "checkpointed": lambda old, _: transitions.checkpointed(old, b"more"),
    "checkpointed by a transaction": lambda old, _: transitions.checkpointed(old, b"more", transaction="u"),
    "erased": lambda old, _: transitions.erased(old),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_write_changes_what_it_is_for_and_nothing_else(name: str) -> None:
    """Of a record in which no field has the value that it begins with."""
    old = record_of(
        attempt=3,
        checkpoint=b"paid",
        transaction="t",
        response=OmittedResponse(reason="too-large", location="/orders/1"),
        schema=7,
        audited=True,
        expires_at=NOW + 77,
    )
    new = ALL_WRITES[name](old, NOW + 1)
    changed = {field.name for field in fields(Record) if getattr(new, field.name) != getattr(old, field.name)}
    assert changed == CHANGES[name]
    assert new.version == old.version + 1


def test_what_is_given_back_unwritten_bears_no_answer() -> None:
    """Nothing is left of it."""
    old = record_of(response=KEPT)
    assert transitions.released(old, NOW + 1) == replace(
        old, status=Status.FAILED, version=old.version + 1, expires_at=NOW, bound_until=NOW, response=None
    )


@every_write
def test_the_sweeper_comes_after_the_key_is_free(write: Callable[[Record, float], Record]) -> None:
    """`ttl` is whole unix seconds (chiradeep/dyndb-mutex#14)."""
    new = write(record_of(), NOW)
    assert isinstance(new.ttl, int)
    assert new.bound_until < new.ttl < new.bound_until + 120


@pytest.mark.parametrize("found", [None, *(record_of(status) for status in Status)])
def test_every_claim_lies_on_the_table(found: Record | None) -> None:
    """From nothing, and from each state once it is over."""
    step = decide(attempt_of(), found, NOW + 10 * 86_400)
    assert isinstance(step, Create | Swap)
    assert (None if found is None else found.status, step.new.status) in EDGES


def test_the_table_has_no_way_back_from_completed_but_a_new_binding() -> None:
    """What is done stays done until its retention is over; only its answer may go before."""
    assert [edge.name for edge in TRANSITIONS if edge.before is Status.COMPLETED] == ["erase", "bind anew"]


def test_what_is_erased_is_done_for_as_long_as_before() -> None:
    """Nothing is left of the answer, and nothing runs again."""
    old = transitions.completed(record_of(), KEPT, NOW, OPTIONS)
    new = transitions.erased(old)
    assert new == replace(
        old, version=old.version + 1, response=OmittedResponse(reason="response-not-stored"), checkpoint=None
    )


def test_names_of_the_table_are_unique() -> None:
    """The documentation's diagram is made from them."""
    assert len({edge.name for edge in TRANSITIONS}) == len(TRANSITIONS) == len(EDGES) + 1


def test_the_retention_starts_at_completion() -> None:
    """Not at the claim: a slow handler's answer is kept as long as a fast one's."""
    new = transitions.completed(record_of(), KEPT, NOW + 500, OPTIONS)
    assert (new.expires_at, new.bound_until) == (NOW + 1500, NOW + 1550)


def test_completion_drops_the_checkpoint() -> None:
    """The answer says it all."""
    assert transitions.completed(record_of(checkpoint=b"paid"), KEPT, NOW, OPTIONS).checkpoint is None


def test_a_failure_keeps_the_checkpoint() -> None:
    """The next attempt learns what was done."""
    assert transitions.failed(record_of(checkpoint=b"paid"), NOW, OPTIONS).checkpoint == b"paid"


def test_a_failure_is_bound_to_no_credentials_that_were_turned_away() -> None:
    """A refreshed token may try again; work that was checkpointed stays with those who did it."""
    assert transitions.failed(record_of(), NOW, OPTIONS, unwelcome=True).caller_digest is None
    checkpointed = record_of(checkpoint=b"paid")
    assert transitions.failed(checkpointed, NOW, OPTIONS, unwelcome=True).caller_digest == b"caller"


def test_a_failure_holds_back_the_next_try_for_its_pause() -> None:
    """The earliest retry is `retry_after_failure_seconds` away."""
    assert transitions.failed(record_of(), NOW + 3, OPTIONS).expires_at == NOW + 8


def test_a_failure_without_a_pause_is_over_for_every_clock() -> None:
    """Also for one that is a little slow."""
    assert transitions.failed(record_of(), NOW + 3, NO_PAUSE).expires_at == NOW


def test_a_failure_keeps_the_key_bound_to_its_request() -> None:
    """From the attempt's start, and at least over the pause."""
    assert transitions.failed(record_of(), NOW, OPTIONS).bound_until == NOW + 86_400
    assert transitions.failed(record_of(bound_until=NOW + 1), NOW, OPTIONS).bound_until == NOW + 5


def test_a_released_key_is_free_for_any_request() -> None:
    """As if it had never been used."""
    new = transitions.released(record_of(), NOW)
    assert isinstance(decide(attempt_of(fingerprint=b"another"), new, NOW), Swap)


@pytest.mark.parametrize("written", [{"checkpoint": b"paid"}, {"transaction": "t"}], ids=["checkpoint", "transaction"])
@pytest.mark.parametrize("end", [transitions.released, transitions.undone])
def test_a_key_under_which_something_was_written_is_not_free(
    end: Callable[[Record, float], Record], written: dict[str, Any]
) -> None:
    """An earlier attempt did it, or the claim itself: the next one, of the same request, must hear of that."""
    old = record_of(**written)
    new = end(old, NOW)
    assert (new.status, new.checkpoint, new.transaction) == (Status.FAILED, old.checkpoint, old.transaction)
    assert isinstance(decide(attempt_of(fingerprint=b"another"), new, NOW), Refuse)
    step = decide(attempt_of(), new, NOW)
    assert isinstance(step, Swap)
    assert (step.new.checkpoint, step.new.transaction) == (old.checkpoint, old.transaction)


def test_an_undone_first_claim_leaves_nothing() -> None:
    """The request never ran, so its key is free."""
    step = decide(attempt_of(fingerprint=b"another"), transitions.undone(record_of(), NOW), NOW)
    assert isinstance(step, Swap)
    assert step.new.attempt == 1


def test_an_undone_later_claim_gives_its_number_back() -> None:
    """The earlier attempts did run: the key stays bound to them, and the checkpoint stays."""
    new = transitions.undone(record_of(attempt=3, checkpoint=b"paid"), NOW)
    step = decide(attempt_of(), new, NOW)
    assert isinstance(step, Swap)
    assert (new.attempt, step.new.attempt, step.new.checkpoint) == (2, 3, b"paid")


@settings(deadline=None)
@given(
    st.floats(0, 10_000), st.sampled_from([1.0, 60.0]), st.sampled_from([1.0, 86_400.0]), st.sampled_from([0.0, 2.0])
)
def test_the_key_is_bound_beyond_every_renewed_lease(
    later: float, lease: float, retention: float, margin: float
) -> None:
    """`bound_until` moves where it must, and never back."""
    options = Options(lease_seconds=lease, retention_seconds=retention)
    old = attempt_of(options, margin_seconds=margin).claim(None, NOW)
    new = transitions.renewed(old, NOW + later, options, margin)
    assert new.expires_at == NOW + later + lease
    assert new.bound_until >= max(old.bound_until, new.expires_at + margin)


def failed_of(old: Record, now: float) -> Record:
    """By the default options."""
    return transitions.failed(old, now, Options())


@pytest.mark.parametrize("written", [None, b"paid"], ids=["nothing written", "something written"])
@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("end", [transitions.released, transitions.undone, failed_of])
def test_what_a_fast_clock_claimed_is_free_by_the_right_one(
    end: Callable[[Record, float], Record], attempt: int, written: bytes | None
) -> None:
    """A claim from the future, of a clock that was corrected since, keeps nobody waiting until that comes true."""
    claim = record_of(
        created_at=NOW + 120.0,
        expires_at=NOW + 180.0,
        bound_until=NOW + 86520.0,
        attempt=attempt,
        checkpoint=written,
    )
    ended = end(claim, NOW)
    assert ended.expires_at <= NOW
    assert ended.created_at <= ended.expires_at
    step = decide(attempt_of(), ended, NOW + 0.1)
    assert isinstance(step, Swap)


def test_an_undone_first_claim_with_which_something_was_written_gives_its_number_back_too() -> None:
    """The next attempt is the first that begins, and hears of it."""
    new = transitions.undone(record_of(attempt=1, transaction="t"), NOW)
    step = decide(attempt_of(), new, NOW)
    assert isinstance(step, Swap)
    assert (step.new.attempt, step.new.transaction) == (1, "t")
