"""The proxy that the other tests rely on: what DynamoDB gets, and what its caller is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from idem_middleware import DynamoDBStore
from tests.servers.table import REGION, Table
from tests.support.fault_proxy import HANGING, LOST_REPLY, REFUSED, Fault, FaultProxy, answering

pytestmark = [pytest.mark.dynamodb_local]

THROTTLED = answering(400, "ThrottlingException")
BROKEN = answering(500, "InternalServerError", applied=True)


class Through:
    """A client whose calls go through the proxy, and a look at the table beside it."""

    def __init__(self, proxy: FaultProxy, local: str) -> None:
        self.proxy = proxy
        self.table = Table(f"proxied-{uuid4().hex}", local)
        DynamoDBStore(self.table.name, region=REGION, endpoint=local).create_table()
        config = Config(retries={"total_max_attempts": 1}, read_timeout=2)
        self._client: Any = Session().client("dynamodb", region_name=REGION, endpoint_url=proxy.url, config=config)

    def put(self, pk: str) -> Any:
        """Put an item if there is none."""
        return self._client.put_item(
            TableName=self.table.name, Item={"pk": {"S": pk}}, ConditionExpression="attribute_not_exists(pk)"
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self.table.close()


@pytest.fixture(scope="module")
def through(proxy: FaultProxy, dynamodb_local: str) -> Iterator[Through]:
    through = Through(proxy, dynamodb_local)
    yield through
    through.close()


@pytest.fixture
def pk() -> str:
    """The key of an item that no other test has."""
    return uuid4().hex


def test_it_passes_on_what_it_is_not_told_to_fail(through: Through, pk: str) -> None:
    """Answers, errors and their headers; and it knows how each ended."""
    answer = through.put(pk)
    assert "date" in answer["ResponseMetadata"]["HTTPHeaders"]
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        through.put(pk)
    assert [(call.operation, call.status) for call in through.proxy.calls(pk)] == [("PutItem", 200), ("PutItem", 400)]
    assert [call.failed_condition for call in through.proxy.calls(pk)] == [False, True]


@pytest.mark.parametrize(
    ("fault", "heard"),
    [
        (REFUSED, ConnectionClosedError),
        (LOST_REPLY, ConnectionClosedError),
        (HANGING, ReadTimeoutError),
        (THROTTLED, ClientError),
        (BROKEN, ClientError),
    ],
    ids=["refused", "lost reply", "hanging", "throttled", "broken"],
)
def test_a_fault_is_what_it_says(through: Through, pk: str, fault: Fault, heard: type[Exception]) -> None:
    """The caller hears of a failure; DynamoDB did it, or did not."""
    with through.proxy.failing(fault, pk=pk) as failing, pytest.raises(heard):
        through.put(pk)
    assert failing.struck == 1
    assert (through.table.item(pk) is not None) == fault.applied
    assert len(through.proxy.calls(pk)) == 1


def test_a_fault_ends(through: Through, pk: str) -> None:
    """After as many calls as it was planned for."""
    with through.proxy.failing(REFUSED, pk=pk, times=2) as failing:
        for _ in range(2):
            with pytest.raises(ConnectionClosedError):
                through.put(pk)
        through.put(pk)
    assert failing.struck == 2


def test_a_fault_is_for_one_record_and_one_kind_of_call(through: Through, pk: str) -> None:
    """All others pass."""
    with (
        through.proxy.failing(REFUSED, pk=pk, operation="UpdateItem") as of_updates,
        through.proxy.failing(REFUSED, pk=f"not {pk}") as of_another,
        through.proxy.failing(REFUSED, pk=pk, matching=lambda call: call.writes("pk") != pk) as of_no_call,
    ):
        through.put(pk)
    assert (of_updates.struck, of_another.struck, of_no_call.struck) == (0, 0, 0)
