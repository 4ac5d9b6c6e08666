"""Documents, compared with those that botocore writes and reads."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.exceptions import ChecksumError, ClientError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from botocore.serialize import create_serializer
from botocore.session import Session
from hypothesis import given
from hypothesis import strategies as st

from idem_middleware.stores.dynamodb.faults import Fault, Kind, classify
from idem_middleware.stores.dynamodb.items import item_of
from idem_middleware.stores.dynamodb.lean import wire
from idem_middleware.stores.dynamodb.requests import (
    Request,
    create_request,
    get_chunks_request,
    load_request,
    put_chunk_request,
    swap_request,
)
from tests.stores.records import SHAPES, after, lives, new_pk, pending

MODEL: Any = Session().get_service_model("dynamodb")
PK = "0" * 64
CLAIM = pending(PK)

encoders = pytest.mark.parametrize("encode", [wire.encode, wire._encode_by_json], ids=["best", "json"])


def botocores_document(operation: str, request: Request) -> Any:
    """What botocore sends."""
    serializer: Any = create_serializer("json")
    sent = serializer.serialize_to_request(request, MODEL.operation_model(wire.action_of(operation)))
    return json.loads(sent["body"])


def botocores_answer(operation: str, status: int, body: bytes) -> Any:
    """What botocore makes of an answer."""
    parser: Any = ResponseParserFactory().create_parser("json")
    shape = MODEL.operation_model(wire.action_of(operation)).output_shape
    parsed = parser.parse({"status_code": status, "headers": {}, "body": body}, shape)
    parsed.pop("ResponseMetadata")
    return parsed


def our_answer(operation: str, status: int, body: bytes) -> Any:
    """The same by ours."""
    answer = wire.decode(operation, status, {}, body)
    answer.pop("ResponseMetadata")
    return answer


def response_of(failure: ClientError) -> Any:
    """All its members; the stubs know a few."""
    return failure.response


def on_the_wire(value: Any) -> bytes:
    """As DynamoDB writes it."""
    return json.dumps(value, default=lambda data: b64encode(data).decode()).encode()


@encoders
@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        *[("put_item", create_request("keys", record)) for record in lives(PK).values()],
        *[("update_item", swap_request("keys", CLAIM, after(record))) for record in lives(PK).values()],
        ("get_item", load_request("keys", PK)),
        ("put_item", put_chunk_request("keys", CLAIM, 0, b"\x00\xff")),
        ("put_item", put_chunk_request("keys", CLAIM, 0, b"")),
        ("batch_get_item", get_chunks_request("keys", ["1", "2"])),
        ("describe_table", {"TableName": "keys"}),
        ("put_item", {"TableName": "keys", "Item": {"pk": {"S": "caf\xe9 \U0001f600"}, "n": {"NULL": True}}}),
        ("put_item", {"TableName": "keys", "Item": {"pk": {"B": bytearray(b"1")}, "s": {"BS": [b"1", b"\xff"]}}}),
    ],
)
def test_requests_are_written_as_botocore_writes_them(
    encode: Callable[[Request], bytes], operation: str, request_: Request
) -> None:
    """Every request that we make, for every shape of record."""
    assert json.loads(encode(request_)) == botocores_document(operation, request_)


def test_what_can_not_be_sent_is_a_bug_and_not_a_fault() -> None:
    """It is not tried again."""
    with pytest.raises(TypeError):
        wire.encode({"TableName": object()})


def test_a_lone_surrogate_is_left_to_dynamodb() -> None:
    """No encoder may turn a request into another kind of failure."""
    assert json.loads(wire.encode({"TableName": "\ud800"})) == {"TableName": "\ud800"}


scalars = st.one_of(
    st.builds(lambda text: {"S": text}, st.text(max_size=5)),
    st.builds(lambda number: {"N": str(number)}, st.integers()),
    st.builds(lambda data: {"B": data}, st.binary(max_size=9)),
    st.builds(lambda data: {"BS": data}, st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=3)),
    st.builds(lambda text: {"SS": text}, st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3)),
    st.just({"NULL": True}),
    st.builds(lambda flag: {"BOOL": flag}, st.booleans()),
)
names = st.sampled_from(["pk", "data", "B", "BS", "M", "L", "S"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.builds(lambda items: {"L": items}, st.lists(inner, max_size=3)),
        st.builds(lambda items: {"M": items}, st.dictionaries(names, inner, max_size=3)),
    ),
    max_leaves=8,
)
items = st.dictionaries(names, values, max_size=4)


@given(items)
def test_items_are_read_as_botocore_reads_them(item: Mapping[str, Any]) -> None:
    """Of every type, also under names that are those of types."""
    for operation, document in (
        ("get_item", {"Item": item}),
        ("update_item", {"Attributes": item}),
        ("query", {"Items": [item, item], "Count": 2}),
        ("batch_get_item", {"Responses": {"B": [item], "keys": [item]}, "UnprocessedKeys": {}}),
        ("batch_get_item", {"Responses": {}, "UnprocessedKeys": {"keys": {"Keys": [item]}}}),
        ("transact_get_items", {"Responses": [{"Item": item}, {}]}),
    ):
        body = on_the_wire(document)
        assert our_answer(operation, 200, body) == botocores_answer(operation, 200, body)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_item_goes_out_and_comes_back(shape: str) -> None:
    """The same bytes."""
    item = item_of(lives(new_pk())[shape])
    sent = json.loads(wire.encode({"Item": item}))
    assert our_answer("get_item", 200, on_the_wire(sent)) == {"Item": item}


ERRORS: list[tuple[int, bytes]] = [
    (400, b'{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"m"}'),
    (400, b'{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"m"}'),
    (400, b'{"message":"no type"}'),
    (400, b""),
    (413, b"too large"),
    (500, b""),
    (503, b"<html>Service Unavailable</html>"),
    (504, b"Gateway Timeout"),
]


@pytest.mark.parametrize(("status", "body"), ERRORS)
def test_errors_have_the_code_that_botocore_reads(status: int, body: bytes) -> None:
    """So they mean the same, whoever brings them."""
    theirs = botocores_answer("put_item", status, body)["Error"]["Code"]
    with pytest.raises(ClientError) as raised:
        wire.decode("put_item", status, {}, body)
    assert response_of(raised.value)["Error"]["Code"] == theirs
    assert response_of(raised.value)["ResponseMetadata"]["HTTPStatusCode"] == status
    assert raised.value.operation_name == "PutItem"


def test_an_address_is_no_part_of_a_code() -> None:
    """Newer versions of botocore cut it off, too."""
    with pytest.raises(ClientError) as raised:
        wire.decode("put_item", 400, {}, b'{"__type":"ThrottlingException:http://internal.amazon.com/"}')
    assert response_of(raised.value)["Error"]["Code"] == "ThrottlingException"


def test_an_error_keeps_the_item_that_stands_there() -> None:
    """Where boto3 has it, too."""
    item = item_of(CLAIM)
    with pytest.raises(ClientError) as raised:
        wire.decode(
            "put_item",
            400,
            {},
            on_the_wire({"__type": "x#ConditionalCheckFailedException", "message": "", "Item": item}),
        )
    assert response_of(raised.value)["Item"] == item
    assert classify(raised.value) == Fault(Kind.ANSWER, "ConditionalCheckFailedException")


def test_a_transaction_tells_why_it_was_cancelled() -> None:
    """Item by item, with what stands there."""
    item = item_of(CLAIM)
    reasons = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Message": "m", "Item": item}]
    document = {"__type": "x#TransactionCanceledException", "Message": "cancelled", "CancellationReasons": reasons}
    with pytest.raises(ClientError) as raised:
        wire.decode("transact_write_items", 400, {}, on_the_wire(document))
    assert response_of(raised.value)["CancellationReasons"] == reasons
    assert response_of(raised.value)["Error"] == {"Code": "TransactionCanceledException", "Message": "cancelled"}


def test_a_checksum_is_compared() -> None:
    """DynamoDB sends one of what it wrote."""
    wire.decode("put_item", 200, {"x-amz-crc32": "2745614147"}, b"{}")
    with pytest.raises(ChecksumError) as raised:
        wire.decode("put_item", 200, {"x-amz-crc32": "1"}, b"{}")
    fault = classify(raised.value)
    assert fault is not None
    assert fault.kind is Kind.RETRY


def test_an_answer_that_is_no_document_is_none() -> None:
    """A network that wants to be logged in to answers everything with 200."""
    with pytest.raises(ResponseParserError):
        wire.decode("put_item", 200, {}, b"<html>")


@pytest.mark.parametrize(
    "body", [b'{"Item":{"x":' + b'{"M":{"a":' * 5_000 + b'{"N":"1"}' + b"}}" * 5_000 + b"}}", b"[" * 100_000]
)
def test_an_answer_that_is_nested_without_end_is_none_of_dynamodbs(body: bytes) -> None:
    """Whoever is between us and DynamoDB gets no further than to an error that the store knows."""
    with pytest.raises(ResponseParserError):
        wire.decode("get_item", 200, {}, body)
