"""Forks, thread pools of any size, event loops one after the other, and ends in the middle of work: all clean."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from idem_middleware import DynamoDBStore, Engine, Options, Request, Response
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.lease import Lease
from idem_middleware.body import RequestBody
from tests.servers.table import REGION, Table
from tests.support.http import RawConnection, RawResponse, request_head
from tests.support.patience import patient
from tests.support.polling import eventually
from tests.support.ports import free_port
from tests.support.probes import INSTALLED_FRAMEWORKS
from tests.support.processes import Process

_WSGI = [name for name in ("flask", "django-wsgi", "drf") if name in INSTALLED_FRAMEWORKS]

pytestmark = pytest.mark.thorough
local = pytest.mark.dynamodb_local
processes = pytest.mark.processes


@pytest.fixture
def table(dynamodb_local: str) -> Iterator[Table]:
    """A table of the test's own."""
    name = f"life-{uuid4().hex}"
    DynamoDBStore(name, region=REGION, endpoint=dynamodb_local).create_table()
    with closing(Table(name, dynamodb_local)) as table:
        yield table


def request(key: str) -> Request:
    headers = (("idempotency-key", key),)
    return Request(method="POST", path="/orders", headers=headers, body=RequestBody.from_bytes(b"{}"))


# --- forks ------------------------------------------------------------------------------------------------------------


def send(port: int, name: str, key: str) -> RawResponse:
    lines = [f'Idempotency-Key: "{key}"', 'X-Plan: {"status": 201, "delay": 0.05}', "Connection: close"]
    with RawConnection(port) as connection:
        connection.send(request_head("POST", f"/probe/{name}", *lines, length=0))
        return connection.read_response()


@contextmanager
def preloaded(framework: str, store: str, log: Path, threads: int) -> Iterator[tuple[Process, int]]:
    port = free_port()
    arguments = (framework, str(port), store, str(log), str(threads))
    with Process.module("tests.chaos.preloaded", *arguments) as process:
        process.wait_for_line("ready ")
        yield process, port


def sockets(pid: int) -> set[str]:
    """The sockets of a process that are connected to somebody."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    connected = {f"socket:[{fields[9]}]" for fields in lines if fields[3] == "01"}
    return connected & {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}  # noqa: PTH115


@processes
@local
@pytest.mark.parametrize("threads", [1, 64])
@pytest.mark.parametrize("framework", _WSGI[:1])
@pytest.mark.parametrize("transport", ["boto3", "lean"])
def test_workers_that_are_forked_from_a_used_application_have_connections_of_their_own(
    framework: str, transport: str, threads: int, dynamodb_local: str, table: Table, tmp_path: Path
) -> None:
    """Gunicorn with --preload, whose master has answered requests already; with one thread and with many."""
    store = f"dynamodb://{table.name}?region={REGION}&endpoint={dynamodb_local}&transport={transport}"
    log = tmp_path / "runs.log"
    log.touch()
    with preloaded(framework, store, log, threads) as (process, port):
        keys = [str(uuid4()) for _ in range(20)]
        with ThreadPoolExecutor(8) as pool:
            first_answers, replays = (list(pool.map(lambda key: send(port, "forked", key), keys)) for _ in range(2))
        assert {answer.status for answer in (*first_answers, *replays)} == {201}
        assert all(answer.all("idempotent-replayed") == ["true"] for answer in replays)
        ran = [line for line in log.read_text().splitlines() if '"forked"' in line]
        assert len(ran) == len(keys)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        workers = [int(child) for child in children]
        assert len(workers) == 2
        # What the master has open is open in its children too, who must not use it.
        inherited = sockets(process.pid)
        first, second = (sockets(pid) - inherited for pid in workers)
        assert first
        assert second
        assert not first & second
        assert process.stop() == 0
        assert "Traceback" not in process.errors


# --- thread pools -----------------------------------------------------------------------------------------------------


@local
@pytest.mark.parametrize("threads", [1, 64])
def test_an_application_of_any_number_of_threads_gets_all_its_answers(
    threads: int, dynamodb_local: str, table: Table
) -> None:
    """One thread is never kept waiting by what it would have to do itself; many share the connections."""
    engine = Engine(
        DynamoDBStore(table.name, **patient(region=REGION, endpoint=dynamodb_local)), Options(caller="shared")
    )
    ran: list[str] = []

    def work(key: str) -> Response:
        def handler(lease: Lease | None) -> Response:
            ran.append(key)
            return Response(201)

        return engine.run(request(key), handler)

    keys = [f"key-{number % 40}" for number in range(80)]
    with ThreadPoolExecutor(threads) as pool:
        statuses = {answer.status for answer in pool.map(work, keys)}
    assert statuses <= {201, 409}
    assert sorted(ran) == sorted(set(keys))


@local
@pytest.mark.parametrize("threads", [1, 64])
def test_an_event_loop_may_have_one_thread_for_its_store_or_many(
    threads: int, dynamodb_local: str, table: Table
) -> None:
    """With one all calls are made one after the other, and none waits for ever."""
    store = DynamoDBStore(table.name, **patient(region=REGION, endpoint=dynamodb_local, max_pool_connections=threads))
    engine = Engine(store, Options(caller="shared"))
    before = {thread.ident for thread in threading.enumerate()}

    async def handler(lease: AsyncLease | None) -> Response:
        await asyncio.sleep(0.01)
        return Response(201)

    async def main() -> list[Response]:
        return await asyncio.gather(
            *(engine.asynchronous.run(request(f"key-{number}"), handler) for number in range(40))
        )

    assert {answer.status for answer in asyncio.run(main())} == {201}
    ours = [t for t in threading.enumerate() if t.ident not in before and t.name.startswith("idem-store")]
    assert len(ours) <= threads


# --- event loops ------------------------------------------------------------------------------------------------------


@local
@pytest.mark.parametrize("transport", ["boto3", "lean"])
def test_an_event_loop_can_be_replaced_by_another(transport: str, dynamodb_local: str, table: Table) -> None:
    """The second loop has connections of its own, and the first leaves none open, even if it was cut off."""
    store = DynamoDBStore(
        table.name,
        **patient(
            region=REGION,
            endpoint=dynamodb_local,
            transport="lean" if transport == "lean" else "boto3",
        ),
    )
    engine = Engine(store, Options(caller="shared"))
    open_now = [0]

    async def handler(lease: AsyncLease | None) -> Response:
        return Response(201)

    async def forever(lease: AsyncLease | None) -> Response:
        await asyncio.sleep(3600)
        return Response(201)

    async def life(number: int) -> None:
        answers = await asyncio.gather(
            *(engine.asynchronous.run(request(f"key-{number}-{each}"), handler) for each in range(10))
        )
        assert {answer.status for answer in answers} == {201}
        again = await engine.asynchronous.run(request("key-0-0"), handler)
        assert again.header("idempotent-replayed") == "true"
        cut_off = asyncio.create_task(engine.asynchronous.run(request(f"cut-{number}"), forever))
        await asyncio.sleep(0.1)
        assert not cut_off.done()
        open_now[0] = len(sockets(os.getpid()))

    seen = []
    for number in range(4):
        asyncio.run(life(number))
        seen.append(open_now[0])
    assert seen[-1] <= max(seen[:2]) + 2, f"connections in each life: {seen}"


# --- ends -------------------------------------------------------------------------------------------------------------


@processes
@local
@pytest.mark.parametrize("transport", ["boto3", "lean"])
@pytest.mark.parametrize("how", ["leases", "threads", "loop"])
def test_a_process_can_end_while_it_holds_leases(how: str, transport: str, dynamodb_local: str, table: Table) -> None:
    """At once and without any complaint; the leases lapse by themselves, and nobody renews them any more."""
    url = f"dynamodb://{table.name}?region={REGION}&endpoint={dynamodb_local}&transport={transport}"
    with Process.module("tests.chaos.leaving", how, url, environment={"PYTHONWARNINGS": "error"}) as process:
        process.wait_for_line("leaving")
        assert process.wait(within_seconds=15) == 0
        # That its event loop cancelled the work is what is to be said, and all.
        assert [line for line in process.errors.splitlines() if not line.startswith("idempotency abandoned")] == []

    engine = Engine(
        DynamoDBStore(table.name, **patient(region=REGION, endpoint=dynamodb_local)), Options(caller="shared")
    )
    key = {"leases": "held-0", "threads": "daemon", "loop": "loop"}[how]

    def free() -> Response | None:
        answer = engine.run(request(key), lambda lease: Response(201, (), str(lease and lease.attempt).encode()))
        return answer if answer.status == 201 else None

    answer = eventually(free, what="the end of the lease", every_seconds=0.2)
    assert answer.body in (b"1", b"2")
