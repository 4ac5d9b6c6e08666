"""Everything that the lean transport takes from botocore: endpoint, credentials, timeouts, TLS, proxies, and mocks."""

from __future__ import annotations

import ssl
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError, InvalidProxiesConfigError, SSLError
from botocore.session import Session
from moto import mock_aws
from urllib3.exceptions import InsecureRequestWarning

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import Found, Gone
from idem_middleware.stores.dynamodb.aio import AsyncDynamoDBStore, ThreadedTransport
from idem_middleware.stores.dynamodb.client import ClientSettings
from idem_middleware.stores.dynamodb.lean import blocking as lean
from idem_middleware.stores.dynamodb.lean import source, wire
from idem_middleware.stores.dynamodb.lean.blocking import _manager, _proxy_context
from idem_middleware.stores.dynamodb.lean.network import tls_context
from idem_middleware.stores.dynamodb.lean.source import Line, Source
from tests.stores.certificates import make_authority
from tests.stores.conftest import OpenStore
from tests.stores.records import new_pk, pending, soon
from tests.stores.servers import HANG_UP, Reply, scripted_server
from tests.support.processes import ROOT

REGION = "eu-central-1"


def settings_of(*, config: dict[str, Any] | None = None, **settings: Any) -> ClientSettings:
    """What a user said, with the arguments of a Config."""
    chosen = None if config is None else Config(**config)
    return ClientSettings("keys", config=chosen, **{"region": REGION, **settings})


def line_of(**settings: Any) -> Line:
    """What is found out."""
    return Source(settings_of(**settings), CorrectedClock()).line()


class TestEndpoint:
    """Where requests go, and for whom they are signed."""

    @pytest.mark.parametrize(
        ("settings", "environment"),
        [
            ({}, {}),
            ({"region": "cn-north-1"}, {}),
            ({"region": "us-gov-west-1"}, {}),
            ({"endpoint": "http://127.0.0.1:8000"}, {}),
            ({"endpoint": "http://127.0.0.1:8000/prefix"}, {}),
            ({"config": {"use_fips_endpoint": True}}, {}),
            ({"config": {"use_dualstack_endpoint": True}}, {}),
            ({"region": None}, {"AWS_DEFAULT_REGION": "ap-south-1"}),
            ({}, {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8001"}),
            ({}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:8002"}),
            ({}, {"AWS_ACCOUNT_ID": "123456789012"}),
        ],
        ids=str,
    )
    def test_it_is_the_one_of_boto3s_client(
        self, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], environment: dict[str, str]
    ) -> None:
        """Whatever decides about it: the request that the client itself would send is asked."""
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        sent: list[Any] = []

        def answer(request: Any, **_: object) -> None:
            sent.append(request)
            raise RuntimeError("not to be sent")

        chosen = settings_of(**settings)
        client = chosen.new_client(chosen.new_session())
        client.meta.events.register("before-send.dynamodb", answer)
        with pytest.raises(RuntimeError):
            client.get_item(TableName="keys", Key={"pk": {"S": "1"}})
        line = line_of(**settings)
        assert line.network.url == sent[0].url
        prepared = line.prepare("get_item", {}, line.credentials.get_frozen_credentials())
        scope = prepared.headers["Authorization"].split("/", 2)[2].split(",")[0]
        assert f"/{scope}," in str(sent[0].headers["Authorization"])
        assert prepared.headers["User-Agent"] == sent[0].headers["User-Agent"].decode()

    def test_a_table_of_another_account_is_named_by_its_arn(self) -> None:
        """As with boto3."""
        arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/keys"
        with scripted_server() as server:
            store = DynamoDBStore(arn, region=REGION, endpoint=server.url, transport="lean")
            assert store.load("pk", soon(store)) == Gone()

    def test_requests_that_are_not_signed_are_refused(self) -> None:
        """It would sign them all the same."""
        store = DynamoDBStore(region=REGION, transport="lean", client_config=Config(signature_version=UNSIGNED))
        with pytest.raises(StoreMisconfigured, match="InvalidConfigError"):
            store.load("pk", soon(store))


class TestNetwork:
    """How they get there: what boto3's client would have, read from the one that it makes."""

    @pytest.mark.parametrize(
        ("settings", "environment"),
        [
            ({}, {}),
            ({"max_pool_connections": 7}, {}),
            (
                {
                    "config": {
                        "connect_timeout": 3,
                        "read_timeout": 4,
                        "max_pool_connections": 5,
                        "tcp_keepalive": False,
                    }
                },
                {},
            ),
            ({"config": {"client_cert": ("cert", "key")}}, {}),
            ({"config": {"proxies": {"https": "proxy.example:3128"}}}, {}),
            ({"config": {"proxies": {"https": "http://me:p%40ss@proxy.example:3128"}}}, {}),
            ({"config": {"proxies": {}}}, {"HTTPS_PROXY": "http://proxy.example:3128"}),
            ({"config": {"proxies": {"https": "https://p"}, "proxies_config": {"proxy_ca_bundle": "x.pem"}}}, {}),
            ({}, {"HTTPS_PROXY": "http://proxy.example:3128"}),
            ({}, {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "amazonaws.com"}),
            ({"endpoint": "http://127.0.0.1:8000"}, {"HTTPS_PROXY": "http://proxy.example:3128"}),
            ({}, {"AWS_CA_BUNDLE": "/bundle.pem"}),
            ({}, {"REQUESTS_CA_BUNDLE": "/requests.pem"}),
            ({}, {"AWS_CA_BUNDLE": "/bundle.pem", "REQUESTS_CA_BUNDLE": "/requests.pem"}),
        ],
        ids=str,
    )
    def test_it_is_set_as_boto3s_client(
        self, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], environment: dict[str, str]
    ) -> None:
        """Timeouts, pool, certificates, proxies: by code, by environment, in botocore's order."""
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        chosen = settings_of(**settings)
        session: Any = chosen.new_client(chosen.new_session())._endpoint.http_session
        network = line_of(**settings).network
        assert network.verify == session._verify
        assert network.client_cert == ((session._cert_file, session._key_file) if session._cert_file else None)
        assert (network.connect_seconds, network.read_seconds) == (
            session._timeout.connect_timeout,
            session._timeout.read_timeout,
        )
        assert network.max_connections == session._max_pool_connections
        assert network.socket_options == session._socket_options
        proxy_url = session._proxy_config.proxy_url_for(network.url)
        assert network.proxy_url == proxy_url
        assert network.proxy_headers == (session._proxy_config.proxy_headers_for(proxy_url) if proxy_url else {})
        assert network.proxy_settings == session._proxy_config.settings

    def test_a_bundle_of_the_configuration_file_counts(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """As with boto3."""
        (tmp_path / "config").write_text("[default]\nca_bundle = /mine.pem\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        assert line_of().network.verify == "/mine.pem"

    def test_the_right_certificate_is_trusted(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """That of AWS_CA_BUNDLE."""
        bundle, tls = make_authority(tmp_path)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        with scripted_server(tls=tls) as server:
            store = open_store(endpoint=f"https://127.0.0.1:{server.port}")
            assert store.load("pk", soon(store)) == Gone()

    @pytest.mark.parametrize("case", ["unknown authority", "another host"])
    def test_a_wrong_certificate_is_not(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
    ) -> None:
        """Nobody in between gets a request."""
        bundle, tls = make_authority(tmp_path, "dynamodb.example" if case == "another host" else "127.0.0.1")
        if case == "another host":
            monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        with scripted_server(tls=tls) as server:
            store = open_store(endpoint=f"https://127.0.0.1:{server.port}")
            with pytest.raises(StoreUnavailable) as raised:
                store.load("pk", store.clock.monotonic() - 1)
            assert server.seen == []
        assert raised.value.code == "SSLError"

    def test_a_bundle_that_is_not_there_is_an_operators_matter(
        self, open_lean_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It will not be there the next time either."""
        monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere.pem")
        store = open_lean_store()
        with pytest.raises(StoreMisconfigured, match="SSLError"):
            store.load("pk", soon(store))

    def test_a_proxy_gets_the_whole_url_of_a_plain_request(self, open_store: OpenStore) -> None:
        """With its own user and password."""
        with scripted_server() as proxy:
            proxies = {"http": f"http://me:p%40ss@127.0.0.1:{proxy.port}"}
            store = open_store(endpoint="http://dynamodb.example:8000", client_config=Config(proxies=proxies))
            assert store.load("pk", soon(store)) == Gone()
            (seen,) = proxy.seen
        assert seen.target == "http://dynamodb.example:8000/"
        assert seen.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
        assert seen.headers["host"] == "dynamodb.example:8000"

    def test_a_proxy_is_asked_for_a_tunnel_to_a_secure_endpoint(self, open_store: OpenStore) -> None:
        """It sees neither the request nor its signature; here it refuses, and its password is told nobody."""
        with scripted_server(Reply(407, b"")) as proxy:
            proxies = {"https": f"http://me:p%40ss@127.0.0.1:{proxy.port}"}
            store = open_store(client_config=Config(proxies=proxies))
            with pytest.raises(StoreUnavailable) as raised:
                store.load("pk", store.clock.monotonic() - 1)
            (seen,) = proxy.seen
        assert seen.target == "dynamodb.eu-central-1.amazonaws.com:443"
        assert seen.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
        assert "authorization" not in seen.headers
        assert raised.value.code == "ProxyConnectionError"
        assert "p%40ss" not in str(raised.value.__cause__)

    def test_a_proxy_with_certificates_of_its_own_is_left_to_threads(self) -> None:
        """Aiohttp has no setting for it."""
        config = Config(proxies={"https": "https://p"}, proxies_config={"proxy_ca_bundle": "x.pem"})
        store = DynamoDBStore(transport="lean", client_config=config).to_async()
        assert isinstance(store, AsyncDynamoDBStore)
        assert isinstance(store._transport, ThreadedTransport)


class Vendor:
    """Gives out credentials that end, as a role's do."""

    def __init__(self, *lifetimes: float, before: Callable[[], object] = lambda: None) -> None:
        self._lifetimes = list(lifetimes)
        self._before = before
        self.asked = 0

    def __call__(self) -> dict[str, Any]:
        self._before()
        self.asked += 1
        lifetime = self._lifetimes.pop(0) if len(self._lifetimes) > 1 else self._lifetimes[0]
        return {
            "access_key": f"KEY{self.asked}",
            "secret_key": f"secret{self.asked}",
            "token": f"token{self.asked}",
            "expiry_time": (datetime.now(UTC) + timedelta(seconds=lifetime)).isoformat(),
        }

    def session(self) -> boto3.Session:
        """A session with these."""
        session: Any = Session()
        session._credentials = RefreshableCredentials.create_from_metadata(self(), self, "tests")
        return boto3.Session(botocore_session=session, region_name=REGION)


def refuse() -> None:
    """As a metadata service that is down."""
    raise CredentialRetrievalError(provider="tests", error_msg="down")


class TestCredentials:
    """Keys that end, and are renewed before they do."""

    HOUR = 3600.0
    ADVISED = 700.0
    """Seconds left at which botocore looks for new keys, but would go on with the old."""
    LAST = 30.0

    def test_new_keys_sign_the_next_request(self, open_store: OpenStore) -> None:
        """With their token, and a signing key of their own."""
        vendor = Vendor(self.LAST, self.HOUR)
        with scripted_server() as server:
            store = open_store(endpoint=server.url, session=vendor.session())
            for _ in range(3):
                store.load("pk", soon(store))
            seen = [
                (request.headers["x-amz-security-token"], request.headers["authorization"]) for request in server.seen
            ]
        assert [token for token, _ in seen] == ["token2"] * 3
        assert all("Credential=KEY2/" in authorization for _, authorization in seen)
        assert vendor.asked == 2

    def test_keys_that_are_good_for_long_are_kept(self, open_store: OpenStore) -> None:
        """Nobody is asked for each request."""
        vendor = Vendor(self.HOUR)
        with scripted_server() as server:
            store = open_store(endpoint=server.url, session=vendor.session())
            for _ in range(3):
                store.load("pk", soon(store))
        assert vendor.asked == 1

    def test_a_vendor_that_is_down_is_waited_for(self, open_store: OpenStore) -> None:
        """It is no mistake of the operator's: a moment later it may answer."""
        failures = [refuse, refuse]
        vendor = Vendor(self.LAST, self.HOUR)
        session = vendor.session()
        vendor._before = lambda: failures.pop()() if failures else None
        with scripted_server() as server:
            store = open_store(endpoint=server.url, session=session)
            assert store.load("pk", soon(store)) == Gone()
            assert server.seen[-1].headers["x-amz-security-token"] == "token2"

    def test_a_vendor_that_stays_down_is_an_outage(self, open_store: OpenStore) -> None:
        """By botocore's name."""
        vendor = Vendor(self.LAST)
        session = vendor.session()
        vendor._before = refuse
        with scripted_server() as server:
            store = open_store(endpoint=server.url, session=session)
            with pytest.raises(StoreUnavailable) as raised:
                store.load("pk", store.clock.monotonic() - 1)
            assert server.seen == []
        assert raised.value.code == "CredentialRetrievalError"
        assert not isinstance(raised.value, StoreMisconfigured)

    def test_keys_that_are_due_but_good_go_on_while_the_vendor_is_down(self, open_store: OpenStore) -> None:
        """Nobody's request fails for it."""
        vendor = Vendor(self.ADVISED)
        session = vendor.session()
        vendor._before = refuse
        with scripted_server() as server:
            store = open_store(endpoint=server.url, session=session)
            for _ in range(3):
                assert store.load("pk", soon(store)) == Gone()
            assert {request.headers["x-amz-security-token"] for request in server.seen} == {"token1"}

    def test_threads_share_a_renewal(self) -> None:
        """As they do with boto3."""
        vendor = Vendor(self.LAST, self.HOUR)
        with scripted_server() as server:
            store = DynamoDBStore(endpoint=server.url, session=vendor.session(), transport="lean")
            together = Barrier(8)

            def call() -> None:
                together.wait(timeout=30)
                store.load("pk", soon(store))

            threads = [Thread(target=call) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert vendor.asked == 2


@pytest.fixture
def no_way_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every request that would leave for the network ends here."""
    with scripted_server(HANG_UP) as server:
        monkeypatch.setenv("HTTPS_PROXY", server.url)
        yield server.seen


class TestMocks:
    """moto's `mock_aws` answers instead of AWS; never does a test's request reach the network."""

    def test_a_mock_is_honoured(self, open_lean_store: OpenStore, no_way_out: list[Any]) -> None:
        """By both."""
        with mock_aws():
            DynamoDBStore("keys", region=REGION).create_table()
            store = open_lean_store()
            claim = pending(new_pk())
            store.create(claim, soon(store))
            assert store.create(claim, soon(store)) == Found(claim)
            client: Any = boto3.client("dynamodb", region_name=REGION)
            assert client.get_item(TableName="keys", Key={"pk": {"S": claim.pk}})["Item"]["version"] == {"N": "1"}
        assert no_way_out == []

    def test_a_mock_is_honoured_by_what_was_made_before_it(
        self, open_lean_store: OpenStore, no_way_out: list[Any]
    ) -> None:
        """Applications make their store when they are imported, tests begin later."""
        store = open_lean_store()
        with pytest.raises(StoreUnavailable):
            store.load("pk", store.clock.monotonic() - 1)
        before = len(no_way_out)
        with mock_aws():
            DynamoDBStore("keys", region=REGION).create_table()
            assert store.load("pk", soon(store)) == Gone()
        assert len(no_way_out) == before

    def test_after_a_mock_the_network_is_back(self, open_lean_store: OpenStore, no_way_out: list[Any]) -> None:
        """It ends where its block ends."""
        store = open_lean_store()
        with mock_aws():
            DynamoDBStore("keys", region=REGION).create_table()
            store.load("pk", soon(store))
        with pytest.raises(StoreUnavailable):
            store.load("pk", store.clock.monotonic() - 1)
        assert len(no_way_out) == 1

    def test_an_error_of_the_mock_is_one(self, open_lean_store: OpenStore) -> None:
        """With DynamoDB's code."""
        with mock_aws():
            store = open_lean_store()
            with pytest.raises(StoreMisconfigured) as raised:
                store.load("pk", soon(store))
        assert raised.value.code == "ResourceNotFoundException"

    @pytest.mark.processes
    def test_a_mock_that_is_imported_last_is_honoured(self) -> None:
        """boto3's own clients would miss it: their session began without it."""
        script = """
            import os, boto3
            os.environ.update(AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", HTTPS_PROXY="http://127.0.0.1:9")
            from idem_middleware.stores import DynamoDBStore
            store = DynamoDBStore(region="eu-central-1", transport="lean", session=boto3.Session())
            store._transport.source.line()
            from moto import mock_aws
            with mock_aws():
                store.create_table()
                print(store.load("pk", store.clock.monotonic() + 30))
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
        )
        assert done.stdout.strip() == "Gone()"


class TestWithoutItsExtras:
    """Neither aiohttp nor orjson is needed."""

    def test_loops_are_served_by_threads_where_aiohttp_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As with boto3."""
        monkeypatch.setitem(sys.modules, "idem_middleware.stores.dynamodb.lean.aio", None)
        store = DynamoDBStore(transport="lean", region=REGION).to_async()
        assert isinstance(store, AsyncDynamoDBStore)
        assert isinstance(store._transport, ThreadedTransport)

    def test_json_is_python_s_own_where_orjson_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same documents."""
        monkeypatch.setitem(sys.modules, "orjson", None)
        encode, decode = wire._best()
        assert encode is wire._encode_by_json
        assert decode(encode({"TableName": "caf\xe9"})) == {"TableName": "caf\xe9"}


class TestCertificates:
    """Which are shown, and which are looked at."""

    def test_an_endpoint_need_not_prove_itself_where_that_is_said(self, tmp_path: Path) -> None:
        """`verify=False`, for a stand-in in a closed network."""
        _, tls = make_authority(tmp_path, "dynamodb.example")
        with scripted_server(tls=tls) as server:
            network = replace(line_of(endpoint=f"https://127.0.0.1:{server.port}").network, verify=False)
            manager = _manager(network)
            with pytest.warns(InsecureRequestWarning):  # as with boto3
                assert manager.request("POST", network.url, retries=False).status == 200
            manager.clear()

    @pytest.mark.parametrize("files", ["one", "two"])
    def test_a_client_s_certificate_is_shown(self, tmp_path: Path, files: str) -> None:
        """From one file with its key, or from two."""
        bundle, tls = make_authority(tmp_path)
        key = bundle.with_suffix(".key")
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(bundle)
        shown: str | tuple[str, str] = (str(bundle), str(key))
        if files == "one":
            both = tmp_path / "both.pem"
            both.write_bytes(bundle.read_bytes() + key.read_bytes())
            shown = str(both)
        with scripted_server(tls=tls) as server:
            found = line_of(endpoint=f"https://127.0.0.1:{server.port}").network
            network = replace(found, verify=str(bundle), client_cert=shown)
            manager = _manager(network)
            assert manager.request("POST", network.url, retries=False).status == 200
            manager.clear()

    def test_a_client_s_certificate_that_is_not_there_is_told(self) -> None:
        """As one that could not be read."""
        found = line_of().network
        with pytest.raises(SSLError):
            tls_context(replace(found, client_cert="/nowhere.pem"), check_hostname=True)

    def test_a_proxy_may_have_certificates_of_its_own(self, tmp_path: Path) -> None:
        """It is told which to trust and which to show, apart from the endpoint's."""
        bundle, _ = make_authority(tmp_path)
        key = bundle.with_suffix(".key")
        both = tmp_path / "both.pem"
        both.write_bytes(bundle.read_bytes() + key.read_bytes())
        found = line_of().network

        def context_of(**settings: Any) -> ssl.SSLContext | None:
            return _proxy_context(replace(found, proxy_url="https://p", proxy_settings=settings))

        assert context_of() is None
        trusting = context_of(proxy_ca_bundle=str(bundle))
        assert trusting is not None
        assert trusting.check_hostname
        assert len(trusting.get_ca_certs()) == 1
        for cert in (str(both), (str(bundle), str(key))):
            showing = context_of(proxy_client_cert=cert)
            assert showing is not None
            assert showing.get_ca_certs() == []
        for wrong in ({"proxy_ca_bundle": "/nowhere.pem"}, {"proxy_client_cert": "/nowhere.pem"}):
            with pytest.raises(InvalidProxiesConfigError):
                context_of(**wrong)


class TestPoolsThatCanNotBeMade:
    """As clients that can't be."""

    def test_a_bug_comes_out_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no outage."""

        def fail(_: object) -> object:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(lean, "_manager", fail)
        store = DynamoDBStore(region=REGION, endpoint="http://127.0.0.1:1", transport="lean")
        with pytest.raises(ZeroDivisionError, match="a bug"):
            store.load("pk", soon(store))

    @pytest.mark.parametrize("handlers", [[], [lambda **_: None]], ids=["nobody", "somebody"])
    def test_a_call_that_nobody_stands_in_for_is_sent(self, monkeypatch: pytest.MonkeyPatch, handlers: Any) -> None:
        """A mock answers what it knows."""
        monkeypatch.setattr(source, "interceptors", lambda: handlers)
        with scripted_server() as server:
            store = DynamoDBStore(region=REGION, endpoint=server.url, transport="lean")
            assert store.load("pk", soon(store)) == Gone()
            assert len(server.seen) == 1
