"""The engine as its users meet it. Every test runs with the driver of threads and with that of event loops.

At the end the two are compared call by call.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest

from idem_middleware import (
    AsyncLease,
    EventKind,
    Lease,
    LeaseLost,
    MemoryStore,
    ProblemType,
    Request,
    RequestRefused,
    Response,
    StoreUnavailable,
    claims,
)
from idem_middleware.claims import undo_later
from idem_middleware.outcomes import Refused, Unprotected
from idem_middleware.records import OmittedResponse
from idem_middleware.settling import Superseded
from idem_middleware.testing import Fault, ManualClock
from tests.core.support.records import attempt_of
from tests.core.support.stores import ChunkStore, NarrowStore, UnfinishedStore
from tests.core.support.worlds import CREATED, AnyLease, AsyncWorld, SyncWorld, World, request

OTHER = Response(200, (), b"the winner's")


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["threads", "loop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A process, driven in one of two ways."""
    made: World = request.param()
    yield made
    made.close()


def both(make: Callable[[ManualClock], MemoryStore]) -> Iterator[World]:
    """A process of each kind, on such a store."""
    for world_type in (SyncWorld, AsyncWorld):
        world = world_type(make(ManualClock(margin_seconds=2.0)))
        yield world
        world.close()


# --- as usual ---------------------------------------------------------------------------------------------------------


def test_a_first_request_runs(world: World) -> None:
    """One write to claim, one to record."""
    lease = world.lease()
    assert lease.attempt == 1
    assert not lease.settled
    assert world.settle(lease) == "Recorded"
    assert lease.settled
    assert world.calls() == ["create", "swap"]
    assert world.kinds() == ["claimed", "completed"]


def test_a_retry_gets_the_first_answer(world: World) -> None:
    """By one failed write, and nothing is changed by it (IETF draft, section 2.6)."""
    world.settle(world.lease())
    world.calls()
    before = world.record()
    world.replay()
    assert world.calls() == ["create"]
    assert [world.replay() for _ in range(5)] == [CREATED] * 5
    assert world.record() == before
    assert world.kinds()[2:] == ["replayed"] * 6


def test_another_request_under_the_key_is_refused(world: World) -> None:
    """Whatever the state, and the record is unharmed (aws-powertools/powertools-lambda-python#3781)."""
    lease = world.lease(request(b"a"))
    assert world.problem(request(b"b")) == "key-reused"
    world.settle(lease)
    assert world.problem(request(b"b")) == "key-reused"
    assert world.replay(request(b"a")) == CREATED


def test_other_credentials_are_refused(world: World) -> None:
    """No answer leaks, and nothing runs twice."""
    world.settle(world.lease())
    sent = request(headers=(("idempotency-key", "k"), ("authorization", "other")))
    assert world.problem(sent) == "credentials-changed"


def test_a_retry_meanwhile_is_told_to_come_again(world: World) -> None:
    """Without waiting, by default."""
    lease = world.lease()
    assert world.problem() == world.problem() == "in-progress"
    assert world.pauses == []
    assert world.settle(lease) == "Recorded"
    assert world.outcomes[1] == "refused in-progress 5"


def test_a_refusal_changes_nothing(world: World) -> None:
    """Neither of the running owner nor of the record (aws-powertools/powertools-lambda-typescript#5675)."""
    lease = world.lease(request(b"a"))
    assert [world.problem(request(body)) for body in (b"a", b"b", b"a")] == ["in-progress", "key-reused", "in-progress"]
    assert world.calls() == ["create"] * 4
    assert world.settle(lease) == "Recorded"
    assert world.replay(request(b"a")) == CREATED


def test_keys_do_not_disturb_each_other(world: World) -> None:
    """Contention is per record (yoyowallet/django-idempotency-key#60)."""
    first, second = world.lease(request(key="a")), world.lease(request(key="b"))
    assert world.settle(second) == world.settle(first) == "Recorded"


def test_after_the_retention_the_key_is_new(world: World) -> None:
    """Although the sweeper has not come yet (tristanls/dynamodb-lock-client#21)."""
    world.settle(world.lease())
    world.pass_by(86_400 - 1, step=86_400)
    assert world.replay() == CREATED
    world.pass_by(1)
    assert world.lease(request(b"something else")).attempt == 1
    assert world.kinds()[-1] == "claimed"


def test_an_expired_key_can_be_refused(world: World) -> None:
    """For as long as its tombstone stands."""
    options: dict[str, Any] = {"on_expired": "refuse", "retention_seconds": 100, "tombstone_seconds": 50}
    world.settle(world.lease(**options))
    world.pass_by(100, step=100)
    assert world.problem(**options) == "key-expired"
    assert world.problem(request(b"x"), **options) == "key-reused"
    world.pass_by(50, step=50)
    world.lease(**options)


# --- ends of an attempt -----------------------------------------------------------------------------------------------


def test_a_failed_attempt_is_run_again(world: World) -> None:
    """At once, by default (useautumn/autumn#1851)."""
    assert world.settle(world.lease(), Response(503)) == "Recorded"
    world.calls()
    again = world.lease()
    assert again.attempt == 2
    assert world.settle(again) == "Recorded"
    assert world.calls() == ["create", "swap", "swap"]
    assert world.kinds() == ["claimed", "failed", "run_again", "completed"]


def test_a_failed_attempt_holds_the_next_back(world: World) -> None:
    """For as long as the options say."""
    world.do(world.lease(retry_after_failure_seconds=10), "fail")
    world.pass_by(8.5, step=8.5)
    assert world.problem() == "retry-later"
    assert world.outcomes[-1].endswith(" 2")
    world.pass_by(1.5, step=1.5)
    assert world.lease().attempt == 2


def test_a_failed_attempt_keeps_its_key_from_other_requests(world: World) -> None:
    """The key is still that request's."""
    world.do(world.lease(request(b"a")), "fail")
    assert world.problem(request(b"b")) == "key-reused"


def test_an_answer_from_before_the_view_frees_the_key(world: World) -> None:
    """A corrected body may come under the same key (LabsCrypt/remitlend#1329)."""
    assert world.settle(world.lease(request(b"a")), Response(422), from_view=False) == "Recorded"
    assert world.lease(request(b"b")).attempt == 1
    assert world.kinds() == ["claimed", "released", "claimed"]


def test_a_redirect_to_another_path_frees_the_key(world: World) -> None:
    """The same request comes there with the same key."""
    world.settle(world.lease(request(path="/o")), Response(307))
    world.lease(request(path="/o/"))


def test_an_answer_that_can_not_be_kept_is_told_so(world: World) -> None:
    """And never run again (gofiber/fiber#4018)."""
    large = Response(201, (("location", "/1"),), b"xx")
    assert world.settle(world.lease(max_response_bytes=1), large) == "Recorded"
    outcome = world.acquire()
    assert isinstance(outcome, Refused)
    assert outcome.problem.type is ProblemType.RESPONSE_NOT_STORED
    assert outcome.response.header("location") == "/1"
    assert world.kinds()[:2] == ["claimed", "completed_without_answer"]


def test_a_lease_can_be_settled_without_an_answer(world: World) -> None:
    """Torn by a client that left."""
    world.do(world.lease(), "omit", "/1")
    assert world.problem() == "response-not-stored"


def test_an_answer_can_be_kept_whatever_its_status(world: World) -> None:
    """Whoever says complete means it."""
    world.do(world.lease(), "complete", Response(500, (), b"final"))
    assert world.replay() == Response(500, (), b"final")


def test_an_abandoned_lease_lapses(world: World) -> None:
    """Nobody knows what was done: the key is kept until the lease is over (elchin92/avito-mcp#60)."""
    lease = world.lease()
    lease.abandon()
    assert lease.settled
    world.pass_by(61)
    assert world.problem() == "in-progress"
    world.pass_by(1)
    assert world.lease().attempt == 2
    assert world.calls() == ["create", "create", "create", "swap"]
    assert world.kinds() == ["claimed", "abandoned", "refused", "taken_over"]


def test_an_abandoned_attempt_can_be_final(world: World) -> None:
    """With `on_abandoned="refuse"` nothing runs again."""
    world.lease(on_abandoned="refuse").abandon()
    world.pass_by(62)
    assert world.problem(on_abandoned="refuse") == "outcome-unknown"


def test_abandoning_twice_tells_once(world: World) -> None:
    """The first end counts."""
    lease = world.lease()
    lease.abandon()
    lease.abandon()
    assert world.kinds() == ["claimed", "abandoned"]


def test_what_is_settled_stays_settled(world: World) -> None:
    """The framework's own ending after the handler's does nothing; another of the handler's is an error."""
    lease = world.lease()
    world.do(lease, "complete", CREATED)
    world.calls()
    assert world.settle(lease, Response(500)) == "Recorded"
    world.do(lease, "settle_exception")
    world.do(lease, "omit")
    lease.abandon()
    assert world.calls() == []
    for method, args in (("complete", [OTHER]), ("fail", [])):
        with pytest.raises(LeaseLost):
            world.do(lease, method, *args)
    assert world.replay() == CREATED


def test_a_handler_may_ask_its_lease(world: World) -> None:
    """Keys for the next service are stable over attempts, and different for each label."""
    first = world.lease()
    keys = first.derive_key("charge"), first.derive_key("mail")
    world.do(first, "fail")
    second = world.lease()
    assert (second.derive_key("charge"), second.derive_key("mail")) == keys
    assert keys[0] != keys[1]
    assert second.checkpoint is None
    assert world.store.calls[-1].pk.startswith(second.key_digest)
    assert world.lease(request(key="another")).derive_key("charge") != keys[0]


# --- crashes and leases -----------------------------------------------------------------------------------------------


def test_a_crashed_owners_work_is_taken_over(world: World) -> None:
    """Once lease and margin are over, not after the retention (aws-powertools/powertools-lambda-python#1038)."""
    world.another().lease()
    world.freeze(61.999)
    assert world.problem() == "in-progress"
    world.freeze(0.001)
    lease = world.lease()
    assert lease.attempt == 2
    assert world.settle(lease) == "Recorded"
    assert world.calls() == ["create", "create", "swap", "swap"]
    assert world.kinds() == ["refused", "taken_over", "completed"]


def test_a_living_owner_keeps_its_lease(world: World) -> None:
    """However long the handler takes, up to `max_execution_seconds`."""
    lease = world.lease()
    for _ in range(8):
        world.pass_by(100)
        assert world.another().problem() == "in-progress"
    assert world.settle(lease) == "Recorded"
    assert set(world.kinds()) == {"claimed", "renewed", "completed"}


def test_a_lease_is_renewed_every_third_of_it(world: World) -> None:
    """Each a single write."""
    _lease = world.lease(lease_seconds=30)
    world.calls()
    world.pass_by(35)
    assert world.calls() == ["swap"] * 3
    record = world.record()
    assert record.version == 4
    assert record.expires_at == world.clock.now() - 5 + 30


def test_the_first_renewal_counts_from_the_claim(world: World) -> None:
    """Not from its late reply: the lease began when it was sent."""
    world.store.before(lambda: world.freeze(2.5), on="create")
    lease = world.lease(lease_seconds=3)
    world.pass_by(0.4, step=0.1)
    assert world.calls() == ["create", "swap"]
    assert world.settle(lease) == "Recorded"


def test_a_claim_whose_lease_is_over_when_it_is_known_is_written_again(world: World) -> None:
    """No handler starts on a lease that others may take."""
    world.store.before(lambda: world.freeze(2.5), on="create")
    lease = world.lease(lease_seconds=1)
    assert world.calls() == ["create", "swap"]
    assert lease.attempt == 1
    assert world.kinds() == ["claimed"]


def test_a_renewal_that_is_due_while_the_end_is_written_comes_again_soon(world: World) -> None:
    """No thread waits for a store that takes its time; if the end can't be written, the lease is renewed after all."""
    lease = world.lease()
    world.freeze(20)
    with lease.claim.lock.held():
        world.upkeep.run_due()
        assert world.calls() == ["create"]
    world.pass_by(1)
    assert world.calls() == ["swap"]
    assert world.settle(lease) == "Recorded"


def test_a_settled_lease_is_not_renewed(world: World) -> None:
    """Nothing more is written."""
    world.settle(world.lease())
    world.calls()
    world.pass_by(100)
    assert world.calls() == []


def test_a_hung_handler_does_not_hold_its_key_for_ever(world: World) -> None:
    """Renewal ends, the lease lapses, another takes over; but what comes late may still be recorded if none did."""
    lease = world.lease(max_execution_seconds=90)
    world.pass_by(90 + 62 + 20)
    assert "abandoned" in world.kinds()
    other = world.another().lease()
    assert other.attempt == 2
    assert world.settle(lease) == "Superseded"


def test_a_handler_that_comes_late_may_still_record(world: World) -> None:
    """As long as nobody took over."""
    lease = world.lease(max_execution_seconds=90)
    world.pass_by(300)
    assert world.settle(lease) == "Recorded"
    assert world.another().replay() == CREATED


def test_a_lapsed_lease_is_not_revived(world: World) -> None:
    """After a freeze the clock is read again: others may have seen its end."""
    lease = world.lease()
    world.calls()
    world.freeze(60)
    world.upkeep.run_due()
    assert world.calls() == []
    assert world.last(EventKind.LEASE_LOST).reason == "lapsed"
    assert world.another().problem() == "in-progress"
    world.freeze(2)
    world.another().lease()
    assert world.settle(lease) == "Superseded"


def test_a_lease_that_nobody_holds_is_not_renewed(world: World) -> None:
    """A handler that is gone without a word must not hold its key."""
    world.lease()
    world.calls()
    world.pass_by(40)
    assert world.calls() == []
    world.pass_by(22)
    assert world.lease().attempt == 2


def test_the_slow_original_is_fenced(world: World) -> None:
    """It overwrites nothing, and its client gets the winner's answer (KanishJebaMathewM/Truxify#4623)."""
    lease = world.lease()
    world.freeze(62)
    other = world.another()
    other.settle(other.lease(), OTHER)
    settled = world.do(lease, "settle", CREATED)
    assert settled == Superseded(replace(OTHER, headers=(("Idempotent-Replayed", "true"),)))
    assert world.another().replay() == OTHER
    assert world.kinds() == ["claimed", "lease_lost", "executed_not_recorded"]


def test_the_slow_original_can_not_release_the_winners_claim(world: World) -> None:
    """Its failure is refused as its success is (sliceworkz/eventstore#176)."""
    lease = world.lease()
    world.freeze(62)
    other = world.another()
    running = other.lease()
    assert world.do(lease, "fail") == Superseded(None)
    assert world.another("third").problem() == "in-progress"
    assert other.settle(running) == "Recorded"
    assert world.kinds() == ["claimed", "lease_lost"]


def test_an_owner_learns_of_its_loss_by_its_renewal(world: World) -> None:
    """And tells it once."""
    lease = world.lease()
    world.freeze(10)
    other = world.another()
    # Another clock, far ahead, took it over: fencing does not depend on clocks.
    other.store.calls.clear()
    world.clock.offset_seconds = 100
    running = other.lease()
    world.clock.offset_seconds = 0
    world.pass_by(10)
    assert world.kinds() == ["claimed", "lease_lost"]
    assert world.settle(lease) == "Superseded"
    assert world.kinds() == ["executed_not_recorded"]
    assert other.settle(running) == "Recorded"


def test_a_fresh_owner_is_made_for_every_attempt(world: World) -> None:
    """Also by the same process (sliceworkz/eventstore#176)."""
    first = world.lease()
    owner = world.record().owner
    world.do(first, "fail")
    _second = world.lease()
    assert world.record().owner != owner


# --- own writes met again ---------------------------------------------------------------------------------------------


def test_a_claim_that_was_sent_twice_is_won(world: World) -> None:
    """Its second try meets the first (aws/aws-sdk-java#2667)."""
    world.store.fail(Fault.SENT_TWICE, on="create")
    lease = world.lease()
    assert lease.attempt == 1
    assert world.settle(lease) == "Recorded"
    assert world.calls() == ["create", "swap"]


def test_a_takeover_that_was_sent_twice_is_won(world: World) -> None:
    """A swap as well."""
    world.another().lease()
    world.freeze(62)
    world.store.fail(Fault.SENT_TWICE, on="swap")
    assert world.lease().attempt == 2
    assert world.kinds() == ["taken_over"]


@pytest.mark.parametrize(
    ("status", "from_view", "kind"), [(201, True, "completed"), (503, True, "failed"), (422, False, "released")]
)
def test_an_end_that_was_sent_twice_is_recorded(world: World, status: int, kind: str, *, from_view: bool) -> None:
    """Complete, fail and release: the second reply tells of the first write."""
    lease = world.lease()
    world.store.fail(Fault.SENT_TWICE, on="swap")
    assert world.settle(lease, Response(status), from_view=from_view) == "Recorded"
    assert world.kinds() == ["claimed", kind]


def test_a_renewal_that_was_sent_twice_is_renewed(world: World) -> None:
    """And the lease goes on."""
    lease = world.lease()
    world.store.fail(Fault.SENT_TWICE, on="swap")
    world.pass_by(45)
    assert world.settle(lease) == "Recorded"
    assert world.kinds() == ["claimed", "renewed", "renewed", "completed"]


def test_a_renewal_whose_reply_was_lost_is_adopted(world: World) -> None:
    """The completion meets a version of which it did not know, and is sent again from there."""
    lease = world.lease()
    world.calls()
    world.store.fail(Fault.LOST_REPLY, on="swap")
    world.freeze(20)
    world.upkeep.run_due()
    assert world.settle(lease) == "Recorded"
    assert world.calls() == ["swap", "swap", "swap"]
    assert world.replay() == CREATED


def test_a_renewal_whose_reply_was_lost_is_renewed_again(world: World) -> None:
    """Soon, and from what stands there: an owner never takes its lease for longer than others do."""
    _lease = world.lease()
    world.store.fail(Fault.LOST_REPLY, on="swap")
    world.pass_by(21)
    assert world.kinds() == ["claimed", "store_failed", "renewed"]
    assert world.calls() == ["create", "swap", "swap", "swap"]
    assert world.record().expires_at == world.clock.now() + 60


def test_adopting_is_bounded(world: World) -> None:
    """Were our own record to move under every try, the answer would go out unrecorded."""
    lease = world.lease()

    def move() -> None:
        record = world.record()
        world.memory.swap(record, replace(record, version=record.version + 1), 0)

    for skip in range(20):
        world.store.before(move, on="swap", skip=skip)
    assert world.settle(lease) == "Superseded"
    assert world.calls() == ["create", *["swap"] * 16]


def test_a_record_that_is_gone_is_lost(world: World) -> None:
    """Somebody deleted it: there is nothing left to complete."""
    lease = world.lease()
    memory = world.memory
    memory._remove(world.record())
    assert world.settle(lease) == "Superseded"
    assert world.kinds() == ["claimed", "lease_lost", "executed_not_recorded"]


def test_a_claim_goes_on_when_the_record_disappears_under_it(world: World) -> None:
    """Found, then gone: create again."""
    world.do(world.lease(), "fail")
    memory = world.memory
    record = world.record()
    world.store.before(lambda: memory._remove(record), on="swap")
    world.calls()
    assert world.lease().attempt == 1
    assert world.calls() == ["create", "swap", "create"]


def test_a_claim_goes_on_when_another_is_quicker(world: World) -> None:
    """Found, then changed: decide again (idempot-dev/idempot-js#181)."""
    world.do(world.lease(), "fail")
    other = world.another()
    kept: list[AnyLease] = []
    world.store.before(lambda: kept.append(other.lease()), on="swap")
    assert world.problem() == "in-progress"
    assert other.settle(kept[0]) == "Recorded"
    assert world.replay() == CREATED


def test_rounds_are_bounded(world: World) -> None:
    """Where others always get ahead, the client is asked to come again."""
    other = world.another()
    world.do(world.lease(), "fail")

    def overtake() -> None:
        other.do(other.lease(), "fail")

    for skip in range(20):
        world.store.before(overtake, on="swap", skip=skip)
    assert world.problem() == "in-progress"
    assert world.outcomes[-1].endswith(" 1")


# --- faults of the store ----------------------------------------------------------------------------------------------


def test_a_store_that_is_away_refuses(world: World) -> None:
    """Before the handler ran, with a time to come again (Dev1822/paySphere#1919)."""
    world.store.fail(Fault.LOST_REQUEST)
    assert world.problem() == "store-unavailable"
    assert world.outcomes[-1].endswith(" 1")
    assert world.kinds() == ["store_failed", "refused"]


def test_a_store_that_is_away_can_be_bypassed(world: World) -> None:
    """It leaves a trace: an event and a header (unkeyed/unkey#5282)."""
    world.store.fail(Fault.LOST_REQUEST)
    outcome = world.acquire(on_store_error="bypass")
    assert outcome == Unprotected((("Idempotency-Bypassed", "store-unavailable"),))
    assert world.kinds() == ["store_failed", "bypassed"]


def test_what_is_known_to_be_running_is_not_bypassed(world: World) -> None:
    """The store told that somebody runs it, before it failed."""
    _owner = world.another().lease()
    world.store.fail(Fault.LOST_REQUEST, on="load")
    assert world.problem(on_store_error="bypass", wait_seconds=5) == "store-unavailable"


def test_what_is_known_to_be_done_is_not_bypassed() -> None:
    """The record says that it was done; only its answer can't be read now."""
    for world in both(lambda clock: ChunkStore(clock=clock)):
        world.settle(world.lease(), Response(200, (), bytes(range(256))))
        world.store.fail(Fault.LOST_REQUEST, on="get_chunks")
        assert world.problem(on_store_error="bypass") == "store-unavailable"


def test_an_operators_mistake_is_told(world: World) -> None:
    """With the error's code, and nothing to undo, since nothing was written."""
    world.store.fail(Fault.REFUSED)
    assert world.problem() == "store-unavailable"
    failed = world.last(EventKind.STORE_FAILED)
    assert (failed.reason, failed.dynamo_error_code) == ("refused, as planned", "AccessDeniedException")
    world.pass_by(10)
    assert world.calls() == ["create"]


def test_a_full_store_refuses(world: World) -> None:
    """A bounded one that may give nothing up."""
    full = type(world)(MemoryStore(max_entries=1, clock=world.clock))
    _lease = full.lease(request(key="a"))
    assert full.problem(request(key="b")) == "store-unavailable"
    assert full.last(EventKind.STORE_FAILED).dynamo_error_code == "StoreFull"
    full.pass_by(10)
    assert full.calls() == ["create", "create"]
    full.close()


def raising(error: BaseException) -> Callable[[], None]:
    """Something that fails."""

    def fail() -> None:
        raise error

    return fail


def test_an_unexpected_error_at_the_claim_comes_out(world: World) -> None:
    """What was perhaps written is undone."""
    world.store.before(raising(RuntimeError("a bug")), on="create")
    with pytest.raises(RuntimeError, match="a bug"):
        world.acquire()
    world.pass_by(1, step=0.1)
    assert "load" in world.calls()


def test_an_unexpected_error_at_the_end_comes_out_and_the_answer_is_recorded(world: World) -> None:
    """The work is done, whatever broke."""
    lease = world.lease()
    world.store.before(raising(RuntimeError("a bug")), on="swap")
    with pytest.raises(RuntimeError, match="a bug"):
        world.settle(lease)
    assert lease.settled
    world.pass_by(1, step=0.1)
    assert world.another().replay() == CREATED


def test_an_uncertain_claim_is_undone(world: World) -> None:
    """It was written, nobody heard of it, and nothing runs under it: the retry need not wait."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    assert world.problem(request(b"a")) == "store-unavailable"
    world.pass_by(0)
    assert world.calls() == ["create", "load", "swap"]
    assert world.kinds() == ["store_failed", "refused", "claim_undone"]
    assert world.lease(request(b"b")).attempt == 1


def test_an_uncertain_takeover_is_undone(world: World) -> None:
    """The earlier attempts count on; the key stays theirs."""
    world.do(world.lease(), "fail")
    world.store.fail(Fault.LOST_REPLY, on="swap")
    assert world.problem() == "store-unavailable"
    world.pass_by(0)
    assert world.problem(request(b"b")) == "key-reused"
    assert world.lease().attempt == 2


def test_a_claim_that_never_arrived_is_looked_for_a_while(world: World) -> None:
    """It may still be on its way."""
    world.store.fail(Fault.LOST_REQUEST, on="create")
    assert world.problem() == "store-unavailable"
    world.pass_by(10, step=0.1)
    calls = world.calls()
    assert calls[:3] == ["create", "load", "load"]
    assert set(calls[1:]) == {"load"}
    world.pass_by(60)
    assert world.calls() == []


def test_a_takeover_that_arrives_late_is_undone(world: World) -> None:
    """At the first look the old record still stands there."""
    world.do(world.lease(), "fail")
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    assert world.problem() == "store-unavailable"
    late = world.store.calls[-1]
    world.pass_by(0)
    assert late.old is not None
    assert late.new is not None
    world.memory.swap(late.old, late.new, 0)
    world.pass_by(1, step=0.1)
    assert "claim_undone" in world.kinds()
    assert world.lease().attempt == 2


def test_an_uncertain_claim_that_lost_is_left_alone(world: World) -> None:
    """What stands there is another's."""
    other = world.another()
    kept: list[AnyLease] = []
    world.store.fail(Fault.LOST_REQUEST, on="create")
    world.store.before(lambda: kept.append(other.lease()), on="load")
    assert world.problem() == "store-unavailable"
    world.pass_by(10)
    assert world.calls() == ["create", "load"]
    assert other.settle(kept[0]) == "Recorded"


def test_undoing_goes_on_while_the_store_is_away(world: World) -> None:
    """And ends with the lease, which lapses by itself."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    world.store.fail(Fault.LOST_REQUEST, on="load", times=None)
    assert world.problem() == "store-unavailable"
    world.pass_by(30)
    world.store.recover()
    world.pass_by(5)
    assert "claim_undone" in world.kinds()

    world.store.fail(Fault.LOST_REPLY, on="create")
    world.store.fail(Fault.LOST_REQUEST, on="load", times=None)
    assert world.problem(request(key="b")) == "store-unavailable"
    world.pass_by(70)
    world.calls()
    world.pass_by(30)
    assert world.calls() == []
    assert len(world.upkeep) == 0


def uncertain(world: World, sent: Request | None = None, **options: Any) -> None:
    """Claim, hear nothing of it, and reach the store no more."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    world.store.fail(Fault.LOST_REQUEST, on="load", times=None)
    assert world.problem(sent, **options) == "store-unavailable"


def test_a_claim_by_a_wrong_clock_is_undone_however_long_the_store_is_away(world: World) -> None:
    """Its end lies as far ahead as the clock was, and its key would be locked until then."""
    world.clock.advance(120)
    uncertain(world)
    world.clock.offset_seconds = -120  # another key's answer has told
    world.pass_by(90)
    world.store.recover()
    world.pass_by(5)
    assert "claim_undone" in world.kinds()
    assert world.lease(request(b"b")).attempt == 1


def test_a_claim_by_a_wrong_clock_is_given_up_when_it_is_over(world: World) -> None:
    """By the right clock; then there is nothing to undo."""
    world.clock.advance(120)
    uncertain(world)
    world.clock.offset_seconds = -120
    world.pass_by(170)
    assert len(world.upkeep) == 1
    world.pass_by(20)
    assert len(world.upkeep) == 0


def test_an_uncertain_claim_is_undone_for_as_long_as_it_would_be_an_unknown_outcome(world: World) -> None:
    """Where abandoned attempts are refused, a lease that lapses does not free the key."""
    refusing: dict[str, Any] = {"on_abandoned": "refuse", "retention_seconds": 600}
    uncertain(world, **refusing)
    world.pass_by(300)
    world.store.recover()
    world.pass_by(5)
    assert "claim_undone" in world.kinds()
    assert world.lease(request(b"b"), **refusing).attempt == 1


def test_an_orderly_end_waits_until_an_uncertain_claim_is_undone(world: World) -> None:
    """Nobody else can do it."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    assert world.problem() == "store-unavailable"
    assert not world.upkeep.drain(0)
    world.upkeep.run_due()
    assert "claim_undone" in world.kinds()
    assert world.upkeep.drain(0)


def test_many_uncertain_claims_are_looked_after_for_a_lease_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long outage must not fill the memory with them."""
    monkeypatch.setattr(claims, "_MOST_LONG_UNDOS", 1)
    for key in "abc":
        uncertain(world, request(key=key), on_abandoned="refuse")
    world.pass_by(59)
    assert len(world.upkeep) == 3
    world.pass_by(10)
    assert len(world.upkeep) == 1


def test_undoing_goes_on_for_a_claim_that_came_during_the_look(world: World) -> None:
    """It may land after it."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    assert world.problem() == "store-unavailable"

    def once_more() -> None:
        world.store.fail(Fault.LOST_REQUEST, on="create")
        undo_later(world.runtime, replace(attempt_of(), pk=world.record().pk, owner="one more"), None)

    world.store.before(once_more, on="load")
    world.upkeep.run_due()
    assert len(world.upkeep) == 1
    world.pass_by(10)
    assert len(world.upkeep) == 0


def test_an_answer_that_was_thrown_away_is_recorded_as_not_kept(world: World) -> None:
    """Its server said nothing of it: the work is done, and a retry learns where to look."""
    lease = world.lease()
    lease.drop("/orders/1")
    lease.drop("/orders/2")
    assert lease.settled
    world.pass_by(1)
    outcome = world.acquire()
    assert isinstance(outcome, Refused)
    assert (outcome.problem.type.slug, outcome.problem.location) == ("response-not-stored", "/orders/1")


def test_undoing_starts_over_when_its_write_is_overtaken(world: World) -> None:
    """It looks again."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    assert world.problem() == "store-unavailable"
    world.store.fail(Fault.LOST_REPLY, on="swap")
    world.pass_by(1, step=0.1)
    assert world.calls() == ["create", "load", "swap", "load"]


def test_undoing_starts_over_when_somebody_is_quicker(world: World) -> None:
    """And then leaves alone what stands there."""
    world.store.fail(Fault.LOST_REPLY, on="create")
    assert world.problem() == "store-unavailable"
    mine = world.record()

    def take_over() -> None:
        world.memory.swap(mine, replace(mine, owner="another", version=2), 0)

    world.store.before(take_over, on="swap")
    world.pass_by(5, step=0.1)
    assert world.calls() == ["create", "load", "swap", "load"]
    assert "claim_undone" not in world.kinds()


# --- faults at the end ------------------------------------------------------------------------------------------------


def test_an_answer_that_can_not_be_recorded_now_is_recorded_later(world: World) -> None:
    """The client gets its true answer; nothing is deleted (aws-powertools/powertools-lambda-typescript#2944)."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap", times=2)
    assert world.settle(lease) == "Unrecorded"
    assert lease.settled
    assert world.another().problem() == "in-progress"
    world.pass_by(2, step=0.1)
    assert world.another().replay() == CREATED
    assert world.kinds() == ["claimed", "store_failed", "completed"]


def test_an_answer_whose_recording_went_unheard_is_recorded(world: World) -> None:
    """The next try meets it (X4: applied, answered by an error)."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REPLY, on="swap")
    assert world.settle(lease) == "Unrecorded"
    assert world.another().replay() == CREATED
    world.pass_by(1)
    assert world.kinds() == ["claimed", "store_failed", "completed"]


def test_nothing_changes_an_answer_that_is_recorded_later(world: World) -> None:
    """A background task's error, a second ending: the answer is out, and is what will be recorded."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    assert world.settle(lease) == "Unrecorded"
    world.do(lease, "settle_exception")
    world.do(lease, "omit")
    lease.abandon()
    world.pass_by(1)
    assert world.another().replay() == CREATED


def test_while_it_is_tried_to_record_the_lease_is_renewed() -> None:
    """Nobody takes over what was done."""
    for world in both(lambda clock: UnfinishedStore(clock=clock)):
        assert world.settle(world.lease(lease_seconds=9)) == "Unrecorded"
        world.pass_by(30, step=0.5)
        assert world.problem() == "in-progress"
        assert world.kinds().count("renewed") == 10
        assert isinstance(world.memory, UnfinishedStore)
        world.memory.finishes = True
        world.pass_by(5)
        assert world.replay() == CREATED


def test_background_work_that_comes_too_late_does_nothing(world: World) -> None:
    """It was settled meanwhile."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    assert world.settle(lease) == "Unrecorded"
    lease._claim.end()
    world.calls()
    assert lease._claim.renew() is None
    world.pass_by(30)
    assert world.calls() == []


def test_what_can_not_be_recorded_is_told_and_left(world: World) -> None:
    """Never deleted, never released: `on_abandoned` decides about the next request (ikyriak/IdempotentAPI#57)."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap", times=None)
    assert world.settle(lease) == "Unrecorded"
    world.pass_by(70)
    assert world.last(EventKind.EXECUTED_NOT_RECORDED).reason == "store-unavailable"
    world.store.recover()
    world.calls()
    world.pass_by(10)
    assert world.calls() == []
    assert world.another().problem(on_abandoned="refuse") == "outcome-unknown"
    assert world.another().lease().attempt == 2


def test_a_failure_that_can_not_be_recorded_is_abandoned(world: World) -> None:
    """Nothing was completed, so nothing was lost."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap", times=None)
    assert world.settle(lease, Response(500)) == "Unrecorded"
    world.pass_by(70)
    kinds = world.kinds()
    assert kinds[-1] == "abandoned"
    assert "executed_not_recorded" not in kinds


def test_a_late_recording_that_finds_another_owner_is_lost(world: World) -> None:
    """It overwrites nothing."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    assert world.settle(lease) == "Unrecorded"
    world.freeze(62)
    other = world.another()
    running = other.lease()
    world.pass_by(1)
    assert world.kinds()[2:] == ["lease_lost", "executed_not_recorded"]
    assert other.settle(running, OTHER) == "Recorded"
    assert world.replay() == OTHER


def test_an_answer_too_large_for_the_store_is_told_so() -> None:
    """No retry mends that: it is recorded that there is none, and where to look."""
    for world in both(lambda clock: NarrowStore(clock=clock)):
        lease = world.lease()
        assert world.settle(lease) == "Recorded"
        assert world.kinds() == ["claimed", "completed_without_answer"]
        assert world.problem() == "response-not-stored"
        assert world.record().response == OmittedResponse(reason="response-not-stored", location="/orders/1")


def test_an_answer_too_large_for_a_store_that_then_fails_is_recorded_later() -> None:
    """The smaller plan has its chance in the background."""
    for world in both(lambda clock: NarrowStore(clock=clock)):
        lease = world.lease()
        world.store.fail(Fault.LOST_REQUEST, on="swap", skip=1)
        assert world.settle(lease) == "Unrecorded"
        world.pass_by(1)
        assert world.problem() == "response-not-stored"


def test_a_large_answer_is_written_beside_the_record_first() -> None:
    """And read again from there; a missing part is told, and never a reason to run."""
    body = bytes(range(256))
    for world in both(lambda clock: ChunkStore(clock=clock)):
        assert world.settle(world.lease(), Response(200, (), body)) == "Recorded"
        assert world.replay() == Response(200, (), body)
        assert world.calls() == ["create", "put_chunks", "swap", "create", "get_chunks"]
        assert isinstance(world.memory, ChunkStore)
        world.memory.chunks.clear()
        assert world.problem() == "response-not-stored"


@pytest.mark.parametrize("damage", ["away", "gone"])
def test_a_loser_gets_no_answer_that_can_not_be_read(damage: str) -> None:
    """Its own true answer goes out."""
    for world in both(lambda clock: ChunkStore(clock=clock)):
        lease = world.lease()
        world.freeze(62)
        other = world.another()
        other.settle(other.lease(), Response(200, (), bytes(range(256))))
        assert isinstance(world.memory, ChunkStore)
        if damage == "gone":
            world.memory.chunks.clear()
        else:
            world.store.fail(Fault.LOST_REQUEST, on="get_chunks")
        assert world.do(lease, "settle", CREATED) == Superseded(None)


def test_background_work_is_finished_before_the_process_ends(world: World) -> None:
    """An important job becomes due at once."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    assert world.settle(lease) == "Unrecorded"
    assert not world.engine.drain(0)
    world.upkeep.run_due()
    assert world.engine.drain(0)
    assert world.another().replay() == CREATED


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_waiter_gets_the_answer_of_another_process(world: World) -> None:
    """It looks with growing pauses."""
    other = world.another()
    lease = other.lease()
    world.while_waiting(*[lambda: None] * 3, lambda: other.settle(lease))
    assert world.replay(wait_seconds=5) == CREATED
    assert world.pauses == [0.05, 0.1, 0.2, 0.4]
    assert world.calls() == ["create", *["load"] * 4]
    assert world.kinds() == ["replayed", "waited"]


def test_a_waiter_is_told_at_once_by_an_owner_in_its_process(world: World) -> None:
    """No time passes."""
    lease = world.lease()
    began_at = world.clock.monotonic()
    world.while_waiting(lambda: blocking(lease).settle(CREATED))
    assert world.replay(wait_seconds=5) == CREATED
    assert world.clock.monotonic() == began_at


def test_a_waiter_gives_up_in_the_end(world: World) -> None:
    """It has waited as long as it was ready to, and not much longer."""
    _lease = world.another().lease()
    assert world.problem(wait_seconds=5) == "in-progress"
    assert sum(world.pauses) == pytest.approx(5)
    assert world.kinds() == ["refused", "waited"]


def test_a_waiter_takes_over_when_the_lease_ends(world: World) -> None:
    """Its owner has crashed."""
    world.another().lease(lease_seconds=3)
    lease = world.lease(wait_seconds=30)
    assert lease.attempt == 2
    assert sum(world.pauses) == pytest.approx(5)
    assert world.settle(lease) == "Recorded"


def test_a_waiter_runs_when_the_owner_fails(world: World) -> None:
    """The failure is no answer to give."""
    lease = world.lease()
    world.while_waiting(lambda: blocking(lease).fail())
    assert world.lease(wait_seconds=5).attempt == 2


def test_a_waiter_runs_when_the_record_is_gone(world: World) -> None:
    """Somebody deleted it."""
    other = world.another()
    lease = other.lease()
    memory = world.memory
    record = other.record()
    world.while_waiting(lambda: memory._remove(record))
    assert world.lease(wait_seconds=5).attempt == 1
    assert not lease.settled


def test_a_waiter_that_lost_the_race_for_a_lease_waits_again(world: World) -> None:
    """As long as its patience lasts."""
    first, other = world.another("first"), world.another()
    first.lease(lease_seconds=3)
    kept: list[AnyLease] = []
    world.store.before(lambda: kept.append(other.lease()), on="swap")
    world.while_waiting(*[lambda: None] * 10, lambda: other.settle(kept[0]))
    assert world.replay(wait_seconds=30) == CREATED


def test_a_passenger_gives_up_by_itself(world: World) -> None:
    """Although the one that looks for it never comes back."""
    _lease = world.another().lease()
    assert world.problem() == "in-progress"
    pilot = world.runtime.flights.board(world.store.calls[-1].pk, lambda: None)
    assert world.runtime.flights.pilots(pilot)
    assert world.problem(wait_seconds=5) == "in-progress"
    assert world.pauses == [5]


def test_another_request_is_refused_while_its_like_is_waited_for() -> None:
    """Those who wait know what stands there; it is asked for all the same, for this request would not wait for it."""
    world = SyncWorld()
    other = world.another()
    lease = other.lease()
    found: list[str] = []
    world.while_waiting(lambda: found.append(world.problem(request(b"b"), wait_seconds=5)), lambda: other.settle(lease))
    assert world.replay(wait_seconds=5) == CREATED
    assert found == ["key-reused"]
    assert world.calls() == ["create", "create", "load", "load"]


def test_another_request_does_not_wait(world: World) -> None:
    """It could only be refused."""
    _lease = world.lease(request(b"a"))
    assert world.problem(request(b"b"), wait_seconds=5) == "key-reused"
    assert world.pauses == []


def test_a_waiter_whose_store_fails_is_refused(world: World) -> None:
    """And leaves the flight."""
    _lease = world.another().lease()
    world.store.fail(Fault.LOST_REQUEST, on="load")
    assert world.problem(wait_seconds=5) == "store-unavailable"
    assert world.runtime.flights._flights == {}


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_a_claim_by_a_wrong_clock_is_written_again(world: World) -> None:
    """The first answer shows it; the handler starts on a lease that others read right."""

    def correct() -> None:
        world.clock.offset_seconds = 30.0

    world.store.before(correct, on="create")
    lease = world.lease()
    assert world.calls() == ["create", "swap"]
    assert lease.attempt == 1
    assert world.kinds() == ["claimed"]
    assert world.settle(lease) == "Recorded"


def test_the_rewritten_lease_begins_at_the_right_time(world: World) -> None:
    """By the store's clock."""

    def correct() -> None:
        world.clock.offset_seconds = -30.0

    world.store.before(correct, on="create")
    _lease = world.lease()
    record = world.record()
    assert (record.version, record.created_at, record.expires_at) == (2, world.clock.now(), world.clock.now() + 60)


def test_a_small_correction_changes_nothing(world: World) -> None:
    """The margin covers it."""

    def correct() -> None:
        world.clock.offset_seconds = 1.0

    world.store.before(correct, on="create")
    world.lease()
    assert world.calls() == ["create"]


# --- run --------------------------------------------------------------------------------------------------------------


class Handler:
    """Counts its runs."""

    def __init__(self, *answers: Response | BaseException) -> None:
        self.leases: list[AnyLease | None] = []
        self._answers = list(answers) or [CREATED]

    def __call__(self, lease: AnyLease | None) -> Response:
        self.leases.append(lease)
        answer = self._answers[min(len(self.leases), len(self._answers)) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def runs(self) -> int:
        """How often it ran."""
        return len(self.leases)


def test_run_runs_once(world: World) -> None:
    """And replays with a mark from then on."""
    handler = Handler()
    assert world.run(handler) == CREATED
    again = world.run(handler)
    assert (again.status, again.body, again.header("idempotent-replayed")) == (201, b"created", "true")
    assert handler.runs == 1
    assert isinstance(handler.leases[0], Lease | AsyncLease)


def test_run_lets_through_what_is_not_covered(world: World) -> None:
    """With nothing claimed."""
    handler = Handler()
    for sent in (request(method="GET"), request(method="GET", key='"')):
        assert world.run(handler, sent) == CREATED
    assert world.run(handler, request(key=None), require_key=False) == CREATED
    assert handler.leases == [None] * 3
    assert world.calls() == []


@pytest.mark.parametrize("key", [None, '"', ""])
def test_run_refuses_a_request_without_a_usable_key(world: World, key: str | None) -> None:
    """Before the handler runs."""
    handler = Handler()
    assert world.run(handler, request(key=key)).status == 400
    assert handler.runs == 0
    assert world.run(handler, request(key=key), mode="observe") == CREATED


def test_run_refuses_an_unknown_caller(world: World) -> None:
    """It never falls into a shared bucket; only where all is but observed it runs."""
    handler = Handler()
    assert world.run(handler, caller=lambda native: None).status == 403
    assert handler.runs == 0
    assert world.run(handler, caller=lambda native: None, mode="observe") == CREATED
    assert world.calls() == []


def test_run_asks_for_the_caller(world: World) -> None:
    """Each has keys of its own (jox-sm/deepslate-rpg#104)."""
    handler = Handler()
    for native in ("ada", "bob", "ada"):
        world.run(handler, request(native=native), caller=lambda native: native)
    assert handler.runs == 2


def test_run_finds_its_key_in_the_body(world: World) -> None:
    """Or not: then it is refused, or runs where a key is optional."""
    handler = Handler()
    for body in (b'{"id": "a"}', b'{"id": "a"}', b'{"id": "b"}'):
        world.run(handler, request(body), key="id")
    assert handler.runs == 2
    assert world.run(handler, request(b"{}"), key="id").status == 400
    assert world.run(handler, request(b"{}"), key="id", require_key=False) == CREATED
    assert world.run(handler, request(b"{}"), key="id", mode="observe") == CREATED


def test_run_tells_of_a_bypass_in_the_answer(world: World) -> None:
    """The handler ran unprotected."""
    world.store.fail(Fault.LOST_REQUEST)
    answer = world.run(Handler(), on_store_error="bypass")
    assert answer.headers == (*CREATED.headers, ("Idempotency-Bypassed", "store-unavailable"))


def test_run_gives_the_true_answer_when_it_can_not_be_recorded(world: World) -> None:
    """The handler has run (X6)."""
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    assert world.run(Handler()) == CREATED


def test_run_gives_the_winners_answer_to_a_loser(world: World) -> None:
    """If there is one already (X2)."""
    other = world.another()

    def slow(lease: AnyLease | None) -> Response:
        world.freeze(62)
        other.settle(other.lease(), OTHER)
        return CREATED

    answer = world.run(slow)
    assert (answer.body, answer.header("idempotent-replayed")) == (OTHER.body, "true")


def test_run_gives_a_loser_its_own_answer_while_the_winner_runs(world: World) -> None:
    """There is no other yet."""
    other = world.another()
    kept: list[AnyLease] = []

    def slow(lease: AnyLease | None) -> Response:
        world.freeze(62)
        kept.append(other.lease())
        return CREATED

    assert world.run(slow) == CREATED
    assert other.settle(kept[0]) == "Recorded"


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("k"), LeaseLost("own"), StoreUnavailable("own")])
def test_an_exception_comes_out_unchanged_and_runs_again(world: World, error: Exception) -> None:
    """The very object (snok/asgi-idempotency-header#16)."""
    handler = Handler(error, CREATED)
    with pytest.raises(type(error)) as caught:
        world.run(handler)
    assert caught.value is error
    assert caught.value.__context__ is None
    assert world.run(handler) == CREATED
    assert world.kinds() == ["claimed", "failed", "run_again", "completed"]


def test_an_exception_comes_out_unchanged_although_the_store_fails(world: World) -> None:
    """Even then."""
    error = ValueError("x")
    world.store.fail(Fault.LOST_REQUEST, on="swap")
    with pytest.raises(ValueError, match="x") as caught:
        world.run(Handler(error))
    assert caught.value is error


def test_an_exception_can_mean_an_unknown_outcome(world: World) -> None:
    """A provider's time-out usually is one."""
    handler = Handler(TimeoutError("provider"))
    with pytest.raises(TimeoutError):
        world.run(handler, on_error="refuse")
    assert world.run(handler, on_error="refuse").status == 409
    assert world.problem() == "outcome-unknown"
    assert handler.runs == 1


def test_an_error_answer_can_be_final(world: World) -> None:
    """Stripe's way."""
    handler = Handler(Response(500, (), b"final"))
    for _ in range(2):
        assert world.run(handler, on_error="store").body == b"final"
    assert handler.runs == 1


def test_an_exception_is_not_stored_even_then(world: World) -> None:
    """There is no answer to keep."""
    handler = Handler(ValueError("broken"), CREATED)
    with pytest.raises(ValueError, match="broken"):
        world.run(handler, on_error="store")
    assert world.run(handler, on_error="store") == CREATED


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_a_handler_that_was_stopped_half_way_is_abandoned(error: BaseException) -> None:
    """Nobody knows what was done."""
    world = SyncWorld()
    with pytest.raises(type(error)) as caught:
        world.run(Handler(error))
    assert caught.value is error
    assert world.kinds() == ["claimed", "abandoned"]
    assert world.problem() == "in-progress"


def test_a_handler_may_settle_its_lease_itself(world: World) -> None:
    """Its answer goes out, and what it recorded stays."""

    def handler(lease: AnyLease | None) -> Response:
        assert lease is not None
        blocking(lease).complete(OTHER)
        return CREATED

    assert world.run(handler) == CREATED
    assert world.replay() == OTHER


def test_a_handler_that_settles_and_raises_has_settled(world: World) -> None:
    """Its own exception comes out."""
    error = ValueError("after the fact")

    def handler(lease: AnyLease | None) -> Response:
        assert lease is not None
        blocking(lease).complete(OTHER)
        raise error

    with pytest.raises(ValueError, match="after the fact") as caught:
        world.run(handler)
    assert caught.value is error
    assert world.replay() == OTHER


def test_an_interrupted_recording_is_finished_in_the_background() -> None:
    """A signal, or a time-out of green threads, in the middle of the write."""
    world = SyncWorld()
    lease = world.lease()
    world.store.before(raising(KeyboardInterrupt()), on="swap")
    with pytest.raises(KeyboardInterrupt):
        world.settle(lease)
    world.pass_by(1, step=0.1)
    assert world.another().replay() == CREATED


# --- modes ------------------------------------------------------------------------------------------------------------


def test_switched_off_nothing_happens(world: World) -> None:
    """Not even a look at the key."""
    handler = Handler()
    for _ in range(2):
        assert world.run(handler, request(key='"'), mode="off") == CREATED
    assert (handler.leases, world.calls(), world.kinds()) == ([None, None], [], [])


def test_observing_decides_and_reports_and_lets_everything_run(world: World) -> None:
    """For a roll-out: nothing is refused or replayed."""
    handler = Handler()
    world.run(handler, request(b"a"), mode="observe")
    world.run(handler, request(b"a"), mode="observe")
    world.run(handler, request(b"b"), mode="observe")
    assert handler.runs == 3
    assert [(event.kind.value, event.observed) for event in world.events] == [
        ("claimed", False),
        ("completed", False),
        ("replayed", True),
        ("refused", True),
    ]


def test_observing_does_not_wait(world: World) -> None:
    """It slows nothing down."""
    _lease = world.lease()
    assert world.acquire(mode="observe", wait_seconds=5) == Unprotected()
    assert world.pauses == []


def test_observing_survives_a_store_that_is_away(world: World) -> None:
    """Nothing depends on it yet."""
    world.store.fail(Fault.LOST_REQUEST, times=None)
    assert world.run(Handler(), mode="observe") == CREATED


def test_observing_gives_a_loser_its_own_answer(world: World) -> None:
    """No replay, also here."""
    lease = world.lease(mode="observe")
    world.freeze(62)
    other = world.another()
    other.settle(other.lease(), OTHER)
    assert world.do(lease, "settle", CREATED) == Superseded(None)


# --- run_once ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [None, "", 0, False, [], {}, {"id": 7}, "text", 1.5, [1, None]])
def test_a_function_runs_once(world: World, result: object) -> None:
    """A falsy result is a result (aws-powertools/powertools-lambda-python#5150)."""
    runs: list[AnyLease | None] = []

    def function(lease: AnyLease | None) -> object:
        runs.append(lease)
        return result

    assert [world.run_once(function) for _ in range(3)] == [result] * 3
    assert len(runs) == 1


def test_the_payload_is_what_makes_two_calls_the_same(world: World) -> None:
    """The same key with another one is refused."""
    world.run_once(lambda lease: 1, payload={"a": 1, "b": 2})
    assert world.run_once(lambda lease: 2, payload={"b": 2, "a": 1}) == 1
    with pytest.raises(RequestRefused) as caught:
        world.run_once(lambda lease: 2, payload={"a": 1})
    assert caught.value.problem.type is ProblemType.KEY_REUSED


def test_functions_share_no_keys_with_requests(world: World) -> None:
    """Not even equal ones."""
    world.run(Handler())
    assert world.run_once(lambda lease: 7) == 7


def test_functions_have_namespaces(world: World) -> None:
    """As requests have."""
    assert world.run_once(lambda lease: 1, namespace="a") == 1
    assert world.run_once(lambda lease: 2, namespace="b") == 2


def test_a_function_that_raises_runs_again(world: World) -> None:
    """Its exception comes out."""
    error = ValueError("first")

    def broken(lease: AnyLease | None) -> int:
        raise error

    with pytest.raises(ValueError, match="first") as caught:
        world.run_once(broken)
    assert caught.value is error
    assert world.run_once(lambda lease: lease.attempt if lease else 0) == 2


def looped() -> list[object]:
    """A list that holds itself."""
    items: list[object] = []
    items.append(items)
    return items


def nested() -> list[object]:
    """A list as deep as no encoder goes."""
    items: list[object] = []
    for _ in range(100_000):
        items = [items]
    return items


@pytest.mark.parametrize("result", [object, looped, nested])
def test_a_result_that_is_not_json_is_an_error_and_runs_only_once(world: World, result: Callable[[], object]) -> None:
    """The function has run (aws-powertools/powertools-lambda-typescript#2944)."""
    with pytest.raises((TypeError, ValueError, RecursionError)):
        world.run_once(lambda lease: result())
    with pytest.raises(RequestRefused) as caught:
        world.run_once(lambda lease: pytest.fail("ran again"))
    assert caught.value.problem.type is ProblemType.RESPONSE_NOT_STORED


def test_a_function_meanwhile_is_refused(world: World) -> None:
    """With the problem, for whoever handles it."""

    def function(lease: AnyLease | None) -> int:
        with pytest.raises(RequestRefused) as caught:
            world.another().run_once(lambda lease: 1)
        assert caught.value.problem.type is ProblemType.IN_PROGRESS
        return 2

    assert world.run_once(function) == 2


def test_a_function_that_lost_gets_the_winners_result(world: World) -> None:
    """As a request does."""

    def slow(lease: AnyLease | None) -> str:
        world.freeze(62)
        world.another().run_once(lambda lease: "winner")
        return "loser"

    assert world.run_once(slow) == "winner"


def test_a_function_may_settle_its_lease_itself(world: World) -> None:
    """Its result is what it returns this time."""

    def function(lease: AnyLease | None) -> str:
        assert lease is not None
        blocking(lease).complete(Response(200, (), json.dumps("kept").encode()))
        return "returned"

    assert [world.run_once(function) for _ in range(2)] == ["returned", "kept"]


@pytest.mark.parametrize("options", [{"mode": "off"}, {"mode": "observe"}, {"on_store_error": "bypass"}])
def test_a_function_that_is_not_protected_runs(world: World, options: dict[str, Any]) -> None:
    """Without a lease: switched off, only observed, or past a store that is away."""
    world.run_once(lambda lease: 1)
    world.store.fail(Fault.LOST_REQUEST)
    assert world.run_once(lambda lease: lease, **options) is None


# --- the two drivers --------------------------------------------------------------------------------------------------


def blocking(lease: AnyLease) -> Lease:
    """The lease for code on a thread."""
    return lease.blocking if isinstance(lease, AsyncLease) else lease


def scenarios() -> list[FunctionType]:
    """All tests here that need nothing but a world."""
    return [
        value
        for name, value in globals().items()
        if name.startswith("test_") and list(inspect.signature(value).parameters) == ["world"]
    ]


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_both_drivers_do_the_same(scenario: FunctionType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls of the store, with the same records; the same events, pauses and outcomes."""
    logs: list[list[object]] = []
    for world_type in (SyncWorld, AsyncWorld):
        world = world_type()
        kept: list[object] = []
        # Nothing is forgotten: what a test clears is kept for the comparison.
        monkeypatch.setattr(world.store, "calls", _Kept(kept))
        monkeypatch.setattr(world, "events", _Kept(kept))
        monkeypatch.setattr(world.runtime, "_log", world.events.append)
        scenario(world)
        logs.append([*kept, *world.pauses, *world.outcomes])
        world.close()
    assert logs[0] == logs[1]


class _Kept(list[Any]):
    """A list whose items are noted elsewhere, too."""

    def __init__(self, notes: list[object]) -> None:
        super().__init__()
        self._notes = notes

    def append(self, item: Any) -> None:
        self._notes.append(item)
        super().append(item)


def test_a_flood_while_the_store_is_away_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many keys are looked after, and so many attempts of each; the others are free when their lease is over."""
    monkeypatch.setattr(claims, "_MOST_UNDOS", 3)
    monkeypatch.setattr(claims, "_MOST_UNCERTAIN", 2)
    world.store.fail(Fault.LOST_REQUEST, times=None)
    for number in range(5):
        for _ in range(4):
            assert world.problem(request(key=f"k{number}")) == "store-unavailable"
    assert len(world.runtime.undos) == 3
    assert {len(undo._owners) for undo in world.runtime.undos.values()} == {2}
    world.store.recover()
    world.pass_by(120)
    assert world.runtime.undos == {}
    assert world.lease(request(key="k4")).attempt == 1


class TestCrowds:
    """A flood of duplicates of one request does not hold everybody's threads: the rest is told to come again."""

    def wait_in_crowd(self, world: World, *boarded: str, **options: Any) -> str:
        """Try to wait where others do already, on threads."""
        _lease = world.another().lease()
        world.problem()
        pk = world.store.calls[-1].pk
        for name in boarded:
            world.runtime.flights.board(pk if name == "same" else name, lambda: None, on_thread=True)
        world.events.clear()
        return world.problem(wait_seconds=5, **options)

    @pytest.mark.parametrize(
        ("boarded", "bound"),
        [
            (["same"], {"max_waiters_per_key": 1}),
            (["same", "other"], {"max_waiters": 2}),
            ([], {"max_waiters": 0}),
        ],
    )
    def test_who_finds_no_place_is_refused_at_once(
        self, world: World, boarded: list[str], bound: dict[str, int]
    ) -> None:
        """As if nobody might wait."""
        assert self.wait_in_crowd(world, *boarded, **bound) == "in-progress"
        assert world.kinds() == ["crowded", "refused"]
        assert world.pauses == []
        assert world.outcomes[-1] == "refused in-progress 5"

    @pytest.mark.parametrize(
        ("boarded", "bound"),
        [
            (["other"], {"max_waiters_per_key": 1}),
            (["same"], {"max_waiters_per_key": 2}),
            (["same", "other"], {"max_waiters": 3}),
        ],
    )
    def test_who_finds_a_place_waits(self, world: World, boarded: list[str], bound: dict[str, int]) -> None:
        """Other keys' crowds are no matter."""
        assert self.wait_in_crowd(world, *boarded, **bound) == "in-progress"
        assert world.kinds() == ["refused", "waited"]

    def test_threads_are_fewer(self, world: World) -> None:
        """A waiting coroutine costs little; a waiting thread is one that serves nobody."""
        self.wait_in_crowd(world, "a", "b", max_waiting_threads=2)
        assert (world.kinds()[0] == "crowded") is isinstance(world, SyncWorld)

    def test_who_leaves_makes_room(self, world: World) -> None:
        """However it left."""
        _lease = world.another().lease()
        for _ in range(3):
            assert world.problem(wait_seconds=1, max_waiters=1, max_waiting_threads=1) == "in-progress"
        assert world.kinds() == ["refused", "waited"] * 3
