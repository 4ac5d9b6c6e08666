"""The support matrix: each server really serves, keeps leases alive, refuses duplicates, and replays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import boto3
import httpx
import pytest

from idem_middleware import DynamoDBStore
from tests.hosts.servers import SERVERS, Server, running, start
from tests.support.polling import eventually
from tests.support.ports import free_port
from tests.support.processes import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.hosts]

moto_server = pytest.importorskip("moto.server", reason="moto's server is not installed")

_RENEWED_TWICE = 3  # the version of a record that was claimed, and renewed two times
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A DynamoDB for all of them."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Table:
    """One test's."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.name = f"keys-{uuid4().hex[:12]}"
        DynamoDBStore(self.name, client=self._client()).create_table()

    def _client(self) -> object:
        return boto3.client(
            "dynamodb",
            region_name="eu-central-1",
            endpoint_url=self._endpoint,
            aws_access_key_id="none",
            aws_secret_access_key="none",
        )

    @property
    def url(self) -> str:
        """For a service."""
        return f"dynamodb://{self.name}?region=eu-central-1&endpoint={self._endpoint}"

    def version(self) -> int:
        """Of its only record."""
        items = self._client().scan(TableName=self.name, ConsistentRead=True)["Items"]  # type: ignore[attr-defined]
        return int(items[0]["version"]["N"]) if items else 0


@pytest.fixture
def table(endpoint: str) -> Table:
    return Table(endpoint)


@pytest.fixture
def environment(table: Table, tmp_path: Path) -> dict[str, str]:
    """What the service finds there."""
    path = os.pathsep.join([str(ROOT / "integrations"), os.environ.get("PYTHONPATH", "")])
    return {**_CREDENTIALS, "IDEM_HOST_FOLDER": str(tmp_path), "IDEM_HOST_STORE": table.url, "PYTHONPATH": path}


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_a_server_runs_once_renews_and_replays(
    server: Server, table: Table, environment: dict[str, str], tmp_path: Path
) -> None:
    """A handler that takes longer than its lease, and duplicates meanwhile and afterwards."""
    if server.missing:
        pytest.skip(f"{server.missing} is not installed")
    with running(server, environment) as port, ThreadPoolExecutor(1) as pool:
        url, headers = f"http://127.0.0.1:{port}/payments", {"Idempotency-Key": uuid4().hex}

        def send() -> httpx.Response:
            return httpx.post(url, headers=headers, content=b"{}", timeout=60)

        first = pool.submit(send)
        try:
            eventually((tmp_path / "runs").exists, what="the handler runs")
            eventually(lambda: table.version() >= _RENEWED_TWICE, what="the lease is renewed")
            duplicate = send()
            assert (duplicate.status_code, duplicate.headers["content-type"]) == (409, "application/problem+json")
            assert int(duplicate.headers["retry-after"]) >= 1
        finally:
            (tmp_path / "go").touch()
        answer, again = first.result(60), send()
        assert (answer.status_code, again.status_code) == (201, 201)
        assert (again.content, again.headers["idempotent-replayed"]) == (answer.content, "true")
        assert (tmp_path / "runs").read_text() == "1\n"


def test_uwsgi_without_threads_is_refused(environment: dict[str, str]) -> None:
    """There the renewals would never run; it says what to set. Newer ones have them by default."""
    server = next(s for s in SERVERS if s.name == "uWSGI, processes")
    if server.missing:
        pytest.skip(f"{server.missing} is not installed")
    with start(Server("its version", (), ("--version",), server.program), 0, environment) as version:
        number = version.wait_for_line("2.", within_seconds=60)
        if tuple(map(int, number.split(".")[:3])) >= (2, 0, 27):
            pytest.skip("this uWSGI enables threads by default")
    command = tuple(part for part in server.command if part != "--enable-threads")
    process = start(Server("uWSGI without threads", (), command, server.program), free_port(), environment)
    with process:
        assert process.wait(within_seconds=60) != 0
        assert "enable-threads" in process.errors


def test_gevent_that_leaves_threads_alone_is_refused(environment: dict[str, str]) -> None:
    """There a green thread would wait for another with the whole process."""
    pytest.importorskip("gevent", reason="gevent is not installed")
    code = "from gevent import monkey; monkey.patch_all(thread=False)\nfrom idem_middleware import Engine\nEngine('memory://')"
    from tests.support.processes import Process  # noqa: PLC0415

    with Process([sys.executable, "-c", code], environment=environment) as process:
        assert process.wait(within_seconds=60) == 1
        assert "gevent has patched sockets but not threads" in process.errors
