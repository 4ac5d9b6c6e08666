"""Clients and pools: when they are made, how they are set, and what forks and threads do to them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import NoRegionError

from idem_middleware.errors import ConfigurationError, StoreMisconfigured, StoreUnavailable
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import Gone
from idem_middleware.stores.dynamodb.client import Boto3Transport, ClientSettings, pinned_config
from idem_middleware.stores.dynamodb.lean.blocking import LeanTransport
from idem_middleware.stores.dynamodb.transport import TransportName
from tests.stores.conftest import OpenStore
from tests.stores.doubles import ScriptedClient, answer
from tests.stores.records import pending, soon
from tests.stores.servers import black_hole, stub_server
from tests.support.processes import ROOT

REGION = "eu-central-1"


def run_python(script: str, *args: str) -> str:
    """Run a script in an interpreter of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    return done.stdout.strip()


HEAVY = """
        import sys
        def heavy():
            names = ("boto3", "botocore", "urllib3", "aiohttp", "orjson", "moto")
            return [name for name in names if name in sys.modules]
"""


def test_boto3_is_not_imported_before_the_first_call() -> None:
    """Importing it takes a tenth of a second and more, which a service on another store need not pay."""
    script = f"""{HEAVY}
        import idem_middleware
        from idem_middleware.stores import DynamoDBStore, MemoryStore, store_from_url
        store = DynamoDBStore()
        store.twin()
        print(heavy())
    """
    assert run_python(script) == "[]"


def test_a_memory_store_imports_no_client() -> None:
    """Neither to be made nor to be used."""
    script = f"""{HEAVY}
        from idem_middleware import Engine
        engine = Engine("memory://")
        engine.run_once("key", None, lambda lease: 1)
        print(heavy())
    """
    assert run_python(script) == "[]"


def test_the_lean_transport_imports_aiohttp_for_event_loops_alone() -> None:
    """A blocking service has no use for it."""
    script = f"""{HEAVY}
        from idem_middleware.stores import DynamoDBStore
        store = DynamoDBStore(region="eu-central-1", endpoint="http://127.0.0.1:1", transport="lean")
        store.twin()
        store._transport.source.line()
        print("aiohttp" in heavy(), "moto" in heavy())
        store.to_async()
        print("aiohttp" in heavy())
    """
    assert run_python(script).split() == ["False", "False", "True"]


def client_of(store: DynamoDBStore) -> Any:
    """The client of boto3 that the store calls."""
    transport = store._transport
    assert isinstance(transport, Boto3Transport)
    return transport.get()


def connections_of(store: DynamoDBStore) -> object:
    """What holds its connections, once it has made a call."""
    transport = store._transport
    return transport._pool if isinstance(transport, LeanTransport) else client_of(store)


def settings(user: Config | None = None) -> Any:
    """What a client is made with; botocore's attributes are known to no type checker."""
    return pinned_config(user, 50)


def test_its_settings_fit_into_a_requests_time() -> None:
    """By default a call may wait for a minute (boto3#2045); ours fails within the deadline, and never retries."""
    config = settings()
    assert config.connect_timeout + config.read_timeout <= DynamoDBStore().deadline_seconds
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}
    assert config.max_pool_connections == 50
    assert config.tcp_keepalive is True


def test_two_tries_fit_into_the_deadline_where_the_reply_was_lost() -> None:
    """The second try is the one that finds out whether the first was applied."""
    store = DynamoDBStore()
    longest_first_pause = 0.05
    assert 2 * settings().read_timeout + longest_first_pause < store.deadline_seconds


def test_a_users_settings_win_over_ours() -> None:
    """Setting by setting."""
    config = settings(Config(read_timeout=9, proxies={"http": "http://proxy"}))
    assert config.read_timeout == 9
    assert config.proxies == {"http": "http://proxy"}
    assert config.connect_timeout < 2


def test_the_client_has_the_settings() -> None:
    """Region, endpoint, pool: what was asked for is what it is made with."""
    store = DynamoDBStore(region=REGION, endpoint="http://127.0.0.1:8000", max_pool_connections=7)
    client = client_of(store)
    assert client.meta.region_name == REGION
    assert client.meta.endpoint_url == "http://127.0.0.1:8000"
    assert client.meta.config.max_pool_connections == 7


def test_the_client_is_made_once() -> None:
    """Every call takes the same one."""
    transport = Boto3Transport(ClientSettings("keys", region=REGION))
    assert transport.get() is transport.get()


def test_a_users_session_makes_the_client() -> None:
    """With its region and its credentials."""
    session = boto3.Session(region_name="ap-south-1")
    assert client_of(DynamoDBStore(session=session)).meta.region_name == "ap-south-1"


def test_without_a_region_it_says_so(monkeypatch: pytest.MonkeyPatch, transport: TransportName) -> None:
    """None is assumed: a store in the wrong region would find no keys, and run everything again."""
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    store = DynamoDBStore("my-keys", transport=transport)
    with pytest.raises(StoreMisconfigured, match=r"my-keys.*region=") as raised:
        store.load("pk", soon(store))
    assert raised.value.code == "NoRegionError"
    assert raised.value.__cause__ is not None


def test_without_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch, transport: TransportName) -> None:
    """An operator's matter, not an outage."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    store = DynamoDBStore(region=REGION, endpoint="http://127.0.0.1:9", transport=transport)
    with pytest.raises(StoreMisconfigured, match="no AWS credentials"):
        store.load("pk", soon(store))


def test_settings_that_would_have_no_effect_are_refused() -> None:
    """A client that is given is used as it is, so a region beside it is a mistake."""
    with pytest.raises(ConfigurationError) as raised:
        DynamoDBStore(client=ScriptedClient(), region=REGION, endpoint="http://127.0.0.1:8000")
    assert len(raised.value.problems) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"transport": "fast"},
        {"transport": "lean", "client": "a client"},
        {"table": "x"},
        {"table": "with space"},
        {"endpoint": "127.0.0.1:8000"},
        {"endpoint": "http://127.0.0.1:port"},
        {"endpoint": "ftp://127.0.0.1"},
        {"deadline_seconds": 0},
        {"max_pool_connections": 0},
    ],
    ids=str,
)
def test_wrong_settings_are_refused_at_once(wrong: dict[str, Any]) -> None:
    """Not with the first request."""
    with pytest.raises(ConfigurationError):
        DynamoDBStore(**wrong)


def test_all_wrong_settings_come_in_one_error() -> None:
    """Nobody wants to find them one by one."""
    with pytest.raises(ConfigurationError) as raised:
        DynamoDBStore("x", endpoint="nowhere", deadline_seconds=-1, max_pool_connections=0)
    assert len(raised.value.problems) == 4


def test_a_table_may_be_named_by_its_arn() -> None:
    """As DynamoDB allows for tables of other accounts."""
    arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/keys"
    assert DynamoDBStore(arn).table == arn


@pytest.mark.parametrize(
    ("config", "is_warned_of"),
    [
        (Config(), True),
        (Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 3}), True),
        (Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1}), False),
    ],
    ids=["defaults", "retries", "pinned"],
)
def test_a_slow_client_of_the_users_is_warned_of(
    caplog: pytest.LogCaptureFixture,
    config: Config,
    is_warned_of: bool,  # noqa: FBT001
) -> None:
    """It is left alone (botocore#1768), but it can hold a request for minutes."""
    client = boto3.client("dynamodb", region_name=REGION, config=config)
    with caplog.at_level(logging.WARNING, logger="idem_middleware"):
        assert client_of(DynamoDBStore(client=client)) is client
    assert ("shorter timeouts" in caplog.text) is is_warned_of


def test_a_twin_has_a_client_of_its_own() -> None:
    """The renewer's connections can't be used up by requests."""
    store = DynamoDBStore(region=REGION)
    twin = store.twin()
    assert client_of(twin) is not client_of(store)
    assert client_of(twin).meta.config.max_pool_connections < 50
    assert (twin.table, twin.clock) == (store.table, store.clock)


def test_a_twin_shares_a_client_that_was_given() -> None:
    """Only who made it could make another."""
    store = DynamoDBStore(client=ScriptedClient())
    assert client_of(store.twin()) is client_of(store)


def test_a_twin_tells_the_same_observers() -> None:
    """Also those that came later."""
    client = ScriptedClient(answer(date=4_100_000_000))
    store = DynamoDBStore(client=client)
    twin = store.twin()
    events: list[object] = []
    store.subscribe(events.append)
    twin.load("pk", soon(twin))
    assert len(events) == 1


class TestThreads:
    """Many threads on one store."""

    def test_fifty_threads_may_make_the_first_call_at_once(self, transport: TransportName) -> None:
        """boto3's default session breaks there (boto3#1592); ours is made once, under a lock."""
        with stub_server() as server, ThreadPoolExecutor(50) as threads:
            store = DynamoDBStore(region=REGION, endpoint=server.url, transport=transport)
            together = Barrier(50)

            def first_call() -> tuple[bool, int]:
                together.wait(timeout=30)
                outcome = store.load("pk", soon(store))
                return isinstance(outcome, Gone), id(connections_of(store))

            outcomes = [future.result() for future in [threads.submit(first_call) for _ in range(50)]]
        assert outcomes == [(True, outcomes[0][1])] * 50

    def test_forty_threads_keep_forty_connections(
        self, transport: TransportName, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A pool of ten reconnects with every call (botocore#619); ours has room for all, and none is thrown away."""
        with stub_server(gather=40) as server, ThreadPoolExecutor(40) as threads:
            patient = Config(read_timeout=30)
            store = DynamoDBStore(region=REGION, endpoint=server.url, client_config=patient, transport=transport)

            def steady_load() -> None:
                for _ in range(10):
                    store.load("pk", soon(store))

            for future in [threads.submit(steady_load) for _ in range(40)]:
                future.result()
            connections = server.connections
        assert connections == 40
        assert "pool is full" not in caplog.text

    def test_an_event_loop_gets_as_many_threads_as_connections(self) -> None:
        """More would only throw connections away."""
        store = DynamoDBStore(max_pool_connections=7)
        assert store.to_async()._transport.threads._max_workers == 7  # type: ignore[attr-defined]


QUICK = Config(connect_timeout=0.1, read_timeout=0.1)


def test_a_black_hole_is_given_up(open_store: OpenStore) -> None:
    """An endpoint that takes connections and never answers costs the deadline, no more."""
    with black_hole() as url:
        store = open_store(endpoint=url, client_config=QUICK)
        with pytest.raises(StoreUnavailable, match="ReadTimeoutError") as raised:
            store.load("pk", store.clock.monotonic() + 0.3)
    assert raised.value.code == "ReadTimeoutError"
    assert raised.value.__cause__ is not None


def test_a_black_hole_that_takes_no_more_is_given_up(open_store: OpenStore) -> None:
    """More than the buffers on the way hold: the request itself can't be sent to its end."""
    with black_hole() as url:
        store = open_store(endpoint=url, client_config=QUICK)
        with pytest.raises(StoreUnavailable) as raised:
            store.put_chunks(pending("pk"), [bytes(16 * 1024 * 1024)], store.clock.monotonic() + 0.3)
    assert raised.value.code in ("ReadTimeoutError", "ConnectTimeoutError", "ConnectionClosedError")


def test_a_closed_port_is_given_up(open_store: OpenStore) -> None:
    """The same where nobody listens."""
    with black_hole() as url:
        pass
    store = open_store(endpoint=url)
    with pytest.raises(StoreUnavailable, match="EndpointConnectionError"):
        store.load("pk", store.clock.monotonic() + 0.3)


FORK = """
    import asyncio, os, sys
    from idem_middleware.stores import DynamoDBStore
    from idem_middleware.stores.base import Gone

    store = DynamoDBStore(region="eu-central-1", endpoint=sys.argv[1], transport=sys.argv[2])
    asynchronous = store.to_async()
    transport = store._transport

    def works():
        direct = store.load("pk", store.clock.monotonic() + 30)
        return (direct, asyncio.run(asynchronous.load("pk", store.clock.monotonic() + 30))) == (Gone(), Gone())

    def connections():
        return transport._client if sys.argv[2] == "boto3" else transport._pool

    assert works()
    before = connections()
    held = [transport._lock]
    if sys.argv[2] == "lean":
        held += [transport.source._lock, asynchronous._transport._lock]
    for lock in held:
        lock.__enter__()                 # as if another thread were making a client at this moment
    child = os.fork()
    if child == 0:
        os._exit(0 if works() and connections() is not before else 1)
    for lock in held:
        lock.__exit__(None, None, None)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), works(), connections() is before)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_connects_for_itself(transport: TransportName) -> None:
    """Pre-forking servers make children at any moment; these share no connection, thread or lock with their parent."""
    with stub_server() as server:
        assert run_python(FORK, server.url, transport) == "0 True True"


FORK_ON_A_LOOP = """
    import asyncio, os, sys
    from idem_middleware.stores import DynamoDBStore
    from idem_middleware.stores.base import Gone

    store = DynamoDBStore(region="eu-central-1", endpoint=sys.argv[1], transport="lean").to_async()

    async def works():
        return await store.load("pk", store.clock.monotonic() + 30) == Gone()

    async def parent():
        assert await works()
        child = os.fork()                # with a connection of this loop open
        if child == 0:
            asyncio._set_running_loop(None)
            os._exit(0 if asyncio.new_event_loop().run_until_complete(works()) else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), await works())

    asyncio.run(parent())
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_from_a_loop_connects_for_itself() -> None:
    """The parent's loop goes on with its own connection."""
    with stub_server() as server:
        assert run_python(FORK_ON_A_LOOP, server.url) == "0 True"
        assert server.connections == 2


class TestClientsThatCanNotBeMade:
    """Whatever is wrong shows with the first call, and as what it is."""

    def store(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> DynamoDBStore:
        """A store whose session makes no client."""
        store = DynamoDBStore(region=REGION)

        def fail(*_: object) -> object:
            raise error

        monkeypatch.setattr(ClientSettings, "new_client", fail)
        return store

    def test_a_bug_comes_out_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no outage, and nobody may take it for one."""
        store = self.store(monkeypatch, ZeroDivisionError("a bug"))
        with pytest.raises(ZeroDivisionError, match="a bug"):
            store.open()

    def test_a_setting_that_boto3_does_not_take_is_an_operator_s_mistake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Under boto3's name for it."""
        store = self.store(monkeypatch, NoRegionError())
        with pytest.raises(StoreMisconfigured) as raised:
            store.open()
        assert raised.value.code == "NoRegionError"

    def test_what_needs_no_opening_is_not_opened(self) -> None:
        """The lean transport is ready as it is."""
        DynamoDBStore(region=REGION, endpoint="http://127.0.0.1:1", transport="lean").open()


def test_how_long_a_call_may_take_is_known_before_there_is_a_client() -> None:
    """Each try may take its two timeouts; a client that is given says its own."""
    config = settings()
    assert DynamoDBStore().slowest_call_seconds == config.connect_timeout + config.read_timeout
    patient_config = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 3})
    assert DynamoDBStore(client_config=patient_config).slowest_call_seconds == 9.0
    given = boto3.client("dynamodb", region_name=REGION, config=patient_config)
    assert DynamoDBStore(client=given).slowest_call_seconds == 9.0


@pytest.mark.parametrize("endpoint", ["http://[::1", "https://", "http://127.0.0.1:99999", "http://127.0.0.1:0", 8000])
def test_what_is_no_endpoint_is_refused_at_once(endpoint: Any) -> None:
    """Whatever is wrong with it."""
    with pytest.raises(ConfigurationError, match="endpoint must be"):
        DynamoDBStore(endpoint=endpoint)


def test_a_stub_of_a_client_has_no_audit_problems_without_an_audit_table() -> None:
    """There is nothing to look at, and no call is made for it."""
    client = ScriptedClient()
    assert DynamoDBStore(client=client).audit_problems() == []
    assert client.calls == []
