"""Transactions on DynamoDB Local, over every transport, and the shapes of answers that it never gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import boto3
import pytest

from idem_middleware import Engine, Lease, Options, Response
from idem_middleware.errors import StoreMisconfigured, StoreUnavailable, TransactionInvalid
from idem_middleware.events import Event, EventKind
from idem_middleware.records import Record
from idem_middleware.stores import DynamoDBStore, Store
from idem_middleware.stores.base import Cancelled, Found, Gone, Written
from idem_middleware.stores.dynamodb.faults import classify
from idem_middleware.stores.dynamodb.transport import TRANSPORTS
from idem_middleware.testing.contract import on_a_loop
from idem_middleware.transactions import CancellationCode, Check, Item, Put, Transaction, Update, actions_of
from tests.stores.doubles import ManualTime, WatchedClient, answer, error, read_timeout, scripted_store, soon
from tests.stores.records import after, new_pk, pending

HOT = {"ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded", "resource": "arn:aws:dynamodb:r:1:t"}]}


@pytest.fixture(scope="module")
def client(dynamodb_local: str) -> Any:
    """A client of the user's own."""
    return boto3.client("dynamodb", region_name="eu-central-1", endpoint_url=dynamodb_local)


@pytest.fixture(scope="module")
def stock(client: Any) -> str:
    """A table of the user's own."""
    name = f"stock-{new_pk()[:12]}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "sku", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "sku", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


@pytest.fixture(scope="module", params=[*TRANSPORTS, "lean on a loop"])
def store(request: pytest.FixtureRequest, dynamodb_local: str) -> Iterator[Store]:
    """A store over each transport."""
    name, _, looped = request.param.partition(" on ")
    made = DynamoDBStore(f"keys-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local, transport=name)
    made.create_table()
    if looped:
        with on_a_loop(made) as on_loop:
            yield on_loop
    else:
        yield made


class Shelf:
    """One item of the stock."""

    def __init__(self, client: Any, table: str, amount: int) -> None:
        self._client = client
        self.table = table
        self.sku = new_pk()
        client.put_item(TableName=table, Item={"sku": {"S": self.sku}, "n": {"N": str(amount)}, "b": {"B": b"\0\xff"}})

    def take(self, amount: int = 1) -> Update:
        """Take, if there is enough."""
        return Update(self.table, {"sku": self.sku}, "SET n = n - :n", condition="n >= :n", values={":n": amount})

    @property
    def left(self) -> int:
        """How much there is."""
        item = self._client.get_item(TableName=self.table, Key={"sku": {"S": self.sku}}, ConsistentRead=True)["Item"]
        return int(item["n"]["N"])


@pytest.fixture
def shelf(client: Any, stock: str) -> Shelf:
    """Five pieces."""
    return Shelf(client, stock, 5)


def named(token: str, *items: Any) -> Transaction:
    """A transaction of that name."""
    return Transaction(actions_of(items), token)


def paid(claim: Record, token: str) -> Record:
    """The claim with a checkpoint."""
    return after(claim, checkpoint=b"paid", transaction=token)


@pytest.mark.dynamodb_local
class TestOnDynamoDBLocal:
    """What really happens."""

    def test_both_are_written(self, store: Store, shelf: Shelf) -> None:
        claim = pending(new_pk())
        token = new_pk()[:32]
        store.create(claim, soon(store))
        assert store.transact(claim, paid(claim, token), named(token, shelf.take(2)), soon(store)) == Written()
        assert store.load(claim.pk, soon(store)) == Found(paid(claim, token))
        assert shelf.left == 3

    def test_a_claim_can_be_made_together_with_them(self, store: Store, shelf: Shelf) -> None:
        """First come."""
        claim = replace(pending(new_pk()), transaction="t")
        assert store.transact(None, claim, named(new_pk()[:32], shelf.take()), soon(store)) == Written()
        again = store.transact(None, pending(claim.pk), named(new_pk()[:32], shelf.take()), soon(store))
        assert again == Found(claim)
        assert shelf.left == 4

    def test_a_fence_that_does_not_hold_writes_neither(self, store: Store, shelf: Shelf) -> None:
        """Whatever the actions' own conditions say."""
        claim = pending(new_pk())
        assert isinstance(store.transact(claim, after(claim), named("t1", shelf.take()), soon(store)), Gone)
        store.create(claim, soon(store))
        stale = replace(claim, owner="late")
        for items in ([shelf.take()], [shelf.take(99)]):
            assert store.transact(stale, after(stale), named(new_pk()[:32], *items), soon(store)) == Found(claim)
        assert shelf.left == 5

    def test_a_condition_that_does_not_hold_is_told_with_its_item(self, store: Store, shelf: Shelf) -> None:
        """Bytes as bytes."""
        claim = pending(new_pk())
        store.create(claim, soon(store))
        check = Check(shelf.table, {"sku": "none"}, condition="attribute_not_exists(sku)")
        outcome = store.transact(claim, after(claim), named(new_pk()[:32], check, shelf.take(6)), soon(store))
        assert isinstance(outcome, Cancelled)
        assert [reason.code.value for reason in outcome.reasons] == ["None", "ConditionalCheckFailed"]
        item = {"sku": {"S": shelf.sku}, "n": {"N": "5"}, "b": {"B": b"\0\xff"}}
        assert [reason.item for reason in outcome.reasons] == [None, item]
        assert store.load(claim.pk, soon(store)) == Found(claim)

    def test_the_same_transaction_sent_twice_is_carried_out_once(self, store: Store, shelf: Shelf) -> None:
        """By its token: the second reply is that of the first."""
        claim = pending(new_pk())
        token = new_pk()[:32]
        store.create(claim, soon(store))
        for _ in range(2):
            assert store.transact(claim, paid(claim, token), named(token, shelf.take()), soon(store)) == Written()
        assert shelf.left == 4

    def test_what_dynamodb_does_not_take_is_no_outage(self, store: Store, shelf: Shelf) -> None:
        """Nor is it tried again."""
        claim = pending(new_pk())
        store.create(claim, soon(store))
        broken = Update(shelf.table, {"sku": shelf.sku}, "SET n == :n", values={":n": 1})
        other_key = Put(shelf.table, {"sku": 1})
        with pytest.raises(TransactionInvalid):
            store.transact(claim, after(claim), named(new_pk()[:32], broken), soon(store))
        outcome = store.transact(claim, after(claim), named(new_pk()[:32], other_key), soon(store))
        assert isinstance(outcome, Cancelled)
        assert outcome.reasons[0].code is CancellationCode.INVALID
        twice = [Put(shelf.table, {"sku": "x", "n": 1}), Put(shelf.table, {"sku": "x", "n": 2})]
        with pytest.raises(TransactionInvalid):
            store.transact(claim, after(claim), named(new_pk()[:32], *twice), soon(store))

    def test_a_table_that_is_not_there_is_an_operators_matter(self, store: Store) -> None:
        """It is not said to be the keys' own."""
        claim = pending(new_pk())
        store.create(claim, soon(store))
        with pytest.raises(StoreMisconfigured, match="one of the tables that it names does not exist"):
            store.transact(claim, after(claim), named("t", Put("no-such-table", {"id": "1"})), soon(store))

    def test_a_full_transaction_fits(self, store: Store, stock: str) -> None:
        """99 actions beside the claim's."""
        claim = pending(new_pk())
        store.create(claim, soon(store))
        items = [Put(stock, {"sku": new_pk()}) for _ in range(99)]
        assert store.transact(claim, after(claim), named(new_pk()[:32], *items), soon(store)) == Written()

    def test_of_many_that_race_exactly_as_many_win_as_there_are_pieces(
        self, dynamodb_local: str, client: Any, stock: str
    ) -> None:
        """Conflicts are tried again, and nothing is taken twice or lost."""
        racers, pieces = 12, 5
        shelf = Shelf(client, stock, pieces)
        racing = DynamoDBStore(f"keys-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local)
        racing.create_table()
        barrier = Barrier(racers)

        def race(_: int) -> bool:
            claim, token = pending(new_pk()), new_pk()[:32]
            racing.create(claim, soon(racing))
            barrier.wait(60)
            outcome = racing.transact(claim, paid(claim, token), named(token, shelf.take()), soon(racing))
            standing = racing.load(claim.pk, soon(racing))
            assert isinstance(standing, Found)
            assert (standing.record.checkpoint is not None) == isinstance(outcome, Written)
            return isinstance(outcome, Written)

        with ThreadPoolExecutor(racers) as pool:
            assert sum(pool.map(race, range(racers))) == pieces
        assert shelf.left == 0

    def test_of_a_completion_and_a_take_over_one_wins(self, dynamodb_local: str, client: Any, stock: str) -> None:
        """Round after round: the items are written exactly if the claim was."""
        rounds = 10
        shelf = Shelf(client, stock, rounds)
        racing = DynamoDBStore(f"keys-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local)
        racing.create_table()
        won = 0
        with ThreadPoolExecutor(2) as pool:
            for _ in range(rounds):
                claim, token = pending(new_pk()), new_pk()[:32]
                racing.create(claim, soon(racing))
                mine = pool.submit(racing.transact, claim, paid(claim, token), named(token, shelf.take()), soon(racing))
                theirs = pool.submit(racing.swap, claim, after(claim, owner="thief"), soon(racing))
                outcomes = [mine.result(), theirs.result()]
                assert sum(isinstance(outcome, Written) for outcome in outcomes) == 1
                won += isinstance(outcomes[0], Written)
        assert shelf.left == rounds - won


# --- answers that DynamoDB Local does not give ------------------------------------------------------------------------


def cancelled(*codes: str) -> Exception:
    """The answer to a cancelled transaction, as boto3 raises it."""
    exc = error("TransactionCanceledException", f"Transaction cancelled [{', '.join(codes)}]")
    exc.response["CancellationReasons"] = [{"Code": code, "Message": "m"} for code in codes]
    return exc


def transact(store: DynamoDBStore, *, seconds: float = 3.0) -> Any:
    """One of a claim and a put."""
    claim = pending("0" * 64)
    deadline = store.clock.monotonic() + seconds
    return store.transact(claim, paid(claim, "t"), named("t", Put("orders", {"id": "1"})), deadline)


@pytest.mark.parametrize("code", ["TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"])
@pytest.mark.parametrize("place", [0, 1])
def test_what_passes_is_tried_again_under_the_same_token(time: ManualTime, code: str, place: int) -> None:
    """Whether the claim's own item is concerned or another; with the whole list in an event."""
    codes = ["None", "None"]
    codes[place] = code
    store, client, events = scripted_store(time, cancelled(*codes), cancelled(*codes), answer())
    assert transact(store) == Written()
    assert {request["ClientRequestToken"] for _, request in client.calls} == {"t"}
    told = [event for event in events if event.kind is EventKind.TRANSACTION_CANCELLED]
    assert [event.cancellation_reasons for event in told] == [tuple(codes)] * 2
    assert {(event.dynamo_error_code, event.key_digest) for event in told} == {
        ("TransactionCanceledException", "0" * 12)
    }
    assert [event.kind.value for event in events].count("store_retried") == 2
    assert time.slept[1] > time.slept[0] > 0


@pytest.mark.parametrize(
    ("codes", "conflict"),
    [
        (("None", "TransactionConflict"), True),
        (("TransactionConflict", "TransactionConflict"), True),
        (("TransactionConflict", "ThrottlingError"), False),
        ((), False),
    ],
)
def test_only_conflicts_alone_are_one(codes: tuple[str, ...], *, conflict: bool) -> None:
    """Where a key is throttled, too, it is in trouble."""
    fault = classify(cancelled(*codes))
    assert fault is not None
    assert fault.is_conflict is conflict


def test_conflicts_without_end_are_given_up_at_the_deadline(time: ManualTime) -> None:
    """Every try has a pause before it, and none begins too late."""
    store, _, _ = scripted_store(time, *[cancelled("TransactionConflict", "None")] * 30)
    with pytest.raises(StoreUnavailable) as unavailable:
        transact(store)
    assert unavailable.value.code == "TransactionCanceledException"
    assert sum(time.slept) <= 3.0


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        (("None", "ConditionalCheckFailed"), "ConditionalCheckFailed"),
        (("TransactionConflict", "ConditionalCheckFailed"), "ConditionalCheckFailed"),
        (("None", "ItemCollectionSizeLimitExceeded"), "ItemCollectionSizeLimitExceeded"),
        (("None", "ValidationError"), "ValidationError"),
        (("None", "SomethingNew"), "Unknown"),
    ],
)
def test_each_reason_has_its_name(time: ManualTime, codes: tuple[str, ...], told: str) -> None:
    """None of these is tried again."""
    store, client, _ = scripted_store(time, cancelled(*codes))
    outcome = transact(store)
    assert isinstance(outcome, Cancelled)
    assert [reason.code.value for reason in outcome.reasons] == [told]
    assert len(client.calls) == 1


def test_the_claims_own_failure_is_told_before_anybody_elses(time: ManualTime) -> None:
    """A lost lease makes everything else uninteresting; where the answer has no item, it is read."""
    store, client, _ = scripted_store(time, cancelled("ConditionalCheckFailed", "ConditionalCheckFailed"), answer())
    assert transact(store) == Gone()
    assert client.operations == ["transact_write_items", "get_item"]


@pytest.mark.parametrize("code", ["ValidationError", "ItemCollectionSizeLimitExceeded", "Odd"])
def test_what_is_wrong_with_the_claims_own_part_is_ours(time: ManualTime, code: str) -> None:
    """No user can mend it."""
    store, _, _ = scripted_store(time, cancelled(code, "None"))
    with pytest.raises(StoreUnavailable):
        transact(store)


def test_a_cancellation_without_reasons_is_no_success(time: ManualTime) -> None:
    """Some proxies cut answers."""
    store, _, _ = scripted_store(time, cancelled())
    with pytest.raises(StoreUnavailable) as unavailable:
        transact(store)
    assert unavailable.value.code == "TransactionCanceledException"


def test_a_lost_reply_is_asked_for_again_by_the_token(time: ManualTime) -> None:
    """And one that is still being carried out, too."""
    in_progress = error("TransactionInProgressException")
    store, client, _ = scripted_store(time, read_timeout(), in_progress, answer())
    assert transact(store) == Written()
    assert len({str(request) for _, request in client.calls}) == 1


def test_what_throttles_is_told(time: ManualTime) -> None:
    """A hot key has a name of its own; no account's number is in it."""
    hot = error("ProvisionedThroughputExceededException")
    hot.response.update(HOT)  # type: ignore[typeddict-item]
    store, _, events = scripted_store(time, hot, answer())
    assert store.create(pending("0" * 64), soon(store)) == Written()
    [told] = events
    assert told.throttling_reasons == ("TableWriteKeyRangeThroughputExceeded",)
    assert told.dynamo_error_code == "ProvisionedThroughputExceededException"


def test_denied_permissions_name_the_parts(time: ManualTime) -> None:
    """IAM has no action TransactWriteItems."""
    store, _, _ = scripted_store(time, error("AccessDeniedException"))
    with pytest.raises(StoreMisconfigured, match=r"dynamodb:UpdateItem.*ConditionCheckItem") as denied:
        transact(store)
    assert "dynamodb:TransactWriteItems" not in str(denied.value)


def test_a_condition_that_fails_is_told_with_its_code(time: ManualTime) -> None:
    """As an answer, at the level of debugging, so that logs can tell it from a fault."""
    store, _, events = scripted_store(time, error("ConditionalCheckFailedException"), answer())
    store.swap(pending("0" * 64), after(pending("0" * 64)), soon(store))
    assert events == [
        Event(
            kind=EventKind.CONDITION_FAILED,
            key_digest="0" * 12,
            dynamo_error_code="ConditionalCheckFailedException",
        )
    ]


def test_transactions_run_on_a_loop_too(dynamodb_local: str, client: Any, stock: str) -> None:
    """Many at once, in one thread."""
    shelf = Shelf(client, stock, 3)
    store = DynamoDBStore(f"keys-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local, transport="lean")
    store.create_table()
    on_loop = store.to_async()

    async def race() -> int:
        async def one() -> bool:
            claim, token = pending(new_pk()), new_pk()[:32]
            await on_loop.create(claim, soon(store))
            outcome = await on_loop.transact(claim, paid(claim, token), named(token, shelf.take()), soon(store))
            return isinstance(outcome, Written)

        return sum(await asyncio.gather(*(one() for _ in range(8))))

    assert asyncio.run(race()) == 3
    assert shelf.left == 0


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.dynamodb_local
@pytest.mark.parametrize(
    ("way", "calls"),
    [
        ("complete_with", ["put_item", "transact_write_items"]),
        ("transact", ["put_item", "transact_write_items", "update_item"]),
        ("claim_items", ["transact_write_items", "update_item"]),
        ("save_checkpoint", ["put_item", "update_item", "update_item"]),
    ],
)
def test_each_way_makes_so_many_calls(client: Any, stock: str, shelf: Shelf, way: str, calls: list[str]) -> None:
    """As docs/transactions.md says; a replay is one failed call more."""
    watched = WatchedClient(client)
    keys = f"keys-{new_pk()[:12]}"
    DynamoDBStore(keys, client=client).create_table()
    items: list[Item] = [shelf.take(), Put(stock, {"sku": new_pk()}, condition="attribute_not_exists(sku)")]
    options = Options(claim_items=lambda _: items) if way == "claim_items" else Options()

    def work(lease: Lease | None) -> str:
        assert lease is not None
        if way == "complete_with":
            lease.complete_with(items, Response(200, (), b'"done"'))
        elif way == "transact":
            lease.transact(items)
        elif way == "save_checkpoint":
            lease.save_checkpoint(b"halfway")
        return "done"

    engine = Engine(DynamoDBStore(keys, client=watched), options)
    assert engine.run_once("k", None, work) == "done"
    assert watched.operations == calls
    assert engine.run_once("k", None, work) == "done"
    assert watched.operations == [*calls, calls[0]]
