"""What an operator does with a table: describing it, listing a caller's keys, sweeping what is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from idem_middleware import Engine, Options
from idem_middleware.errors import ConfigurationError, StoreMisconfigured, StoreUnavailable
from idem_middleware.keys import caller_partition, placed
from idem_middleware.records import Status
from idem_middleware.setup import build
from idem_middleware.stores import DynamoDBStore, MemoryStore, store_from_url
from idem_middleware.stores.base import Found
from idem_middleware.stores.dynamodb.describing import Replica, description_of
from idem_middleware.stores.dynamodb.layouts import LAYOUTS, Layout
from idem_middleware.stores.dynamodb.sweeping import Pace, Swept
from idem_middleware.stores.dynamodb.table import replication_problems
from tests.servers.metering import Meter, operations, reported
from tests.stores.doubles import ManualTime, WatchedClient, error, scripted_store
from tests.stores.records import NOW, SMALL_ANSWER, new_pk, pending, soon

LONG_AGO = 1_600_000_000.0
DAY = 86400


@pytest.fixture
def client() -> Iterator[Any]:
    """A client of an empty moto."""
    with mock_aws():
        yield boto3.client("dynamodb", region_name="eu-central-1")


def caller_store(client: Any, **settings: Any) -> DynamoDBStore:
    """A store with a table that keeps each caller's records together."""
    store = DynamoDBStore("keys", client=client, layout="caller", **settings)
    store.create_table()
    return store


class TestDescribe:
    """`describe`."""

    @pytest.mark.parametrize("layout", ["flat", "caller"])
    def test_a_new_table_is_what_was_made(self, client: Any, layout: Layout) -> None:
        """On demand, with TTL, in one region."""
        store = DynamoDBStore("keys", client=client, layout=layout)
        store.create_table()
        told = store.describe()
        assert (told.name, told.region, told.status, told.layout) == ("keys", "eu-central-1", "ACTIVE", layout)
        assert (told.billing, told.ttl_status, told.ttl_attribute) == ("on-demand", "ENABLED", "ttl")
        assert (told.consistency, told.replicas, told.stream, told.items) == ("one region", (), None, 0)
        assert told.created_index is (layout == "caller")

    def test_a_table_of_somebody_else_is_described_too(self, client: Any) -> None:
        """Its key is told, and that it is none of ours."""
        client.create_table(
            TableName="keys",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            ProvisionedThroughput={"ReadCapacityUnits": 3, "WriteCapacityUnits": 4},
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "OLD_IMAGE"},
        )
        told = DynamoDBStore("keys", client=client).describe()
        assert (told.layout, told.key, told.stream) == (None, "id (HASH, S)", "OLD_IMAGE")
        assert (told.billing, told.read_units, told.write_units) == ("provisioned", 3, 4)
        assert told.stream_arn is not None
        assert told.ttl_status == "DISABLED"

    def test_a_missing_table_is_named(self, client: Any) -> None:
        """As by the check."""
        with pytest.raises(StoreMisconfigured, match=r"'keys'.*no such table"):
            DynamoDBStore("keys", client=client).describe()


def global_table(mode: str | None, *replicas: str, witness: str | None = None) -> dict[str, Any]:
    """DescribeTable's answer about a global table, in the shape of the service model."""
    described: dict[str, Any] = {
        "TableName": "keys",
        "TableArn": "arn:aws:dynamodb:eu-central-1:123456789012:table/keys",
        "TableStatus": "ACTIVE",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "GlobalTableVersion": "2019.11.21",
        "Replicas": [{"RegionName": region, "ReplicaStatus": "ACTIVE"} for region in replicas],
    }
    if mode is not None:
        described["MultiRegionConsistency"] = mode
    if witness is not None:
        described["GlobalTableWitnesses"] = [{"RegionName": witness, "WitnessStatus": "ACTIVE"}]
    return described


class TestReplication:
    """Global tables."""

    @pytest.mark.parametrize("mode", ["EVENTUAL", None])
    def test_an_eventually_consistent_table_is_told(self, mode: str | None) -> None:
        """Also where it is older than the field that says so; the region itself is no replica of its own."""
        told = description_of(global_table(mode, "us-east-1", "eu-central-1"))
        assert (told.consistency, told.replicas) == ("eventual", (Replica("us-east-1", "ACTIVE"),))

    def test_a_strongly_consistent_table_is_told(self) -> None:
        """With its witness, if it has one instead of a third replica."""
        told = description_of(global_table("STRONG", "us-east-1", witness="us-west-2"))
        assert (told.consistency, told.witness) == ("strong", "us-west-2")

    def test_an_eventually_consistent_table_is_refused_without_homes(self) -> None:
        """Two regions could both claim one key: the message says so, and what to do."""
        (problem,) = replication_problems(description_of(global_table("EVENTUAL", "us-east-1")), None)
        assert "MREC" in problem
        assert "both claim one key" in problem
        assert "RegionalStore" in problem

    def test_homes_make_it_usable(self) -> None:
        """Among regions in which the table is."""
        described = description_of(global_table("EVENTUAL", "us-east-1"))
        assert list(replication_problems(described, ["eu-central-1", "us-east-1"])) == []
        assert list(replication_problems(described, ["us-east-1"])) == []

    def test_a_home_without_the_table_is_named(self) -> None:
        """A misspelt region would take its share of the keys."""
        described = description_of(global_table("EVENTUAL", "us-east-1"))
        (problem,) = replication_problems(described, ["eu-central-1", "us-east-2"])
        assert "not replicated to us-east-2" in problem

    def test_a_strongly_consistent_table_needs_no_homes(self) -> None:
        """Its conditions see the latest version in every region."""
        assert list(replication_problems(description_of(global_table("STRONG", "us-east-1", "us-west-2")), None)) == []


class TestCheckOfAGlobalTable:
    """`check` on what only AWS has, by the recorded shape of its answer."""

    def store(self, client: Any, mode: str, **settings: Any) -> DynamoDBStore:
        """A store whose table says that it is a global one."""
        DynamoDBStore("keys", client=client).create_table(ttl=False)

        def replicated(operation: str, outcome: Any) -> Any:
            if operation == "describe_table":
                outcome["Table"] |= global_table(mode, "us-east-1") | {"TableStatus": "ACTIVE"}
            return outcome

        return DynamoDBStore("keys", client=WatchedClient(client, then=replicated), **settings)

    def test_eventual_consistency_is_refused(self, client: Any) -> None:
        """Before a deployment serves anything."""
        store = self.store(client, "EVENTUAL")
        with pytest.raises(StoreMisconfigured, match=r"\(MREC\)"):
            store.check(ttl=False)
        store.check(ttl=False, homes=["eu-central-1", "us-east-1"])

    def test_strong_consistency_has_no_ttl_to_miss(self, client: Any) -> None:
        """There is none to be had; `sweep` is for that."""
        self.store(client, "STRONG").check()

    def test_strong_consistency_has_no_transactions_to_consult_an_audit_table_in(self, client: Any) -> None:
        """So a claim could not ask it."""
        with pytest.raises(StoreMisconfigured, match="has no transactions: audit_table needs them"):
            self.store(client, "STRONG", audit_table="audit").check()


class TestCallerLayout:
    """Each caller's records together."""

    def test_the_engine_puts_them_there(self, client: Any) -> None:
        """Whose work it is says in which partition it lies."""
        store = caller_store(client)
        engine = Engine(store, Options(namespace="billing"))
        for caller, key in (("ann", "1"), ("ann", "2"), ("bob", "1")):
            assert engine.run_once(key, None, lambda lease: lease.attempt, caller=caller) == 1  # type: ignore[union-attr]
        assert engine.run_once("1", None, lambda lease: 99, caller="bob") == 1
        assert [len(list(store.keys_of(caller, namespace="billing"))) for caller in ("ann", "bob", "eve")] == [2, 1, 0]
        assert list(store.keys_of("ann")) == []
        (used,) = store.keys_of("bob", namespace="billing")
        found = store.load(used.pk, soon(store))
        assert isinstance(found, Found)
        assert found.record.created_at == used.created_at

    def test_keys_since_an_instant_come_in_order(self, client: Any) -> None:
        """By when their last attempt began."""
        store = caller_store(client)
        partition = caller_partition("", "ann")
        for age in (3, 1, 2):
            store.create(pending(placed(new_pk(), partition), now=NOW - age * DAY), soon(store))
        assert [key.created_at for key in store.keys_of("ann", since=NOW - 2 * DAY)] == [NOW - 2 * DAY, NOW - DAY]
        newest = store.keys_of("ann", newest_first=True, limit=1)
        assert [key.created_at for key in newest] == [NOW - DAY]

    def test_pieces_of_bodies_are_not_listed(self, client: Any) -> None:
        """They have no `created_at`, so they are not in the index."""
        store = caller_store(client)
        claim = pending(placed(new_pk(), caller_partition("", "ann")))
        store.put_chunks(claim, [b"one", b"two"], soon(store))
        assert list(store.keys_of("ann")) == []

    def test_all_pages_are_read(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """More keys than one answer holds."""
        monkeypatch.setattr("idem_middleware.stores.dynamodb.listing._PAGE", 2)
        store = caller_store(client)
        for number in range(5):
            name = placed(new_pk(), caller_partition("", "ann"))
            store.create(pending(name, now=NOW + number), soon(store))
        assert len(list(store.keys_of("ann"))) == 5
        assert len(list(store.keys_of("ann", limit=3))) == 3

    def test_an_outage_is_not_taken_for_a_missing_index(self, time: ManualTime) -> None:
        """It is told as what it is."""
        down = [error("InternalServerError", status=500)] * 40
        store, _, _ = scripted_store(time, *down, layout="caller")
        with pytest.raises(StoreUnavailable) as raised:
            list(store.keys_of("ann"))
        assert raised.value.code == "InternalServerError"
        assert not isinstance(raised.value, StoreMisconfigured)

    def test_only_this_layout_can_list(self) -> None:
        """The other spreads them evenly."""
        with pytest.raises(ConfigurationError, match="layout 'caller'"):
            DynamoDBStore("keys").keys_of("ann")

    def test_a_table_of_the_other_layout_is_refused(self, client: Any) -> None:
        """In both directions, with the way out."""
        DynamoDBStore("keys", client=client).create_table()
        with pytest.raises(StoreMisconfigured, match=r"must be pk .* and sk .*layout='flat'"):
            DynamoDBStore("keys", client=client, layout="caller").check()

    def test_a_url_may_name_the_layout(self) -> None:
        """As it names the table."""
        assert store_from_url("dynamodb://keys?layout=caller").by_caller  # type: ignore[attr-defined]
        with pytest.raises(ConfigurationError, match="layout must be one of flat, caller"):
            store_from_url("dynamodb://keys?layout=tenant")

    @pytest.mark.parametrize("options", [{}, {"caller": "shared"}])
    def test_it_needs_a_caller(self, options: dict[str, Any]) -> None:
        """Else a whole service lies in one partition."""
        with pytest.raises(ConfigurationError, match="needs a function as caller"):
            build("dynamodb://keys?layout=caller", None, options)

    def test_other_stores_need_none(self) -> None:
        """They have no partitions."""
        engine, _ = build(MemoryStore(), None, {"caller": lambda request: "ann"})
        assert engine.run_once("1", None, lambda lease: 1, caller="ann") == 1


class TestSweep:
    """`sweep`."""

    @pytest.mark.parametrize("layout", ["flat", "caller"])
    def test_what_is_over_is_deleted(self, client: Any, layout: Layout) -> None:
        """Records and pieces of bodies, and nothing else."""
        store = DynamoDBStore("keys", client=client, layout=layout)
        store.create_table(ttl=False)
        names = [placed(new_pk(), "0" * 32) if layout == "caller" else new_pk() for _ in range(5)]
        for number, name in enumerate(names):
            claim = pending(name, now=LONG_AGO if number < 3 else NOW)
            store.create(claim, soon(store))
            store.put_chunks(claim, [b"piece"], soon(store))
        swept = store.sweep(units_per_second=1e6)
        assert (swept.seen, swept.deleted, swept.kept, swept.resume_from) == (10, 6, 0, None)
        assert [isinstance(store.load(name, soon(store)), Found) for name in names] == [False] * 3 + [True] * 2

    def test_a_record_of_a_newer_version_is_deleted_too(self, client: Any) -> None:
        """What `ttl` means never changes."""
        store = DynamoDBStore("keys", client=client)
        store.create_table(ttl=False)
        store.create(replace(pending(new_pk(), now=LONG_AGO), schema=99), soon(store))
        assert store.sweep(units_per_second=1e6).deleted == 1

    def test_a_key_that_is_bound_anew_meanwhile_is_kept(self, client: Any) -> None:
        """Between the look and the deletion a request may come."""
        plain = DynamoDBStore("keys", client=client)
        plain.create_table(ttl=False)
        old = pending(new_pk(), now=LONG_AGO)
        new = replace(pending(old.pk), version=2)
        plain.create(old, soon(plain))

        def claim(operation: str, request: Any) -> None:
            if operation == "delete_item":
                plain.swap(old, new, soon(plain))

        swept = DynamoDBStore("keys", client=WatchedClient(client, before=claim)).sweep(units_per_second=1e6)
        assert (swept.deleted, swept.kept) == (0, 1)
        assert plain.load(old.pk, soon(plain)) == Found(new)

    def test_its_rate_is_bounded(self, client: Any, time: ManualTime) -> None:
        """So that a sweep takes nothing from the requests: here two seconds for each unit."""
        store = DynamoDBStore("keys", client=client, clock=time.clock(), sleep=time.sleep)
        store.create_table(ttl=False)
        for _ in range(10):
            store.create(pending(new_pk(), now=LONG_AGO), soon(store))
        time.slept.clear()
        swept = store.sweep(units_per_second=0.5)
        assert swept.deleted == 10
        assert sum(time.slept) == pytest.approx(2 * (swept.read_units + swept.write_units))
        assert max(time.slept) <= 4  # never more at once than one call has taken

    def test_what_cost_nothing_is_not_waited_for(self, client: Any, time: ManualTime) -> None:
        """Nor what was earned before."""
        store = DynamoDBStore("keys", client=client, clock=time.clock(), sleep=time.sleep)
        pace = Pace(store.admin(), units_per_second=2.0)
        pace.spend(0.0)
        assert time.slept == []
        pace.spend(3.0)
        time.pass_by(10.0)
        pace.spend(0.0)
        assert time.slept == [1.5]

    def test_it_can_be_done_in_parts(self, client: Any, time: ManualTime, monkeypatch: pytest.MonkeyPatch) -> None:
        """Within the time that a scheduled function has; the next one goes on."""
        monkeypatch.setattr("idem_middleware.stores.dynamodb.sweeping._PAGE", 4)
        store = DynamoDBStore("keys", client=client, clock=time.clock(), sleep=time.sleep)
        store.create_table(ttl=False)
        for _ in range(10):
            store.create(pending(new_pk(), now=LONG_AGO), soon(store))
        seen: list[Swept] = []
        first = store.sweep(units_per_second=1.0, max_seconds=1.0, on_progress=seen.append)
        assert seen == [first]
        assert (first.seen, first.deleted) == (4, 4)
        assert first.resume_from is not None
        rest = store.sweep(units_per_second=1e6, resume_from=first.resume_from)
        assert (rest.deleted, rest.resume_from) == (6, None)

    @pytest.mark.parametrize(
        "settings", [{"units_per_second": 0}, {"units_per_second": float("inf")}, {"max_seconds": 0}], ids=str
    )
    def test_a_rate_that_is_none_is_refused(self, settings: dict[str, Any]) -> None:
        """Before the first call."""
        with pytest.raises(ConfigurationError, match="must be above 0"):
            DynamoDBStore("keys", region="eu-central-1").sweep(**settings)


@pytest.mark.dynamodb_local
class TestOnAmazonsOwnProgram:
    """What moto does otherwise, and what DynamoDB reports as capacity."""

    REGION = "eu-central-1"

    @pytest.fixture
    def client(self, dynamodb_local: str) -> Any:
        """A client of it."""
        return boto3.client("dynamodb", region_name=self.REGION, endpoint_url=dynamodb_local)

    @pytest.fixture
    def name(self) -> str:
        """A table of the test's own."""
        return f"keys-{new_pk()[:12]}"

    def test_what_has_no_end_is_not_swept(self, client: Any, name: str) -> None:
        """An item without `ttl`, or with one that is no number, is not ours."""
        store = DynamoDBStore(name, client=client)
        store.create_table(ttl=False)
        client.put_item(TableName=name, Item={"pk": {"S": "config"}})
        client.put_item(TableName=name, Item={"pk": {"S": "text"}, "ttl": {"S": "1"}})
        store.create(pending(new_pk(), now=LONG_AGO), soon(store))
        swept = store.sweep(units_per_second=1e6)
        assert (swept.seen, swept.deleted) == (3, 1)
        # A scan is billed by what it reads, however little comes out: half a unit for 4 KB. A deletion is a write.
        assert (swept.read_units, swept.write_units) == (0.5, 1.0)
        assert client.scan(TableName=name)["Count"] == 2

    def test_a_table_without_the_index_says_so(self, client: Any, name: str) -> None:
        """It may be meant: strongly consistent global tables have none."""
        store = DynamoDBStore(name, client=client, layout="caller")
        store.create_table(index=False)
        store.check()
        with pytest.raises(StoreMisconfigured, match="no index 'created'"):
            list(store.keys_of("ann"))

    def test_the_index_costs_a_write_for_each_claim_and_none_for_its_end(self, name: str, dynamodb_local: str) -> None:
        """A claim sets `created_at`; its completion leaves it. A take-over moves it: one entry out, one in."""
        meter = Meter()
        store = DynamoDBStore(name, region=self.REGION, endpoint=dynamodb_local, session=meter.session, layout="caller")
        store.create_table()
        claim = pending(placed(new_pk(), caller_partition("", "ann")))
        taken = replace(claim, version=2, owner="b" * 32, created_at=NOW + 60, expires_at=NOW + 120)
        done = replace(taken, version=3, status=Status.COMPLETED, response=SMALL_ANSWER)
        meter.taken()
        store.create(claim, soon(store))
        assert reported(meter.taken()) == (2, 0)
        store.swap(claim, taken, soon(store))
        assert reported(meter.taken()) == (3, 0)
        store.swap(taken, done, soon(store))
        assert reported(meter.taken()) == (1, 0)
        assert len(list(store.keys_of("ann"))) == 1
        assert operations(meter.taken()) == ["Query"]

    def test_listing_takes_a_read_unit_for_33_keys(self, client: Any, name: str) -> None:
        """The index has the keys alone."""
        store = DynamoDBStore(name, client=client, layout="caller")
        store.create_table()
        for number in range(40):
            store.create(pending(placed(new_pk(), caller_partition("", "ann")), now=NOW + number), soon(store))
        asked = {
            "TableName": name,
            "IndexName": "created",
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": caller_partition("", "ann")}},
            "ConsistentRead": True,
            "ReturnConsumedCapacity": "TOTAL",
        }
        units = [client.query(**asked, Limit=limit)["ConsumedCapacity"]["CapacityUnits"] for limit in (33, 40)]
        assert units == [1.0, 2.0]

    def test_both_layouts_can_be_made_twice_and_used(self, client: Any, name: str) -> None:
        """Made, made again, checked, described."""
        for layout in LAYOUTS:
            store = DynamoDBStore(f"{name}-{layout}", client=client, layout=layout)
            store.create_table()
            store.create_table()
            store.check()
            assert store.describe().layout == layout
