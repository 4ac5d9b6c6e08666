"""What is asked of DynamoDB, as data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.validate import ParamValidator

from idem_middleware.records import Record, Status
from idem_middleware.stores.dynamodb.items import chunk_item, chunk_pk, item_of
from idem_middleware.stores.dynamodb.requests import (
    Request,
    create_request,
    get_chunk_request,
    get_chunks_request,
    load_request,
    put_chunk_request,
    swap_request,
    transact_request,
)
from idem_middleware.transactions import Transaction
from tests.stores.records import SHAPES, SMALL_ANSWER, after, lives, pending

PK = "ab" * 32
CLAIM = pending(PK)
DONE = after(CLAIM, status=Status.COMPLETED, response=SMALL_ANSWER)

REQUESTS: dict[str, tuple[str, Request]] = {
    "create": ("PutItem", create_request("keys", CLAIM)),
    "swap": ("UpdateItem", swap_request("keys", CLAIM, DONE)),
    "swap without an answer": ("UpdateItem", swap_request("keys", DONE, after(DONE, response=None))),
    "load": ("GetItem", load_request("keys", PK)),
    "put a chunk": ("PutItem", put_chunk_request("keys", CLAIM, 0, b"x")),
    "get a chunk": ("GetItem", get_chunk_request("keys", CLAIM, 0)),
    "get chunks": ("BatchGetItem", get_chunks_request("keys", ["a", "b"])),
}


def test_a_create_is_conditioned_on_nothing_standing_there() -> None:
    """One conditional PutItem, whose failure brings the old item along."""
    assert create_request("keys", CLAIM) == {
        "TableName": "keys",
        "Item": item_of(CLAIM),
        "ConditionExpression": "attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": "pk"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_a_swap_is_conditioned_on_version_owner_and_status() -> None:
    """One conditional UpdateItem, whose failure brings the old item along."""
    request = swap_request("keys", CLAIM, DONE)
    assert request["Key"] == {"pk": {"S": PK}}
    assert request["ConditionExpression"] == "#version = :old_version AND #owner = :old_owner AND #status = :old_status"
    assert request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    values = request["ExpressionAttributeValues"]
    assert (values[":old_version"], values[":old_owner"], values[":old_status"]) == (
        {"N": "1"},
        {"S": CLAIM.owner},
        {"S": "PENDING"},
    )
    assert (values[":version"], values[":status"]) == ({"N": "2"}, {"S": "COMPLETED"})


@pytest.mark.parametrize("shape", SHAPES)
def test_a_swap_says_something_about_every_attribute(shape: str) -> None:
    """So that nothing of the record before can stay: an answer, a checkpoint, a caller's digest."""
    new = lives(PK)[shape]
    request = swap_request("keys", CLAIM, new)
    assert set(request["ExpressionAttributeNames"].values()) == {
        *item_of(DONE).keys() - {"pk"},
        "checkpoint",
        "transaction",
    }
    removed = set(re.findall(r"#(\w+)", request["UpdateExpression"].partition(" REMOVE ")[2]))
    assert removed == {"caller_digest", "checkpoint", "response", "transaction"} - item_of(new).keys()


def test_a_swap_stays_under_one_key() -> None:
    """Anything else is a bug."""
    with pytest.raises(ValueError, match="one key"):
        swap_request("keys", CLAIM, pending("other"))


@pytest.mark.parametrize("name", ["load", "get a chunk"])
def test_every_read_is_strongly_consistent(name: str) -> None:
    """An eventually consistent read may show a record as it was a moment ago (aws-sdk-java#1945, scylladb#5062)."""
    assert REQUESTS[name][1]["ConsistentRead"] is True


def test_every_read_of_a_batch_is_strongly_consistent() -> None:
    """The same for the pieces of a body."""
    assert get_chunks_request("keys", ["a"])["RequestItems"]["keys"]["ConsistentRead"] is True


@pytest.mark.parametrize("name", REQUESTS)
def test_no_attribute_is_named_in_an_expression(name: str) -> None:
    """`status`, `owner` and `ttl` are reserved words (powertools-lambda-python#693), so every name is a placeholder."""
    for key, expression in REQUESTS[name][1].items():
        if not key.endswith("Expression"):
            continue
        bare = re.sub(r"[#:]\w+", "", expression)
        assert set(re.findall(r"\w+", bare)) <= {"attribute_not_exists", "AND", "SET", "REMOVE"}


@pytest.mark.parametrize("name", REQUESTS)
def test_placeholders_and_expressions_agree(name: str) -> None:
    """DynamoDB refuses a name or a value that is defined and not used, or used and not defined."""
    request = REQUESTS[name][1]
    expressions = " ".join(text for key, text in request.items() if key.endswith("Expression"))
    assert set(re.findall(r"#\w+", expressions)) == set(request.get("ExpressionAttributeNames", {}))
    assert set(re.findall(r":\w+", expressions)) == set(request.get("ExpressionAttributeValues", {}))


@pytest.fixture(scope="module")
def service() -> Any:
    """boto3's model of DynamoDB."""
    return boto3.client("dynamodb", region_name="eu-central-1").meta.service_model


@pytest.mark.parametrize("name", REQUESTS)
def test_boto3_would_accept_every_request(service: Any, name: str) -> None:
    """The client does not check parameters (that costs 7 % of a call), so this does."""
    operation, request = REQUESTS[name]
    report = ParamValidator().validate(request, service.operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()


def test_no_value_is_a_float() -> None:
    """A float fails only in the real serialiser, after the work was done (polis#2593); there is none anywhere."""

    def leaves(value: object) -> Iterator[object]:
        if isinstance(value, dict):
            for inner in value.values():
                yield from leaves(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from leaves(inner)
        else:
            yield value

    for _, request in REQUESTS.values():
        assert {type(leaf) for leaf in leaves(request)} <= {str, bytes, bool}


def test_a_batch_has_one_to_a_hundred_keys() -> None:
    """DynamoDB's own bounds."""
    assert len(get_chunks_request("keys", ["k"] * 100)["RequestItems"]["keys"]["Keys"]) == 100
    for wrong in ([], ["k"] * 101):
        with pytest.raises(ValueError, match="1 to 100"):
            get_chunks_request("keys", wrong)


def test_chunks_have_keys_of_their_own() -> None:
    """Of the claim's key, the attempt and the number: no two pieces share one, and none is a record's."""
    other: Record = pending(PK, owner="other")
    keys = [
        put_chunk_request("keys", owner, number, b"")["Item"]["pk"]["S"]
        for owner in (CLAIM, other)
        for number in (0, 1)
    ]
    assert len({PK, *keys}) == 5
    assert all(key.startswith(PK + "#") for key in keys)


def test_a_record_with_everything_removes_nothing() -> None:
    """DynamoDB takes no empty REMOVE."""
    whole = after(DONE, checkpoint=b"paid", transaction="t")
    update = swap_request("keys", DONE, whole)["UpdateExpression"]
    assert update.startswith("SET ")
    assert "REMOVE" not in update


def test_an_update_names_each_attribute_once() -> None:
    """Word for word, as DynamoDB reads it."""
    request = swap_request("keys", CLAIM, after(CLAIM, caller_digest=None))
    names = ["status", "version", "owner", "attempt", "fingerprint", "created_at", "expires_at", "bound_until", "ttl"]
    names += ["schema"]
    gone = ["caller_digest", "checkpoint", "response", "transaction"]
    assert request["UpdateExpression"] == (
        f"SET {', '.join(f'#{name} = :{name}' for name in names)} REMOVE {', '.join(f'#{name}' for name in gone)}"
    )
    assert request["ExpressionAttributeNames"] == {f"#{name}": name for name in (*names, *gone)}
    assert set(request["ExpressionAttributeValues"]) == {
        *(f":{name}" for name in names), ":old_version", ":old_owner", ":old_status"
    }  # fmt: skip


@pytest.mark.parametrize("old", [None, CLAIM], ids=["claim", "lease"])
def test_a_transaction_is_the_record_s_write_and_then_the_user_s_actions(old: Record | None) -> None:
    """Under its own token; each part brings what stood against it, unless the user wants it otherwise."""
    mine: Any = {"TableName": "orders", "Item": {"id": {"S": "1"}}}
    quiet: Any = {"TableName": "orders", "Key": {"id": {"S": "2"}}, "ReturnValuesOnConditionCheckFailure": "NONE"}
    own = {"Put": create_request("keys", DONE)} if old is None else {"Update": swap_request("keys", old, DONE)}
    assert transact_request("keys", old, DONE, Transaction(({"Put": mine}, {"Delete": quiet}), "token")) == {
        "TransactItems": [
            own,
            {"Put": {**mine, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}},
            {"Delete": quiet},
        ],
        "ClientRequestToken": "token",
    }


def test_one_key_is_a_batch() -> None:
    """The last of a body's pieces may be left over alone."""
    assert get_chunks_request("keys", ["k"]) == {
        "RequestItems": {"keys": {"Keys": [{"pk": {"S": "k"}}], "ConsistentRead": True}}
    }


def test_reads_are_strongly_consistent() -> None:
    """What was written a moment ago is seen; nothing is decided on less."""
    assert load_request("keys", PK) == {"TableName": "keys", "Key": {"pk": {"S": PK}}, "ConsistentRead": True}
    assert get_chunk_request("keys", CLAIM, 0) == load_request("keys", chunk_pk(CLAIM, 0))


def test_a_piece_of_a_body_is_put_without_a_condition() -> None:
    """The same attempt may write it twice."""
    assert put_chunk_request("keys", CLAIM, 1, b"x") == {"TableName": "keys", "Item": chunk_item(CLAIM, 1, b"x")}
