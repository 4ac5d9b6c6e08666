"""DynamoDB Local, as the tests use it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from tests.support.dynamodb_local import DynamoDBLocal, DynamoDBLocalMissingError, locate
from tests.support.ports import accepts_connections


@pytest.mark.dynamodb_local
def test_one_of_many_conditional_puts_wins(dynamodb_local: str) -> None:
    """That is what nothing but the real program gives, and what everything here rests on."""
    client = boto3.client("dynamodb", endpoint_url=dynamodb_local)
    table = f"t{uuid4().hex}"
    client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 20})
    contenders = 8
    together = threading.Barrier(contenders)

    def put(number: int) -> bool:
        together.wait()
        try:
            client.put_item(
                TableName=table,
                Item={"pk": {"S": "one"}, "owner": {"N": str(number)}},
                ConditionExpression="attribute_not_exists(pk)",
            )
        except client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    with ThreadPoolExecutor(contenders) as threads:
        assert sorted(threads.map(put, range(contenders))) == [False] * (contenders - 1) + [True]


@pytest.mark.dynamodb_local
@pytest.mark.processes
def test_it_stops_with_the_one_who_started_it(dynamodb_local: str) -> None:
    """Nothing is left listening, and the other one, which the tests share, is not touched."""
    with DynamoDBLocal(locate()) as another:
        port = int(another.url.rpartition(":")[2])
        assert accepts_connections(port)

    assert not accepts_connections(port)
    assert accepts_connections(int(dynamodb_local.rpartition(":")[2]))


def test_a_machine_without_it_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the script."""
    monkeypatch.setenv("DYNAMODB_LOCAL_DIR", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}")

    with pytest.raises(DynamoDBLocalMissingError, match=r"python scripts/fetch_dynamodb_local\.py"):
        locate()


def test_a_machine_without_java_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setattr("shutil.which", lambda tool: None)

    with pytest.raises(DynamoDBLocalMissingError, match="needs java"):
        locate()
