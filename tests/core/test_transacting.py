"""What a handler writes together with its claim; by the driver of threads and by that of event loops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from idem_middleware import (
    AsyncLease,
    ConfigurationError,
    LeaseLost,
    Response,
    StoreUnavailable,
    TransactionInvalid,
    TransactionRefused,
)
from idem_middleware.records import Status
from idem_middleware.stores.base import Cancelled, Found
from idem_middleware.testing import Fault, ManualClock
from idem_middleware.transactions import CancellationCode, CancellationReason, Put, Update
from tests.core.support.stores import ChunkStore, LedgerStore
from tests.core.support.worlds import CREATED, AnyLease, AsyncWorld, SyncWorld, World

STOCK = 5


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["threads", "loop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A process, driven in one of two ways, with tables beside its records."""
    made: World = request.param(LedgerStore(clock=ManualClock(margin_seconds=2.0)))
    ledger(made).tables["stock"]["a"] = {"id": {"S": "a"}, "n": {"N": str(STOCK)}}
    yield made
    made.close()


def ledger(world: World) -> LedgerStore:
    """The store of a world of this module."""
    assert isinstance(world.memory, LedgerStore)
    return world.memory


def stock(world: World) -> int:
    """How much is left."""
    return ledger(world).number("stock", "a", "n")


def take(amount: int = 1) -> Update:
    """Take from the stock, if there is enough."""
    return Update("stock", {"id": "a"}, "SET n = n - :n", condition="n >= :n", values={":n": amount})


def place(order: str = "o") -> Put:
    """Write an order that is not there."""
    return Put("orders", {"id": order}, condition="attribute_not_exists(id)")


def transact(world: World, lease: AnyLease, *items: Any, **more: Any) -> None:
    """Call it."""
    world.do(lease, "transact", items or [take()], **more)


# --- transact ---------------------------------------------------------------------------------------------------------


def test_a_transaction_writes_the_items_and_the_checkpoint(world: World) -> None:
    """In one call; the lease goes on."""
    lease = world.lease()
    transact(world, lease, take(2), place(), checkpoint=b"reserved")
    assert (stock(world), lease.checkpoint, lease.settled) == (STOCK - 2, b"reserved", False)
    assert world.settle(lease) == "Recorded"
    assert world.calls() == ["create", "transact", "swap"]
    assert world.kinds() == ["claimed", "transacted", "completed"]


def test_the_answer_of_a_lease_that_transacted_is_replayed(world: World) -> None:
    """And nothing is left of the checkpoint, which every replay would pay for."""
    lease = world.lease()
    transact(world, lease)
    world.settle(lease)
    assert world.replay() == CREATED
    assert (world.record().checkpoint, world.record().transaction) == (None, None)


def test_the_attempt_after_a_crash_sees_the_checkpoint(world: World) -> None:
    """And so knows that the work is done."""
    transact(world, world.lease(), checkpoint="o-1")  # and the process crashes
    world.freeze(100)
    lease = world.another().lease()
    assert (lease.attempt, lease.checkpoint) == (2, b"o-1")


def test_the_attempt_after_a_failure_sees_the_checkpoint(world: World) -> None:
    """The work was done all the same."""
    lease = world.lease()
    transact(world, lease)
    world.settle(lease, Response(503))
    assert world.lease().checkpoint == b"committed"


def test_an_answer_from_before_the_view_keeps_the_checkpoint(world: World) -> None:
    """Such as a throttled second attempt: the third must still know what the first has done."""
    transact(world, world.lease())
    world.freeze(100)
    again = world.lease()
    world.settle(again, Response(429), from_view=False)
    assert world.lease().checkpoint == b"committed"


def test_a_key_that_is_bound_anew_has_no_checkpoint(world: World) -> None:
    """It is another piece of work."""
    transact(world, world.lease(retention_seconds=100, lease_seconds=10, max_execution_seconds=10))
    world.freeze(1000)
    assert world.lease().checkpoint is None


def test_a_worker_that_lost_its_lease_writes_nothing(world: World) -> None:
    """Neither its item nor anything else, however late it comes."""
    late = world.lease()
    world.freeze(100)
    winner = world.another().lease()
    with pytest.raises(LeaseLost):
        transact(world, late)
    assert stock(world) == STOCK
    assert world.record().version == 2
    assert winner.checkpoint is None
    assert "lease_lost" in world.kinds()


def test_a_record_that_was_deleted_is_a_lost_lease(world: World) -> None:
    """By whomever: nobody knows any more who may write."""
    lease = world.lease()
    world.memory._records.clear()
    with pytest.raises(LeaseLost):
        transact(world, lease)
    assert stock(world) == STOCK


def test_a_condition_of_the_users_is_told_with_its_item(world: World) -> None:
    """Which one, why, and what stands there; the lease is as it was, and can be settled with a 409."""
    lease = world.lease()
    with pytest.raises(TransactionRefused) as refused:
        transact(world, lease, place(), take(STOCK + 1))
    error = refused.value
    assert (error.index, error.reason) == (1, CancellationCode.CONDITION_FAILED)
    assert error.old_item == {"id": {"S": "a"}, "n": {"N": "5"}}
    assert [reason.code.value for reason in error.reasons] == ["None", "ConditionalCheckFailed"]
    assert ledger(world).tables["orders"] == {}
    assert lease.checkpoint is None
    world.settle(lease, Response(409, (), b"sold out"))
    assert world.replay().body == b"sold out"


def test_several_transactions_of_one_lease_follow_each_other(world: World) -> None:
    """The last checkpoint counts."""
    lease = world.lease()
    transact(world, lease, checkpoint=b"one")
    transact(world, lease, checkpoint=b"two")
    assert (stock(world), lease.checkpoint) == (STOCK - 2, b"two")


def test_equal_transactions_are_two_if_the_first_is_known_to_be_done(world: World) -> None:
    """Nobody who takes twice wants to take once."""
    lease = world.lease()
    transact(world, lease)
    transact(world, lease)
    assert stock(world) == STOCK - 2


def test_a_renewal_and_a_transaction_do_not_meet(world: World) -> None:
    """Both are written from the version that the other left."""
    lease = world.lease()
    world.pass_by(25)
    transact(world, lease)
    world.pass_by(25)
    transact(world, lease)
    assert world.settle(lease) == "Recorded"
    assert stock(world) == STOCK - 2
    assert "lease_lost" not in world.kinds()


def test_a_renewal_keeps_the_checkpoint(world: World) -> None:
    """It only moves the end of the lease."""
    lease = world.lease()
    transact(world, lease)
    world.pass_by(30)
    assert world.record().version == 3
    assert world.record().checkpoint == b"committed"


# --- uncertain outcomes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_an_uncertain_transaction_can_be_asked_for_again(world: World, fault: Fault) -> None:
    """It is carried out once, whether or not it was the first time."""
    lease = world.lease()
    world.store.fail(fault, on="transact")
    with pytest.raises(StoreUnavailable):
        transact(world, lease)
    transact(world, lease)
    assert stock(world) == STOCK - 1
    assert lease.checkpoint == b"committed"
    assert world.settle(lease) == "Recorded"


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_a_renewal_finds_out_what_became_of_an_uncertain_transaction(world: World, fault: Fault) -> None:
    """So asking again after it needs no second call."""
    lease = world.lease()
    world.store.fail(fault, on="transact")
    with pytest.raises(StoreUnavailable):
        transact(world, lease)
    world.pass_by(30)
    transact(world, lease)
    assert stock(world) == STOCK - 1
    assert world.settle(lease) == "Recorded"
    assert "lease_lost" not in world.kinds()


def test_another_transaction_follows_an_uncertain_one(world: World) -> None:
    """Both are carried out, the first because it had been."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REPLY, on="transact")
    with pytest.raises(StoreUnavailable):
        transact(world, lease, take(1))
    transact(world, lease, take(2))
    assert stock(world) == STOCK - 3


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_an_uncertain_transaction_is_still_known_after_another_one(world: World, fault: Fault) -> None:
    """Whose trace lies over its own: asked for again, it is carried out once, and a third time is another one."""
    lease = world.lease()
    world.store.fail(fault, on="transact")
    with pytest.raises(StoreUnavailable):
        transact(world, lease, take(1))
    transact(world, lease, take(2))
    transact(world, lease, take(1))
    assert stock(world) == STOCK - 3
    transact(world, lease, take(1))
    assert stock(world) == STOCK - 4
    assert world.settle(lease) == "Recorded"


def test_after_an_uncertain_transaction_a_failure_keeps_what_was_written(world: World) -> None:
    """The handler gives up; its retry learns that the work was done."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REPLY, on="transact")
    with pytest.raises(StoreUnavailable):
        transact(world, lease)
    world.do(lease, "settle_exception")
    assert world.lease().checkpoint == b"committed"
    assert stock(world) == STOCK - 1


def test_a_transaction_on_its_way_can_not_land_after_the_lease_is_settled(world: World) -> None:
    """Every write of the claim keeps out what was sent before it."""
    lease = world.lease()
    late: list[Any] = []
    real = ledger(world).transact
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger(world), "transact", lambda *call: late.append(call))
        world.store.fail(Fault.LOST_REPLY, on="transact")
        with pytest.raises(StoreUnavailable):
            transact(world, lease)
    world.do(lease, "settle_exception")
    real(*late[0])
    assert stock(world) == STOCK
    assert world.lease().checkpoint is None


def test_a_transaction_that_always_meets_another_write_of_its_claim_is_given_up(world: World) -> None:
    """Something is wrong with the store, and the handler learns that nothing was written."""
    lease = world.lease()
    meeting = Found(replace(world.record(), version=7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger(world), "transact", lambda *_: meeting)
        with pytest.raises(StoreUnavailable) as given_up:
            transact(world, lease)
    assert given_up.value.code == "Busy"
    assert 1 < world.calls().count("transact") < 100
    assert stock(world) == STOCK


@pytest.mark.parametrize("code", [CancellationCode.INVALID, CancellationCode.UNKNOWN])
def test_an_action_that_never_can_be_carried_out_is_told_with_its_number(world: World, code: CancellationCode) -> None:
    """No retry mends it, so it is no refusal; what may pass beside it is not what it is about."""
    lease = world.lease()
    codes = (CancellationCode.NONE, CancellationCode.CONFLICT, code)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger(world), "transact", lambda *_: Cancelled(tuple(map(CancellationReason, codes))))
        with pytest.raises(TransactionInvalid, match=f"action 2 .*{code.value}") as invalid:
            transact(world, lease, take(), take(), take())
    assert invalid.value.index == 2
    transact(world, lease)
    assert world.settle(lease) == "Recorded"


def test_a_collection_that_is_full_is_a_refusal(world: World) -> None:
    """Other items would fit: the handler can answer something else."""
    lease = world.lease()
    reasons = (CancellationReason(CancellationCode.NONE), CancellationReason(CancellationCode.COLLECTION_TOO_LARGE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger(world), "transact", lambda *_: Cancelled(reasons))
        with pytest.raises(TransactionRefused) as refused:
            transact(world, lease, take(), take())
    assert (refused.value.index, refused.value.reason) == (1, CancellationCode.COLLECTION_TOO_LARGE)


def test_a_transaction_that_finds_its_claim_settled_is_told_so(world: World) -> None:
    """A completion that was in doubt was carried out; what was to come with it was not."""
    lease = world.lease()
    done = replace(world.record(), version=2, status=Status.COMPLETED, response=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger(world), "transact", lambda *_: Found(done))
        with pytest.raises(LeaseLost, match="settled"):
            transact(world, lease)
    assert stock(world) == STOCK


def test_a_lease_that_is_settled_meanwhile_transacts_no_more(world: World) -> None:
    """In between two tries."""
    lease = world.lease()

    def settled_meanwhile(*_: object) -> Found:
        lease.claim.end()
        return Found(replace(world.record(), version=7))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger(world), "transact", settled_meanwhile)
        with pytest.raises(LeaseLost, match="settled"):
            transact(world, lease)


# --- complete_with ----------------------------------------------------------------------------------------------------


def test_the_work_and_its_answer_are_one(world: World) -> None:
    """One call for both; what the framework settles after that changes nothing."""
    lease = world.lease()
    world.do(lease, "complete_with", [take(), place()], CREATED)
    assert lease.settled
    assert world.settle(lease, Response(500)) == "Recorded"
    assert world.calls() == ["create", "transact"]
    assert world.kinds() == ["claimed", "completed"]
    assert world.replay() == CREATED
    assert stock(world) == STOCK - 1


def test_a_refused_completion_leaves_the_lease_to_the_handler(world: World) -> None:
    """Which answers something else."""
    lease = world.lease()
    with pytest.raises(TransactionRefused):
        world.do(lease, "complete_with", [take(STOCK + 1)], CREATED)
    assert not lease.settled
    assert world.settle(lease, Response(409, (), b"sold out")) == "Recorded"
    assert world.replay().body == b"sold out"
    assert stock(world) == STOCK


def test_a_late_completion_writes_nothing(world: World) -> None:
    """And its client gets the winner's answer."""
    late = world.lease()
    world.freeze(100)
    other = world.another()
    other.settle(other.lease(), Response(200, (), b"the winner's"))
    with pytest.raises(LeaseLost):
        world.do(late, "complete_with", [take()], CREATED)
    settled = world.do(late, "settle", Response(503))
    assert settled.response.body == b"the winner's"  # type: ignore[union-attr]
    assert stock(world) == STOCK


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_an_uncertain_completion_can_be_asked_for_again(world: World, fault: Fault) -> None:
    """Once is enough."""
    lease = world.lease()
    world.store.fail(fault, on="transact")
    with pytest.raises(StoreUnavailable):
        world.do(lease, "complete_with", [take()], CREATED)
    assert not lease.settled
    world.do(lease, "complete_with", [take()], CREATED)
    assert world.replay() == CREATED
    assert stock(world) == STOCK - 1


def test_whoever_gives_up_after_an_uncertain_completion_gives_its_answer(world: World) -> None:
    """It turned out to be done, so the client gets what was recorded rather than an error."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REPLY, on="transact")
    with pytest.raises(StoreUnavailable):
        world.do(lease, "complete_with", [take()], CREATED)
    settled = world.do(lease, "settle", Response(503))
    assert settled.response.body == CREATED.body  # type: ignore[union-attr]
    assert world.replay() == CREATED
    assert "lease_lost" not in world.kinds()


def test_a_renewal_after_an_uncertain_completion_loses_nothing(world: World) -> None:
    """It finds its own answer, and ends."""
    lease = world.lease()
    world.store.fail(Fault.LOST_REPLY, on="transact")
    with pytest.raises(StoreUnavailable):
        world.do(lease, "complete_with", [take()], CREATED)
    world.pass_by(60)
    kinds = world.kinds()
    assert kinds.count("completed") == 1
    assert "lease_lost" not in kinds
    with pytest.raises(LeaseLost):
        transact(world, lease)
    assert stock(world) == STOCK - 1


@pytest.mark.parametrize("kind", [SyncWorld, AsyncWorld], ids=["threads", "loop"])
def test_a_large_answer_lies_beside_its_record(kind: type[World]) -> None:
    """Its pieces are there before the transaction that points at them."""

    class Both(LedgerStore, ChunkStore):
        def __init__(self, *, clock: ManualClock) -> None:
            super().__init__(clock=clock)

    world = kind(Both(clock=ManualClock(margin_seconds=2.0)))
    world.memory.tables["stock"]["a"] = {"id": {"S": "a"}, "n": {"N": "1"}}  # type: ignore[attr-defined]
    answer = Response(200, (), bytes(range(256)) * 64)
    world.do(world.lease(), "complete_with", [take()], answer)
    assert world.calls() == ["create", "put_chunks", "transact"]
    assert world.replay() == answer
    world.close()


def test_on_a_loop_a_cipher_that_asks_a_service_is_made_ready_in_a_thread() -> None:
    """Sealing is then done at once, with the answer's transaction."""

    class Slow:
        overhead_bytes = 0
        reads_plain = False

        def __init__(self) -> None:
            self.threads: list[str] = []

        def is_ready(self, sealed: bytes | None) -> bool:
            return bool(self.threads)

        def prepare(self, sealed: bytes | None) -> None:
            self.threads.append(threading.current_thread().name)

        def seal(self, plain: bytes, associated: bytes) -> bytes:
            assert self.threads
            return plain

        def open(self, sealed: bytes, associated: bytes) -> bytes:
            return sealed

    world = AsyncWorld(LedgerStore(clock=ManualClock(margin_seconds=2.0)))
    ledger(world).tables["stock"]["a"] = {"id": {"S": "a"}, "n": {"N": "1"}}
    cipher = Slow()
    world.do(world.lease(cipher=cipher), "complete_with", [take()], CREATED)
    assert [name.startswith("idempotency-cipher") for name in cipher.threads] == [True]
    assert world.replay(cipher=cipher) == CREATED
    world.close()


# --- checkpoints alone ------------------------------------------------------------------------------------------------


def test_a_checkpoint_can_be_saved_by_itself(world: World) -> None:
    """One plain write; for work that is no DynamoDB write."""
    lease = world.lease()
    world.do(lease, "save_checkpoint", "charged ch_1")
    assert world.calls() == ["create", "swap"]
    world.freeze(100)
    assert world.another().lease().checkpoint == b"charged ch_1"


def test_a_checkpoint_of_a_lost_lease_is_refused(world: World) -> None:
    """Its work must not be built on."""
    late = world.lease()
    world.freeze(100)
    world.another().lease()
    with pytest.raises(LeaseLost):
        world.do(late, "save_checkpoint", b"x")


# --- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [b"", b"x" * 1025, "é" * 513])
def test_a_checkpoint_has_1_to_1024_bytes(world: World, checkpoint: bytes | str) -> None:
    """Every failed write under the key is billed by the item's size; and an empty one looks like none."""
    lease = world.lease()
    for method, arguments in (("save_checkpoint", [checkpoint]), ("transact", [[take()]])):
        more = {} if method == "save_checkpoint" else {"checkpoint": checkpoint}
        with pytest.raises(TransactionInvalid, match="1 to 1024 bytes"):
            world.do(lease, method, *arguments, **more)
    transact(world, lease, checkpoint=b"x" * 1024)


@pytest.mark.parametrize("method", ["transact", "complete_with", "save_checkpoint"])
def test_nothing_is_written_under_a_lease_that_is_settled(world: World, method: str) -> None:
    """It is over."""
    lease = world.lease()
    world.settle(lease)
    arguments: dict[str, list[Any]] = {
        "transact": [[take()]],
        "complete_with": [[take()], CREATED],
        "save_checkpoint": [b"x"],
    }
    with pytest.raises(LeaseLost, match="settled"):
        world.do(lease, method, *arguments[method])
    assert stock(world) == STOCK


def test_what_is_no_action_is_told_at_once(world: World) -> None:
    """With its number."""
    lease = world.lease()
    with pytest.raises(TransactionInvalid, match="action 1 must be") as invalid:
        transact(world, lease, take(), "take one")
    assert invalid.value.index == 1
    with pytest.raises(TransactionInvalid, match="action 0 has a value"):
        transact(world, lease, Put("orders", {"id": object()}))
    assert world.calls() == ["create"]


def test_an_answer_must_be_one(world: World) -> None:
    """Without an adapter, that is the core's own."""
    lease = world.lease()
    with pytest.raises(TypeError, match=r"must be an idem_middleware\.Response"):
        world.do(lease, "complete_with", [take()], {"id": 1})
    lease.translate_with(lambda answer: Response(201, (), str(answer).encode()))
    world.do(lease, "complete_with", [take()], {"id": 1})
    assert world.replay().body == b"{'id': 1}"


@pytest.mark.parametrize("kind", [SyncWorld, AsyncWorld], ids=["threads", "loop"])
@pytest.mark.parametrize("method", ["transact", "complete_with"])
def test_a_store_without_transactions_says_so(kind: type[World], method: str) -> None:
    """The memory store holds records, and nothing that else could be written with them."""
    world = kind()
    lease = world.lease()
    arguments: list[Any] = [[take()]] if method == "transact" else [[take()], CREATED]
    with pytest.raises(ConfigurationError, match="MemoryStore has no transactions"):
        world.do(lease, method, *arguments)
    assert world.settle(lease) == "Recorded"
    world.close()


def test_a_lease_of_a_loop_transacts_on_a_thread_too() -> None:
    """Sync views run in threads under ASGI."""
    world = AsyncWorld(LedgerStore(clock=ManualClock()))
    ledger(world).tables["stock"]["a"] = {"id": {"S": "a"}, "n": {"N": "1"}}
    lease = world.lease()
    assert isinstance(lease, AsyncLease)
    lease.blocking.transact([take()])
    assert lease.checkpoint == b"committed"
    assert world.record().status is Status.PENDING
    world.close()


def test_actions_may_be_boto3_s_own_dictionaries(world: World) -> None:
    """Beside ours, in any order."""
    lease = world.lease()
    transact(world, lease, take().to_action(), place())
    assert stock(world) == STOCK - 1
    assert list(ledger(world).tables["orders"]) == ["o"]


def test_a_code_that_nobody_here_knows_is_unknown_and_none_is_none() -> None:
    """What DynamoDB may come to say is an error; what it leaves out is none."""
    assert CancellationCode.of(None) is CancellationCode.NONE
    assert CancellationCode.of("ConditionalCheckFailed") is CancellationCode.CONDITION_FAILED
    assert CancellationCode.of("FullMoon") is CancellationCode.UNKNOWN
    assert not CancellationCode.UNKNOWN.passes
