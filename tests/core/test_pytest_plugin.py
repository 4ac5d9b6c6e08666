"""The plugin, in a pytest of its own as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from idem_middleware.testing.dynamodb_local import DynamoDBLocal, NotAvailable

USERS_TESTS = """
import os
import pytest
from idem_middleware import DynamoDBStore, Engine, EventKind, StoreUnavailable
from idem_middleware.testing import Fault
from idem_middleware.testing.contract import StoreContract


def test_an_engine(idempotency_engine, idempotency_events, idempotency_clock):
    assert [idempotency_engine.run_once("k", None, lambda lease: 1) for _ in range(2)] == [1, 1]
    assert [event.kind for event in idempotency_events] == [EventKind.CLAIMED, EventKind.COMPLETED, EventKind.REPLAYED]
    idempotency_clock.advance(86401)
    assert idempotency_engine.run_once("k", None, lambda lease: 2) == 2


def test_a_store_that_fails(idempotency_engine, idempotency_store):
    idempotency_store.fail(Fault.REFUSED)
    with pytest.raises(Exception, match="not carried out"):
        idempotency_engine.run_once("k", None, lambda lease: 1)


def test_moto(idempotency_moto_store):
    engine = Engine(idempotency_moto_store)
    assert engine.run_once("k", None, lambda lease: 1) == 1
    assert os.environ["AWS_ACCESS_KEY_ID"] != "real"


def test_local(idempotency_dynamodb_store):
    assert Engine(idempotency_dynamodb_store).run_once("k", None, lambda lease: 1) == 1


class TestTheContract(StoreContract):
    @pytest.fixture
    def store(self, idempotency_moto_store):
        return idempotency_moto_store

    pytestmark = pytest.mark.skipif("CONTRACT" not in os.environ, reason="not asked for")
"""


def run(folder: Path, *arguments: str, **environment: str) -> str:
    (folder / "test_of_a_user.py").write_text(USERS_TESTS)
    ran = subprocess.run(
        # In an installed package the entry point has done it already; the name is the same.
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "idem_middleware.testing.plugin",
            "-p",
            "no:cacheprovider",
            "-q",
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_every_fixture_gives_what_it_says(tmp_path: Path) -> None:
    """Without DynamoDB Local, its test is skipped and told how to get one."""
    told = run(tmp_path, "-rs", "-k", "not Contract", DYNAMODB_LOCAL_DIR=str(tmp_path), AWS_ACCESS_KEY_ID="real")
    assert "3 passed, 1 skipped" in told
    assert "IDEMPOTENCY_DYNAMODB_LOCAL_URL" in told


@pytest.mark.dynamodb_local
def test_a_running_dynamodb_local_is_used(tmp_path: Path, dynamodb_local: str) -> None:
    """By its URL; and a store's author runs the contract."""
    told = run(
        tmp_path, "-k", "local or keys_are_independent", IDEMPOTENCY_DYNAMODB_LOCAL_URL=dynamodb_local, CONTRACT="1"
    )
    assert "2 passed" in told


def test_the_plugin_costs_nothing_until_it_is_asked(tmp_path: Path) -> None:
    """It is in every pytest run of whoever installs the package."""
    code = (
        "import sys, idem_middleware.testing.plugin;"
        "print([name for name in ('boto3', 'moto', 'idem_middleware.blocking') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "[]"


def test_a_machine_without_dynamodb_local_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container, or a folder; and java."""
    monkeypatch.setenv("DYNAMODB_LOCAL_DIR", str(tmp_path))
    with pytest.raises(NotAvailable, match="docker run"):
        DynamoDBLocal.find()
    (tmp_path / "DynamoDBLocal.jar").touch()
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(NotAvailable, match="java"):
        DynamoDBLocal.find()


@pytest.mark.dynamodb_local
@pytest.mark.usefixtures("dynamodb_local")  # where that one is missing, java is, too
def test_a_broken_one_says_what_it_wrote(tmp_path: Path) -> None:
    """Rather than hanging."""
    (tmp_path / "DynamoDBLocal.jar").write_bytes(b"no jar")
    with pytest.raises(NotAvailable, match="jarfile"), DynamoDBLocal(tmp_path):
        pass
