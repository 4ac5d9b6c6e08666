"""The stub's tables: what they answer and reckon, as DynamoDB would."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.dynamodb.expressions import condition, update
from benchmarks.dynamodb.tables import Tables, item_bytes

ITEM = {"pk": {"S": "k"}, "status": {"S": "PENDING"}, "version": {"N": "1"}}
NAMES = {"#s": "status", "#v": "version"}


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("attribute_not_exists(pk)", {}, False),
        ("attribute_exists(#v) AND NOT attribute_exists(owner)", {}, True),
        ("#s = :s AND #v = :v", {":s": {"S": "PENDING"}, ":v": {"N": "1.0"}}, True),
        ("#s = :s AND #v = :v", {":s": {"S": "PENDING"}, ":v": {"N": "2"}}, False),
        ("attribute_not_exists(pk) OR (#s <> :s AND #v < :v)", {":s": {"S": "DONE"}, ":v": {"N": "10"}}, True),
        ("#v >= :v", {":v": {"N": "2"}}, False),
        ("owner < :v", {":v": {"N": "2"}}, False),
    ],
)
def test_a_condition_is_read_as_dynamodb_reads_it(text: str, values: dict[str, Any], *, holds: bool) -> None:
    assert condition(text)(ITEM, NAMES, values) is holds


@pytest.mark.parametrize("text", ["begins_with(pk, :p)", "#s = :s AND", "size(pk) > :n", "a = b extra", "#s ! :s"])
def test_a_condition_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"understood|should be"):
        condition(text)


def test_an_update_sets_and_removes_and_leaves_the_rest() -> None:
    changed = update("SET #s = :s, owner = :o REMOVE #v")(ITEM, NAMES, {":s": {"S": "DONE"}, ":o": {"S": "me"}})
    assert changed == {"pk": {"S": "k"}, "status": {"S": "DONE"}, "owner": {"S": "me"}}
    assert ITEM["status"] == {"S": "PENDING"}


def test_an_update_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="understood"):
        update("SET #v = #v + :one")


def ask(tables: Tables, operation: str, **document: Any) -> tuple[str, Any]:
    status, content = tables.answer(operation, json.dumps({"TableName": "t", **document}).encode())
    return status, json.loads(content)


def test_a_put_that_meets_an_item_fails_and_brings_it_if_it_is_asked_to() -> None:
    tables = Tables()
    wanted = {"Item": ITEM, "ConditionExpression": "attribute_not_exists(pk)"}
    assert ask(tables, "putitem", **wanted) == ("200 OK", {})
    status, answer = ask(tables, "putitem", **wanted, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert status == "400 Bad Request"
    assert answer["__type"].endswith("#ConditionalCheckFailedException")
    assert answer["Item"] == ITEM
    assert "Item" not in ask(tables, "putitem", **wanted)[1]


def test_what_is_written_is_read_and_what_is_deleted_is_gone() -> None:
    tables, key = Tables(), {"pk": {"S": "k"}}
    changed = {"UpdateExpression": "SET owner = :o", "ExpressionAttributeValues": {":o": {"S": "me"}}}
    ask(tables, "updateitem", Key=key, **changed)
    assert ask(tables, "getitem", Key=key) == ("200 OK", {"Item": {**key, "owner": {"S": "me"}}})
    assert ask(tables, "getitem", Key={"pk": {"S": "other"}}) == ("200 OK", {})
    ask(tables, "deleteitem", Key=key)
    assert ask(tables, "getitem", Key=key) == ("200 OK", {})


def test_units_are_of_kilobytes_begun_and_a_failed_write_pays_for_what_stands_there() -> None:
    tables = Tables()
    large = {"Item": {"pk": {"S": "k"}, "body": {"S": "x" * 100_000}}}
    ask(tables, "putitem", **large)
    ask(tables, "putitem", **large, ConditionExpression="attribute_not_exists(pk)")
    ask(tables, "getitem", Key={"pk": {"S": "k"}}, ConsistentRead=True)
    counts = json.loads(tables.counts())
    assert (counts["calls"], counts["write_units"], counts["read_units"]) == (3, 2 * 98, 25)


def test_the_oldest_items_make_room() -> None:
    tables = Tables(most_bytes=3000)
    for number in range(4):
        ask(tables, "putitem", Item={"pk": {"S": str(number)}, "body": {"S": "x" * 1000}})
    held = [bool(ask(tables, "getitem", Key={"pk": {"S": str(number)}})[1]) for number in range(4)]
    assert held == [False, False, True, True]


def test_what_the_stub_does_not_understand_it_refuses() -> None:
    assert ask(Tables(), "transactwriteitems", TransactItems=[])[0] == "400 Bad Request"


@pytest.mark.parametrize(
    ("value", "size"),
    [({"S": "né"}, 3), ({"B": "YWI="}, 2), ({"N": "1200"}, 3), ({"BOOL": True}, 1), ({"L": [{"S": "a"}]}, 5)],
)
def test_the_size_of_an_item_is_that_of_names_and_values(value: dict[str, Any], size: int) -> None:
    assert item_bytes({"a": value}) == 1 + size
