"""Making the table, and checking it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.dynamodb.table import (
    ACTIONS,
    ProvisionedThroughput,
    audit_problems,
    check_table,
    create_table,
    table_name_problem,
)
from idem_middleware.stores.dynamodb.transport import ClientTransport
from tests.stores.doubles import ManualTime, ScriptedClient, WatchedClient, answer, error
from tests.stores.records import new_pk, pending, soon

OTHER_KEY: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
}
WITH_SORT_KEY: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
}
NUMBER_KEY: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "N"}],
}


@pytest.fixture
def client() -> Iterator[Any]:
    """A client of an empty moto."""
    with mock_aws():
        yield boto3.client("dynamodb", region_name="eu-central-1")


class Denying:
    """Refuses some operations, as a policy does."""

    def __init__(self, *operations: str) -> None:
        self._operations = operations

    def __call__(self, operation: str, request: dict[str, Any]) -> None:
        if operation in self._operations:
            raise error("AccessDeniedException", "not authorized", operation=operation)


def described(status: str = "ACTIVE") -> dict[str, Any]:
    """A description of a right table."""
    return answer(
        Table={
            "TableStatus": status,
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        }
    )


TTL_OFF = answer(TimeToLiveDescription={"TimeToLiveStatus": "DISABLED"})
TTL_ON = answer(TimeToLiveDescription={"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"})


class TestCreate:
    """`create_table`."""

    def test_it_makes_a_table_that_passes_the_check(self, client: Any) -> None:
        """One key, on demand, TTL on."""
        create_table(client, "keys")
        check_table(client, "keys")
        table = client.describe_table(TableName="keys")["Table"]
        assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert client.describe_time_to_live(TableName="keys")["TimeToLiveDescription"]["AttributeName"] == "ttl"

    def test_it_may_be_done_twice(self, client: Any) -> None:
        """Each deployment may call it."""
        create_table(client, "keys")
        create_table(client, "keys")

    def test_it_finishes_what_was_begun(self, client: Any) -> None:
        """A table without TTL gets it."""
        create_table(client, "keys", ttl=False)
        with pytest.raises(StoreMisconfigured, match="TTL is off"):
            check_table(client, "keys")
        create_table(client, "keys")
        check_table(client, "keys")

    def test_capacity_may_be_provisioned(self, client: Any) -> None:
        """For steady traffic."""
        create_table(client, "keys", billing=ProvisionedThroughput(read_units=5, write_units=7))
        throughput = client.describe_table(TableName="keys")["Table"]["ProvisionedThroughput"]
        assert (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"]) == (5, 7)

    @pytest.mark.parametrize("schema", [OTHER_KEY, WITH_SORT_KEY, NUMBER_KEY], ids=["other", "sort key", "number"])
    def test_a_table_with_another_key_is_not_touched(self, client: Any, schema: dict[str, Any]) -> None:
        """It is somebody else's."""
        client.create_table(TableName="keys", BillingMode="PAY_PER_REQUEST", **schema)
        with pytest.raises(StoreMisconfigured, match=r"'keys'.*key must be"):
            create_table(client, "keys")
        status = client.describe_time_to_live(TableName="keys")["TimeToLiveDescription"]["TimeToLiveStatus"]
        assert status == "DISABLED"

    def test_ttl_on_another_attribute_is_not_moved(self, client: Any) -> None:
        """It may be meant."""
        create_table(client, "keys", ttl=False)
        other = {"Enabled": True, "AttributeName": "expires"}
        client.update_time_to_live(TableName="keys", TimeToLiveSpecification=other)
        with pytest.raises(StoreMisconfigured, match=r"attribute expires.*on ttl"):
            create_table(client, "keys")

    def test_somebody_else_may_be_quicker(self, time: ManualTime) -> None:
        """Two deployments at once, or a lost reply: what counts is that the table is there."""
        client = ScriptedClient(
            error("ResourceNotFoundException"), error("ResourceInUseException"), described(), TTL_ON
        )
        create_table(client, "keys", sleep=time.sleep)

    def test_somebody_else_may_be_quicker_with_the_ttl(self, time: ManualTime) -> None:
        """DynamoDB refuses to switch on what is on; that is as good."""
        refused = error("ValidationException", "TimeToLive is already enabled")
        client = ScriptedClient(described(), TTL_OFF, refused, TTL_ON)
        create_table(client, "keys", sleep=time.sleep)

    def test_a_ttl_that_stays_off_is_an_error(self, time: ManualTime) -> None:
        """The refusal meant something else."""
        client = ScriptedClient(described(), TTL_OFF, error("ValidationException"), TTL_OFF)
        with pytest.raises(StoreUnavailable, match="UpdateTimeToLive"):
            create_table(client, "keys", sleep=time.sleep)

    def test_a_table_that_becomes_active_at_the_last_look_is_in_time(self, time: ManualTime) -> None:
        """The bound is on the waiting, not on the looking."""
        client = ScriptedClient(described("CREATING"), described("CREATING"), described(), TTL_ON)
        create_table(client, "keys", wait_seconds=1.0, sleep=time.sleep)

    def test_it_waits_until_the_table_is_active(self, time: ManualTime) -> None:
        """Not found for a moment, then being made, then there."""
        client = ScriptedClient(
            error("ResourceNotFoundException"),
            answer(),
            error("ResourceNotFoundException"),
            described("CREATING"),
            described("CREATING"),
            described(),
            TTL_ON,
        )
        create_table(client, "keys", sleep=time.sleep)
        assert time.slept == [0.5] * 4

    def test_it_does_not_wait_for_ever(self, time: ManualTime) -> None:
        """A table that stays as it is, is told."""
        client = ScriptedClient(*[described("CREATING")] * 6)
        with pytest.raises(StoreUnavailable, match="CREATING after 2 s"):
            create_table(client, "keys", wait_seconds=2.0, sleep=time.sleep)

    def test_throttling_is_waited_out(self, time: ManualTime) -> None:
        """Control-plane calls have a low limit."""
        client = ScriptedClient(error("ThrottlingException"), described(), error("LimitExceededException"), TTL_ON)
        create_table(client, "keys", sleep=time.sleep)

    def test_a_denied_creation_says_what_to_allow(self, client: Any) -> None:
        """With the table's name."""
        with pytest.raises(StoreMisconfigured, match=r"'keys'.*not allowed dynamodb:CreateTable"):
            create_table(WatchedClient(client, before=Denying("create_table")), "keys")


class TestCheck:
    """`check_table`."""

    def test_a_missing_table_is_named(self, client: Any) -> None:
        """One sentence, not five that follow from it."""
        with pytest.raises(StoreMisconfigured, match=r"^DynamoDB table 'keys': there is no such table[^;]*$"):
            check_table(client, "keys")

    @pytest.mark.parametrize("schema", [OTHER_KEY, WITH_SORT_KEY, NUMBER_KEY], ids=["other", "sort key", "number"])
    def test_another_key_is_named(self, client: Any, schema: dict[str, Any]) -> None:
        """What it is, and what it must be."""
        client.create_table(TableName="keys", BillingMode="PAY_PER_REQUEST", **schema)
        with pytest.raises(StoreMisconfigured, match=r"must be the one attribute pk \(HASH, S\), not"):
            check_table(client, "keys", ttl=False)

    def test_ttl_on_another_attribute_is_named(self, client: Any) -> None:
        """Nothing of ours would be deleted."""
        create_table(client, "keys", ttl=False)
        other = {"Enabled": True, "AttributeName": "expires"}
        client.update_time_to_live(TableName="keys", TimeToLiveSpecification=other)
        with pytest.raises(StoreMisconfigured, match="TTL is on the attribute expires"):
            check_table(client, "keys")

    def test_a_table_that_has_no_ttl_may_be_meant(self, client: Any) -> None:
        """Strongly consistent global tables have none."""
        create_table(client, "keys", ttl=False)
        check_table(client, "keys", ttl=False)

    @pytest.mark.parametrize("action", ACTIONS)
    def test_each_missing_permission_is_named(self, client: Any, action: str) -> None:
        """Before the rare path that needs it (powertools-lambda-python#1901), with the action to allow."""
        create_table(client, "keys")
        operation = {
            "dynamodb:PutItem": "put_item",
            "dynamodb:UpdateItem": "update_item",
            "dynamodb:GetItem": "get_item",
            "dynamodb:BatchGetItem": "batch_get_item",
        }[action]
        with pytest.raises(StoreMisconfigured, match=f"not allowed {action} ") as raised:
            check_table(WatchedClient(client, before=Denying(operation)), "keys")
        assert ";" not in str(raised.value)

    def test_all_that_is_wrong_comes_in_one_error(self, client: Any) -> None:
        """Permissions to describe are needed for the check alone, and are named with the rest."""
        create_table(client, "keys")
        denying = Denying("describe_table", "describe_time_to_live", "get_item")
        with pytest.raises(StoreMisconfigured) as raised:
            check_table(WatchedClient(client, before=denying), "keys")
        for action in ("DescribeTable", "DescribeTimeToLive", "GetItem"):
            assert f"dynamodb:{action}" in str(raised.value)

    def test_wrong_credentials_are_told_once(self, time: ManualTime) -> None:
        """Every further call would say the same."""
        client = ScriptedClient(error("UnrecognizedClientException"))
        with pytest.raises(StoreMisconfigured, match="check the AWS credentials"):
            check_table(client, "keys", sleep=time.sleep)

    def test_it_writes_nothing(self, client: Any) -> None:
        """Not even for a moment."""
        create_table(client, "keys")
        check_table(client, "keys")
        assert client.scan(TableName="keys")["Count"] == 0

    def test_a_table_that_is_being_deleted_is_named(self, time: ManualTime) -> None:
        """It is there, and will not be."""
        client = ScriptedClient(described("DELETING"), TTL_ON, answer(), answer(), answer(), answer())
        with pytest.raises(StoreMisconfigured, match="DELETING, not ACTIVE"):
            check_table(client, "keys", sleep=time.sleep)

    @pytest.mark.parametrize("operation", ["describe_table", "describe_time_to_live"])
    def test_an_audit_table_that_can_not_be_looked_at_is_named(self, client: Any, operation: str) -> None:
        """As what is wrong with the table itself; and what can be found out all the same is told, too."""
        for name in ("keys", "audit"):
            create_table(client, name)
        watched = WatchedClient(client)

        def deny(asked: str, request: dict[str, Any]) -> None:
            if asked == operation and request["TableName"] == "audit":
                raise error("AccessDeniedException", "not authorized", operation=operation)

        watched._before = deny
        with pytest.raises(StoreMisconfigured, match=r"its audit table 'audit': .*AccessDenied|audit"):
            check_table(watched, "keys", audit_table="audit")
        problems = list(audit_problems(ClientTransport(watched), "keys", "audit"))
        assert len(problems) == 1
        assert problems[0].startswith("its audit table 'audit': ")

    def test_an_audit_table_that_is_right_has_no_problems(self, client: Any) -> None:
        """So that the test above does not pass for another reason."""
        for name in ("keys", "audit"):
            create_table(client, name)
        assert list(audit_problems(ClientTransport(client), "keys", "audit")) == []
        assert list(audit_problems(ClientTransport(client), "keys", "nowhere"))

    def test_an_outage_is_not_taken_for_a_wrong_table(self, time: ManualTime) -> None:
        """An operator would look in the wrong place."""
        client = ScriptedClient(described(), error("UnknownOperationException"))
        with pytest.raises(StoreUnavailable) as raised:
            check_table(client, "keys", sleep=time.sleep)
        assert not isinstance(raised.value, StoreMisconfigured)


@pytest.mark.dynamodb_local
def test_amazons_own_program_agrees(dynamodb_local: str) -> None:
    """Made, made again, checked, used."""
    store = DynamoDBStore(f"keys-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local)
    with pytest.raises(StoreMisconfigured, match="no such table"):
        store.check()
    with pytest.raises(StoreMisconfigured, match="no such table"):
        store.create(pending(new_pk()), soon(store))
    store.create_table()
    store.create_table()
    store.check()
    store.twin().check()


@pytest.mark.dynamodb_local
def test_amazons_own_program_refuses_a_table_with_another_key(dynamodb_local: str) -> None:
    """What a misnamed table does to a request: an operator's error, not an outage."""
    store = DynamoDBStore(f"other-{new_pk()[:12]}", region="eu-central-1", endpoint=dynamodb_local)
    client = boto3.client("dynamodb", region_name="eu-central-1", endpoint_url=dynamodb_local)
    client.create_table(TableName=store.table, BillingMode="PAY_PER_REQUEST", **OTHER_KEY)
    claim = pending(new_pk())
    for call in (
        lambda: store.create(claim, soon(store)),
        lambda: store.swap(claim, claim, soon(store)),
        lambda: store.load(claim.pk, soon(store)),
        store.check,
    ):
        with pytest.raises(StoreMisconfigured, match="pk"):
            call()


@pytest.mark.parametrize("name", ["abc", "My_table-1.x", "a" * 255])
def test_right_names_are_taken(name: str) -> None:
    """DynamoDB's own rule."""
    assert table_name_problem(name) is None


@pytest.mark.parametrize("name", ["", "ab", "a" * 256, "a b c", "a/b/c", "t\u00e4ble", "abc\n", None])
def test_wrong_names_are_refused(name: object) -> None:
    """With the name in the message."""
    problem = table_name_problem(name)
    assert problem is not None
    assert repr(name) in problem


def test_a_store_knows_what_is_wrong_with_its_audit_table(client: Any) -> None:
    """For whoever looks after it."""
    store = DynamoDBStore("keys", client=client, audit_table="audit")
    create_table(client, "keys")
    assert any("no such table" in problem for problem in store.audit_problems())
    create_table(client, "audit")
    assert store.audit_problems() == []
