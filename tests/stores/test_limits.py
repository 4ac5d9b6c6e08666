"""What is found wrong with a transaction before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from idem_middleware.errors import TransactionInvalid
from idem_middleware.stores.dynamodb.limits import check_actions
from idem_middleware.transactions import Check, Delete, Put, Update, actions_of

ARN = "arn:aws:dynamodb:{}:{}:table/{}"
CLAIM: dict[str, Any] = {"table": "keys", "pk": "0" * 64, "claim_bytes": 500, "region": "eu-central-1"}


def put(number: int, **more: Any) -> dict[str, Any]:
    """An action of boto3's shape."""
    return {"Put": {"TableName": "orders", "Item": {"id": {"S": str(number)}, **more}}}


def wrong(*actions: Any, **claim: Any) -> tuple[str, int | None]:
    """What is said of these actions, and of which."""
    with pytest.raises(TransactionInvalid) as invalid:
        check_actions(actions, **{**CLAIM, **claim})
    return str(invalid.value), invalid.value.index


def right(*actions: Any, **claim: Any) -> None:
    """Nothing is said of these."""
    check_actions(actions, **{**CLAIM, **claim})


def test_99_actions_are_the_most() -> None:
    """The hundredth is the claim's own."""
    right(*map(put, range(99)))
    assert "1 to 99 actions beside the claim's, not 100" in wrong(*map(put, range(100)))[0]
    assert "not 0" in wrong()[0]


def test_98_are_the_most_where_the_claim_asks_an_audit_table_too() -> None:
    """In the same transaction: that is one of its actions."""
    right(*map(put, range(98)), own_actions=2)
    assert "1 to 98 actions beside the claim's, not 99" in wrong(*map(put, range(99)), own_actions=2)[0]


@pytest.mark.parametrize(
    ("action", "complaint"),
    [
        ({}, "must have exactly one of Put, Update, Delete, ConditionCheck, not nothing"),
        ({"Put": {}, "Delete": {}}, "not 'Put', 'Delete'"),
        ({"put": {}}, "not 'put'"),
        ({"Put": {"TableName": "orders"}}, "Put needs Item"),
        ({"Update": {}}, "Update needs TableName and Key"),
        ({"Delete": {"TableName": "orders", "Item": {"id": {"S": "1"}}}}, "Delete needs Key"),
        ({"Put": {"TableName": "orders", "Item": ["id"]}}, "Put.Item must be a dictionary"),
        ({"Put": {"TableName": "orders", "Item": {"id": "1"}}}, "Put.Item['id'] must be a typed value"),
        ({"Put": {"TableName": "orders", "Item": {"id": {"S": "1", "N": "1"}}}}, "must be a typed value"),
        ({"Put": {"TableName": "orders", "Item": {"id": {"I": 1}}}}, "must be a typed value"),
        ({"Put": {"TableName": "orders", "Item": {"id": {"L": [{"I": 1}]}}}}, "a value that DynamoDB can't hold"),
        (
            {"Update": {"TableName": "t", "Key": {"id": {"S": "1"}}, "ExpressionAttributeValues": {":n": 1}}},
            "Update.ExpressionAttributeValues[':n'] must be a typed value",
        ),
    ],
)
def test_a_shape_that_is_none_is_told(action: dict[str, Any], complaint: str) -> None:
    """With the number of the action, and what is right."""
    told, index = wrong(put(1), action)
    assert complaint in told
    assert index == 1


def test_four_megabytes_are_the_most() -> None:
    """In all items together, the claim's own among them."""
    large = {"data": {"B": b"x" * 399_000}}
    right(*(put(number, **large) for number in range(10)))
    assert "at most 4194304 bytes" in wrong(*(put(number, **large) for number in range(11)))[0]
    assert "bytes" in wrong(put(1, **large), claim_bytes=4 * 1024 * 1024)[0]


def test_an_item_is_over_its_own_limit_alone() -> None:
    """DynamoDB would refuse the whole."""
    assert wrong(put(1), put(2, data={"B": b"x" * 410_000})) == (
        "action 1: an item has at most 409600 bytes, not 410007",
        1,
    )


def test_the_claims_own_item_is_nobody_elses() -> None:
    """Two actions on one item make a transaction invalid."""
    key = {"pk": {"S": CLAIM["pk"]}}
    assert wrong(put(1), {"Delete": {"TableName": "keys", "Key": key}}) == (
        "action 1 would write or check the claim's own item",
        1,
    )
    assert wrong({"Put": {"TableName": "keys", "Item": {**key, "x": {"S": "y"}}}})[1] == 0
    right({"Delete": {"TableName": "keys", "Key": {"pk": {"S": "another"}}}})
    assert wrong({"Delete": {"TableName": ARN.format("eu-central-1", "1" * 12, "keys"), "Key": key}})[1] == 0


@pytest.mark.parametrize(
    "actions",
    [
        (Update("stock", {"id": "a"}, "SET n = :n"), Check("stock", {"id": "a"}, condition="n > :n")),
        (Delete("stock", {"id": "a"}), Put("stock", {"id": "a", "n": 1})),
        (Put("stock", {"id": "a", "n": 1}), Delete("stock", {"id": "a"})),
        (Put("stock", {"id": "a"}), Put("stock", {"id": "a"})),
        (
            Delete(ARN.format("eu-central-1", "1" * 12, "stock"), {"id": "a"}),
            Delete("stock", {"id": "a"}),
        ),
    ],
    ids=["update and check", "delete and put", "put and delete", "the same put", "by arn and name"],
)
def test_two_actions_for_one_item_are_told(actions: tuple[Any, ...]) -> None:
    """Where their keys are known."""
    assert wrong(*actions_of(actions))[0].startswith("action ")


def test_items_of_different_keys_or_tables_do_not_clash() -> None:
    """Whatever else they share."""
    right(*actions_of([Put("a", {"id": "1", "n": 1}), Put("a", {"id": "2", "n": 1}), Put("b", {"id": "1", "n": 1})]))
    right(*actions_of([Delete("a", {"id": "1"}), Delete("a", {"id": "2"}), Put("a", {"id": "3"})]))


def test_a_transaction_stays_in_its_region_and_account() -> None:
    """Tables of elsewhere are only known by their ARN."""
    there, here = (ARN.format(region, "1" * 12, "stock") for region in ("us-east-1", "eu-central-1"))
    item = {"Item": {"id": {"S": "1"}}}
    told, index = wrong(put(1), {"Put": {"TableName": there, **item}})
    assert (told, index) == (
        "action 1: table 'stock' lies in us-east-1, the claim in eu-central-1: a transaction stays in one region",
        1,
    )
    right({"Put": {"TableName": here, **item}})
    right({"Put": {"TableName": there, **item}}, region=None)
    keys = ARN.format("eu-central-1", "2" * 12, "keys")
    assert "lies in us-east-1" in wrong({"Put": {"TableName": there, **item}}, region=None, table=keys)[0]
    assert "another account" in wrong({"Put": {"TableName": here, **item}}, region=None, table=keys)[0]


def test_plain_values_are_written_in_dynamodbs_types() -> None:
    """As boto3's tables do."""
    [update, check, delete, written] = actions_of(
        [
            Update("t", {"id": 1}, "SET #n = :v", names={"#n": "n"}, values={":v": [True, None, b"b"]}, condition="a"),
            Check("t", {"id": "1"}, condition="attribute_exists(id)"),
            Delete("t", {"id": b"1"}),
            Put("t", {"id": {"a", "b"}}),
        ]
    )
    assert update == {
        "Update": {
            "TableName": "t",
            "Key": {"id": {"N": "1"}},
            "UpdateExpression": "SET #n = :v",
            "ConditionExpression": "a",
            "ExpressionAttributeNames": {"#n": "n"},
            "ExpressionAttributeValues": {":v": {"L": [{"BOOL": True}, {"NULL": True}, {"B": b"b"}]}},
        }
    }
    assert check["ConditionCheck"]["ConditionExpression"] == "attribute_exists(id)"
    assert delete == {"Delete": {"TableName": "t", "Key": {"id": {"B": b"1"}}}}
    assert sorted(written["Put"]["Item"]["id"]["SS"]) == ["a", "b"]
