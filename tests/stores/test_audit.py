"""The audit table: keys that are known after their records are gone, consulted in the claim's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from idem_middleware import Engine, Event, EventKind, Options, RequestRefused
from idem_middleware.decisions import is_late
from idem_middleware.errors import ConfigurationError, StoreMisconfigured
from idem_middleware.keys import caller_partition, placed
from idem_middleware.outcomes import function_identity
from idem_middleware.problems import ProblemType
from idem_middleware.records import KeptResponse, Record, Status
from idem_middleware.stores import DynamoDBStore, MemoryStore, Store, store_from_url
from idem_middleware.stores.base import Cancelled, Found, Gone, Written
from idem_middleware.stores.dynamodb.audit import AuditLog
from idem_middleware.stores.dynamodb.items import item_size
from idem_middleware.stores.dynamodb.layouts import Layout, item_key
from idem_middleware.stores.dynamodb.transport import TransportName
from idem_middleware.streams import StreamHandler
from idem_middleware.testing import ManualClock
from idem_middleware.testing.contract import ChunkedStoreContract
from idem_middleware.transactions import Transaction
from tests.core.support.records import attempt_of, record_of
from tests.servers.metering import Meter, operations, reported
from tests.stores.doubles import LostReplies, WatchedClient, error, soon
from tests.stores.records import NOW, SMALL_ANSWER, after, new_pk, pending
from tests.support.dynamodb_local import DynamoDBLocal, locate
from tests.support.patience import patient
from tests.support.polling import eventually

DAY = 86400
REGION = "eu-central-1"
REFUSE = Options(on_expired="refuse", tombstone_seconds=1)

MakeStore = Callable[..., DynamoDBStore]


@pytest.fixture
def make_store(dynamodb_local: str) -> MakeStore:
    """Stores with tables of the test's own on Amazon's program."""
    name = f"keys-{new_pk()[:12]}"

    def make(**settings: Any) -> DynamoDBStore:
        if "client" not in settings:
            settings = patient(region=REGION, endpoint=dynamodb_local, **settings)
        store = DynamoDBStore(name, audit_table=f"{name}-audit", **settings)
        store.create_table()
        return store

    return make


@pytest.fixture
def store(make_store: MakeStore) -> DynamoDBStore:
    """One of them."""
    return make_store()


@pytest.mark.thorough
@pytest.mark.dynamodb_local
class TestStoreWithAnAuditTable(ChunkedStoreContract):
    """The contract: every claim is a transaction, and nothing else changes."""

    @pytest.fixture(scope="class")
    @classmethod
    def audited_store(cls, dynamodb_local: str, transport: TransportName) -> DynamoDBStore:
        """The class's own."""
        name = f"keys-{new_pk()[:12]}"
        settings = patient(region=REGION, endpoint=dynamodb_local, transport=transport)
        store = DynamoDBStore(name, audit_table=f"{name}-audit", **settings)
        store.create_table()
        return store

    @pytest.fixture
    def store(self, audited_store: DynamoDBStore) -> DynamoDBStore:
        """The class's own."""
        return audited_store

    def test_a_create_sent_again_finds_its_own_record(self, store: Store, pk: str) -> None:
        """Here it is answered as the first was: it is the same transaction, by its token."""
        claim = attempt_of(pk=pk).claim(None, NOW)
        assert store.create(claim, soon(store)) == Written()
        assert store.create(claim, soon(store)) in (Written(), Found(claim))


def name_of(engine: Engine, key: str, caller: str | None = None) -> str:
    """The record of a key of `run_once`."""
    return engine.runtime.attempt(function_identity(key, None, engine.options, caller)).pk


class Past:
    """Makes what was done a thing of the past: its record removed, its entry written, by what the stream would tell."""

    def __init__(self, store: DynamoDBStore) -> None:
        self.store = store
        self.handler = StreamHandler(store)

    def age(self, pk: str, seconds: float) -> Record:
        """Let time pass for the record."""
        found = self.store.load(pk, soon(self.store))
        assert isinstance(found, Found)
        times = ("created_at", "expires_at", "bound_until")
        old = {name: getattr(found.record, name) - seconds for name in times}
        self.store.admin().call(
            "update_item",
            {
                "TableName": self.store.table,
                "Key": item_key(pk),
                "UpdateExpression": "SET " + ", ".join(f"#{name} = #{name} - :seconds" for name in times),
                "ExpressionAttributeNames": {f"#{name}": name for name in times},
                "ExpressionAttributeValues": {":seconds": {"N": str(seconds)}},
            },
        )
        return replace(found.record, **old)

    def remove(self, pk: str) -> None:
        """As TTL does, and the stream tells."""
        request = {"TableName": self.store.table, "Key": item_key(pk), "ReturnValues": "ALL_OLD"}
        old = self.store.admin().call("delete_item", request)["Attributes"]
        change = {"OldImage": old, "ApproximateCreationDateTime": self.store.clock.now()}
        batch = {"Records": [{"eventName": "REMOVE", "dynamodb": change}]}
        assert self.handler(batch) == {"batchItemFailures": []}
        assert isinstance(self.store.load(pk, soon(self.store)), Gone)


@pytest.mark.dynamodb_local
class TestLateDuplicates:
    """A retry after its record is gone."""

    def engine(self, store: DynamoDBStore, options: Options, events: list[Event]) -> Engine:
        """With an observer."""
        return Engine(store, replace(options, observers=(events.append,)))

    @pytest.mark.parametrize("removed", [True, False], ids=["removed", "still standing"])
    @pytest.mark.parametrize("layout", ["flat", "caller"])
    def test_it_is_refused_where_that_is_asked_for(
        self,
        make_store: MakeStore,
        removed: bool,  # noqa: FBT001
        layout: Layout,
    ) -> None:
        """`key-expired`, whether or not TTL has got round to the record; and it is counted."""
        store, events = make_store(layout=layout), list[Event]()
        engine = self.engine(store, REFUSE, events)
        assert engine.run_once("1", None, lambda lease: "first", caller="ann") == "first"
        name = name_of(engine, "1", "ann")
        past = Past(store)
        past.age(name, 3 * DAY)
        if removed:
            past.remove(name)
        events.clear()
        with pytest.raises(RequestRefused) as refused:
            engine.run_once("1", None, lambda lease: "again", caller="ann")
        assert refused.value.problem.type is ProblemType.KEY_EXPIRED
        late = [event for event in events if event.kind is EventKind.LATE_DUPLICATE]
        assert [(event.key_digest, event.reason) for event in late] == [(name[:12], "refused")]

    def test_it_runs_again_by_default_and_is_told(self, store: DynamoDBStore) -> None:
        """Once: from then on its own record answers, and the entry that is left does no harm."""
        events: list[Event] = []
        engine = self.engine(store, Options(), events)
        engine.run_once("1", None, lambda lease: "first")
        past = Past(store)
        past.age(name_of(engine, "1"), 3 * DAY)
        past.remove(name_of(engine, "1"))
        events.clear()
        assert engine.run_once("1", None, lambda lease: "again") == "again"
        assert engine.run_once("1", None, lambda lease: "a third time") == "again"
        late = [event for event in events if event.kind is EventKind.LATE_DUPLICATE]
        assert [event.reason for event in late] == ["run-again"]

    def test_another_request_under_the_key_is_refused(self, store: DynamoDBStore) -> None:
        """The key is bound for as long as it is known, as by a tombstone."""
        engine = Engine(store, Options())
        engine.run_once("1", None, lambda lease: "first")
        past = Past(store)
        past.age(name_of(engine, "1"), 3 * DAY)
        past.remove(name_of(engine, "1"))
        with pytest.raises(RequestRefused) as refused:
            engine.run_once("1", "another", lambda lease: "again")
        assert refused.value.problem.type is ProblemType.KEY_REUSED

    @pytest.mark.parametrize("removed", [True, False], ids=["removed", "still standing"])
    def test_after_its_time_the_key_is_free(self, make_store: MakeStore, removed: bool) -> None:  # noqa: FBT001
        """And nobody knows that it was used."""
        store, events = make_store(audit_seconds=10 * DAY), list[Event]()
        engine = self.engine(store, REFUSE, events)
        engine.run_once("1", None, lambda lease: "first")
        past = Past(store)
        past.age(name_of(engine, "1"), 12 * DAY)
        if removed:
            past.remove(name_of(engine, "1"))
        assert engine.run_once("1", "another", lambda lease: "again") == "again"
        assert not [event for event in events if event.kind is EventKind.LATE_DUPLICATE]

    @pytest.mark.parametrize("on_abandoned", ["retry", "refuse"])
    def test_an_outcome_that_nobody_knows_stays_unknown(self, store: DynamoDBStore, on_abandoned: Any) -> None:
        """Also when the claim of the crashed attempt is gone; its checkpoint is not."""
        engine = Engine(store, Options(on_abandoned=on_abandoned))
        name = name_of(engine, "1")
        attempt = engine.runtime.attempt(function_identity("1", None, engine.options))
        store.create(replace(attempt.claim(None, store.clock.now()), checkpoint=b"paid"), soon(store))
        past = Past(store)
        past.age(name, 3 * DAY)
        past.remove(name)
        if on_abandoned == "refuse":
            with pytest.raises(RequestRefused) as refused:
                engine.run_once("1", None, lambda lease: "again")
            assert refused.value.problem.type is ProblemType.OUTCOME_UNKNOWN
        else:
            seen = engine.run_once("1", None, lambda lease: [lease.attempt, lease.checkpoint == b"paid"])  # type: ignore[union-attr]
            assert seen == [2, True]

    def test_what_had_failed_is_not_remembered(self, store: DynamoDBStore) -> None:
        """Nothing was done."""
        engine = Engine(store, REFUSE)
        with pytest.raises(ZeroDivisionError):
            engine.run_once("1", None, lambda lease: 1 // 0)
        past = Past(store)
        past.age(name_of(engine, "1"), 3 * DAY)
        past.remove(name_of(engine, "1"))
        assert engine.run_once("1", None, lambda lease: "again") == "again"

    def test_the_stream_may_tell_it_twice_and_late(self, store: DynamoDBStore) -> None:
        """An entry gives way to a later one of its key, never to an earlier one."""
        early = after(pending(new_pk(), now=NOW), status=Status.COMPLETED, response=SMALL_ANSWER)
        late = replace(early, created_at=NOW + DAY, expires_at=NOW + 2 * DAY, bound_until=NOW + 2 * DAY, owner="b" * 32)
        for record in (early, late, late, early):
            store.remember(record, NOW + 3 * DAY)
        found = store.create(pending(early.pk, owner="c" * 32), soon(store))
        assert isinstance(found, Found)
        assert (found.record.audited, found.record.owner, found.record.response) == (True, "b" * 32, None)

    def test_a_claim_with_other_writes_consults_it_too(self, store: DynamoDBStore) -> None:
        """In the same transaction: nothing is written, and the record is told, not the action."""
        done = after(pending(new_pk()), status=Status.COMPLETED, response=SMALL_ANSWER)
        store.remember(done, NOW + DAY)
        note = {"Put": {"TableName": store.table, "Item": {"pk": {"S": "note"}}}}
        refused = {"Put": {**note["Put"], "ConditionExpression": "attribute_exists(pk)"}}
        found = store.transact(None, pending(done.pk), Transaction((note,), "one"), soon(store))
        assert isinstance(found, Found)
        assert found.record.audited
        assert isinstance(store.load("note", soon(store)), Gone)
        other = store.transact(None, pending(new_pk()), Transaction((refused,), "two"), soon(store))
        assert isinstance(other, Cancelled)
        assert len(other.reasons) == 1
        assert store.transact(None, pending(new_pk()), Transaction((note,), "three"), soon(store)) == Written()


@pytest.mark.dynamodb_local
class TestTransaction:
    """The claim and the look into the audit table are one."""

    def test_of_many_claims_at_once_one_is_written(self, store: DynamoDBStore) -> None:
        """Conflicts of transactions are sent again, and find the winner."""
        names = [new_pk() for _ in range(5)]

        def claim(name: str, number: int) -> bool:
            return store.create(pending(name, owner=f"{number:032x}"), soon(store)) == Written()

        with ThreadPoolExecutor(8) as threads:
            won = [(name, threads.submit(claim, name, number)) for number in range(8) for name in names]
            winners = [name for name, future in won if future.result()]
        assert sorted(winners) == sorted(names)

    def test_a_lost_reply_is_no_lost_claim(self, make_store: MakeStore, dynamodb_local: str) -> None:
        """It is sent again under the same token."""
        client = boto3.client("dynamodb", region_name=REGION, endpoint_url=dynamodb_local)
        make_store()
        watched = WatchedClient(client, then=LostReplies())
        name = make_store(client=client).table
        store = DynamoDBStore(name, client=watched, audit_table=f"{name}-audit")
        claim = pending(new_pk())
        assert store.create(claim, soon(store)) == Written()
        assert watched.operations == ["transact_write_items", "transact_write_items"]

    def test_what_it_costs(self, make_store: MakeStore) -> None:
        """One call more is none: the claim's own becomes a transaction.

        By DynamoDB's documentation each item of a transaction takes two units for each KB; DynamoDB Local reports four.
        """
        meter = Meter()
        store = make_store(session=meter.session)
        engine = Engine(store, Options())
        meter.taken()
        engine.run_once("1", None, lambda lease: "first")
        costs = meter.taken()
        assert operations(costs) == ["TransactWriteItems", "UpdateItem"]
        assert [cost.reported_units for cost in costs] == [4 + 4, 1]
        engine.run_once("1", None, lambda lease: "again")
        assert [cost.operation for cost in meter.taken()] == ["TransactWriteItems"]
        past = Past(store)
        past.age(name_of(engine, "1"), 3 * DAY)
        meter.taken()
        past.remove(name_of(engine, "1"))
        costs = [cost for cost in meter.taken() if cost.operation == "PutItem"]
        assert reported(costs) == (1, 0)

    def test_the_check_looks_at_both_tables(self, store: DynamoDBStore, dynamodb_local: str) -> None:
        """And that we may consult the second one."""
        store.check()
        store.twin().check()
        other = DynamoDBStore(store.table, region=REGION, endpoint=dynamodb_local, audit_table="no-such-table")
        with pytest.raises(StoreMisconfigured, match="audit table 'no-such-table': there is no such table"):
            other.check()


@pytest.fixture
def sweeping_local(dynamodb_local: str) -> Iterator[str]:
    """A DynamoDB Local that has this test's tables alone: its sweeper takes long to get round to one of hundreds."""
    with DynamoDBLocal(locate()) as local:
        yield local.url


@pytest.mark.dynamodb_local
@pytest.mark.processes
def test_a_removal_by_ttl_gets_into_the_audit_table(sweeping_local: str) -> None:
    """From end to end: DynamoDB's own sweeper (here every ten seconds), its stream, its mark of who deleted."""
    settings = patient(region=REGION, endpoint=sweeping_local)
    store = DynamoDBStore("keys", audit_table="keys-audit", **settings)
    store.create_table()
    client: Any = boto3.client("dynamodb", region_name=REGION, endpoint_url=sweeping_local)
    streams: Any = boto3.client("dynamodbstreams", region_name=REGION, endpoint_url=sweeping_local)
    client.update_table(
        TableName=store.table, StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    )
    told = store.describe()
    assert told.stream == "NEW_AND_OLD_IMAGES"
    past = store.clock.now() - 10 * DAY
    done = after(pending(new_pk(), now=past), status=Status.COMPLETED, response=SMALL_ANSWER)
    done = replace(done, expires_at=past + DAY, bound_until=past + DAY)
    store.create(pending(done.pk, now=past), soon(store))
    store.swap(pending(done.pk, now=past), done, soon(store))
    shard = streams.describe_stream(StreamArn=told.stream_arn)["StreamDescription"]["Shards"][0]["ShardId"]
    iterator = [
        streams.get_shard_iterator(StreamArn=told.stream_arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")[
            "ShardIterator"
        ]
    ]
    events: list[Event] = []
    handler = StreamHandler(store, observers=[events.append])

    def removed() -> Event | None:
        page = streams.get_records(ShardIterator=iterator[0])
        iterator[0] = page["NextShardIterator"]
        assert handler({"Records": [as_lambda_gives_it(record) for record in page["Records"]]}) == {
            "batchItemFailures": []
        }
        return next((event for event in events if event.kind is EventKind.TTL_REMOVED), None)

    event = eventually(removed, what="the removal by TTL", within_seconds=120, every_seconds=0.5)
    assert event.reason == "ttl"
    assert event.seconds == pytest.approx(9 * DAY, abs=3600)
    found = store.create(pending(done.pk, now=store.clock.now()), soon(store))
    assert isinstance(found, Found)
    assert (found.record.audited, found.record.status) == (True, Status.COMPLETED)


def as_lambda_gives_it(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the stream as the event of a function, which is JSON and writes some names otherwise."""
    change = dict(record["dynamodb"])
    change["ApproximateCreationDateTime"] = change["ApproximateCreationDateTime"].timestamp()
    who = record.get("userIdentity")
    shown = {"eventName": record["eventName"], "dynamodb": change}
    return shown | ({"userIdentity": {"type": who["Type"], "principalId": who["PrincipalId"]}} if who else {})


class TestIsLate:
    """What counts as a late duplicate."""

    @pytest.mark.parametrize(
        ("found", "late"),
        [
            (None, False),
            (record_of(Status.COMPLETED), True),
            (record_of(Status.COMPLETED, fingerprint=b"other"), False),
            (record_of(Status.FAILED), False),
            (record_of(), False),
        ],
        ids=["nothing", "done", "another request", "failed", "abandoned"],
    )
    def test_only_the_same_request_that_was_done(self, found: Record | None, late: bool) -> None:  # noqa: FBT001
        """A new request under an old key, and one that never ended, are not."""
        assert is_late(attempt_of(), found) is late

    def test_it_is_told_of_a_record_that_still_stands(self) -> None:
        """Without an audit table, until the record is deleted."""
        clock, events = ManualClock(), list[Event]()
        engine = Engine(MemoryStore(clock=clock), Options(observers=(events.append,)))
        engine.run_once("1", None, lambda lease: "first")
        clock.advance(2 * DAY)
        engine.run_once("1", None, lambda lease: "again")
        assert [event.kind for event in events][2:] == [
            EventKind.CLAIMED,
            EventKind.LATE_DUPLICATE,
            EventKind.COMPLETED,
        ]


class TestSettings:
    """Wrong ones stop the start."""

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"audit_table": "a b"}, "'a b'"),
            ({"audit_table": "keys"}, "must be another table"),
            ({"audit_table": "audit", "audit_seconds": 0}, "audit_seconds must be above 0"),
        ],
    )
    def test_what_can_t_be_right(self, settings: dict[str, Any], says: str) -> None:
        """All of it in one error."""
        with pytest.raises(ConfigurationError, match=says):
            DynamoDBStore("keys", **settings)

    def test_a_url_may_name_it(self) -> None:
        """With its time."""
        store = store_from_url("dynamodb://keys?audit_table=keys_audit&audit_seconds=60")
        assert isinstance(store, DynamoDBStore)
        assert store.audit is not None
        assert (store.audit.table, store.audit.seconds) == ("keys_audit", 60)
        with pytest.raises(ConfigurationError, match="audit_seconds must be a number"):
            store_from_url("dynamodb://keys?audit_table=keys_audit&audit_seconds=soon")

    def test_without_one_nothing_is_remembered(self) -> None:
        """A function on the stream that writes nothing would look as if it worked."""
        with pytest.raises(ConfigurationError, match="no audit table"):
            DynamoDBStore("keys", region=REGION).remember(pending(new_pk()), NOW)

    def test_a_denied_look_is_told_by_the_check(self) -> None:
        """With what to allow."""
        with mock_aws():
            client = boto3.client("dynamodb", region_name=REGION)
            DynamoDBStore("keys", client=client, audit_table="audit").create_table()

            def deny(operation: str, request: Any) -> None:
                if operation == "transact_write_items":
                    raise error("AccessDeniedException", operation=operation)

            watched = WatchedClient(client, before=deny)
            with pytest.raises(StoreMisconfigured, match="ConditionCheckItem"):
                DynamoDBStore("keys", client=watched, audit_table="audit").check()


def test_an_entry_is_as_small_as_a_record_can_be() -> None:
    """Without the answer; a unit to write, whatever the answer was."""
    answer = KeptResponse(status=200, headers=(), body=b"x" * 3000)
    done = after(pending(placed(new_pk(), caller_partition("", "ann"))), status=Status.COMPLETED, response=answer)
    assert item_size(AuditLog("audit", 60.0).entry(done, NOW)) < 450
