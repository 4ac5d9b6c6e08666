"""A way to run commands, and tables to run them on."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result
from moto import mock_aws

from idem_middleware.cli.root import root
from idem_middleware.stores import DynamoDBStore

Run = Callable[..., Result]
RunJson = Callable[..., Any]


@pytest.fixture
def run() -> Run:
    """Run the command line with these arguments; what it raises is a bug and comes out."""

    def invoke(*arguments: str, answer: str | None = None, status: int = 0) -> Result:
        result = CliRunner().invoke(root, list(arguments), input=answer, env={"COLUMNS": "120"}, catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return invoke


@pytest.fixture
def run_json(run: Run) -> RunJson:
    """The same with --json, read."""

    def invoke(*arguments: str, status: int = 0) -> Any:
        return json.loads(run(*arguments, "--json", status=status).stdout)

    return invoke


@pytest.fixture(scope="session")
def boto3_session() -> boto3.Session:
    """One for all tests here: reading DynamoDB's model anew for each client takes most of a short test."""
    return boto3.Session()


@pytest.fixture(autouse=True)
def one_session(boto3_session: boto3.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store takes it. These tests are single-threaded, so they may share it."""
    monkeypatch.setattr(boto3, "Session", lambda: boto3_session)


@pytest.fixture
def moto_table() -> Iterator[str]:
    """The URL of a table on moto that is not there yet."""
    with mock_aws():
        yield f"dynamodb://keys_{secrets.token_hex(4)}?region=eu-central-1"


@pytest.fixture
def local_table(dynamodb_local: str) -> str:
    """The URL of a new table on DynamoDB Local."""
    name = f"keys_{secrets.token_hex(4)}"
    DynamoDBStore(name, region="eu-central-1", endpoint=dynamodb_local).create_table()
    return f"dynamodb://{name}?region=eu-central-1&endpoint={dynamodb_local}"
