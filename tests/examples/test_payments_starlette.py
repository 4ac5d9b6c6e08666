from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from example_apps.demo.provider import ProviderServer

with warnings.catch_warnings():
    # Starlette's newest would like another client below its own; the older ones know only this one.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

ANNA, BOB = ({"Authorization": f"Bearer key-of-{name}"} for name in ("anna", "bob"))
ORDER = {"amount": 1200, "currency": "eur"}

NewServer = Callable[[], TestClient]


@pytest.fixture
def new_server(provider: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewServer]:
    """Start the app anew, as a new process would, with nothing remembered."""
    monkeypatch.setenv("PAYMENTS_PROVIDER_URL", provider.url)
    monkeypatch.delenv("IDEMPOTENCY_STORE", raising=False)
    with ExitStack() as stack:

        def start() -> TestClient:
            monkeypatch.delitem(sys.modules, "example_apps.payments_starlette.app", raising=False)
            module = importlib.import_module("example_apps.payments_starlette.app")
            return stack.enter_context(TestClient(module.app))

        yield start


@pytest.fixture
def client(new_server: NewServer) -> TestClient:
    """A client of one server."""
    return new_server()


def charge(
    client: TestClient, key: str, account: dict[str, str] = ANNA, order: dict[str, object] | None = None
) -> httpx.Response:
    """Ask for a charge."""
    headers = {**account, "Idempotency-Key": key}
    answer: httpx.Response = client.post("/charges", json=order or ORDER, headers=headers)
    return answer


def real_charges(provider: ProviderServer) -> int:
    """How often money was taken, from whomever."""
    return int(str(provider.provider.control()["charges"]))


def test_a_retry_gets_the_first_answer_and_charges_nothing(client: TestClient, provider: ProviderServer) -> None:
    first, retry = charge(client, "k1"), charge(client, "k1")

    assert first.status_code == retry.status_code == 201
    assert first.content == retry.content
    assert retry.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert real_charges(provider) == 1


def test_another_order_under_the_same_key_is_refused(client: TestClient, provider: ProviderServer) -> None:
    charge(client, "k1")

    assert charge(client, "k1", order={**ORDER, "amount": 1}).status_code == 422
    assert real_charges(provider) == 1


def test_two_accounts_may_use_the_same_key(client: TestClient) -> None:
    assert charge(client, "k1", ANNA).json()["account"] == "anna"
    assert charge(client, "k1", BOB).json()["account"] == "bob"


def test_a_charge_needs_a_key(client: TestClient, provider: ProviderServer) -> None:
    assert client.post("/charges", json=ORDER, headers=ANNA).status_code == 400
    assert real_charges(provider) == 0


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer key-of-nobody"}], ids=["none", "unknown"])
def test_without_an_api_key_nobody_gets_anything_not_even_again(client: TestClient, headers: dict[str, str]) -> None:
    charge(client, "k1")

    answer = charge(client, "k1", headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert client.get("/charges", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"amount": 1}', b'{"amount": 0, "currency": "eur"}', b'{"amount": "1", "currency": "eur"}'],
)
def test_an_order_that_makes_no_sense_is_refused(client: TestClient, provider: ProviderServer, body: bytes) -> None:
    answer = client.post("/charges", content=body, headers={**ANNA, "Idempotency-Key": "k1"})

    assert answer.status_code == 400
    assert real_charges(provider) == 0


def test_an_account_sees_its_own_charges(client: TestClient) -> None:
    made = charge(client, "k1", ANNA).json()
    charge(client, "k2", BOB)

    assert client.get("/charges", headers=ANNA).json() == [made]


def test_a_refund_is_given_once(client: TestClient) -> None:
    path = f"/charges/{charge(client, 'k1').json()['id']}/refund"

    first, retry = (client.post(path, headers={**ANNA, "Idempotency-Key": "r1"}) for _ in range(2))
    another = client.post(path, headers={**ANNA, "Idempotency-Key": "r2"})

    assert first.json()["refunded"] is True
    assert retry.content == first.content
    assert another.status_code == 409


def test_nobody_is_given_the_refund_of_another(client: TestClient) -> None:
    path = f"/charges/{charge(client, 'k1', ANNA).json()['id']}/refund"

    assert client.post(path, headers={**BOB, "Idempotency-Key": "r1"}).status_code == 404


def test_a_failure_of_the_provider_is_told_and_the_retry_runs(client: TestClient, provider: ProviderServer) -> None:
    provider.provider.behave({"failing": True})
    assert charge(client, "k1").status_code == 502
    provider.provider.behave({"failing": False})

    retry = charge(client, "k1")

    assert retry.status_code == 201
    assert "idempotent-replayed" not in retry.headers
    assert real_charges(provider) == 1


def test_a_provider_that_is_not_there_is_told(new_server: NewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAYMENTS_PROVIDER_URL", "http://127.0.0.1:9")

    assert charge(new_server(), "k1").status_code == 502


def test_a_provider_that_honours_keys_recognises_an_order_after_a_crash(
    new_server: NewServer, provider: ProviderServer
) -> None:
    provider.provider.behave({"honours_keys": True})
    before = charge(new_server(), "k1")

    after = charge(new_server(), "k1")

    assert after.json() == before.json()
    assert real_charges(provider) == 1


def test_switched_off_it_charges_every_time(
    new_server: NewServer, provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDEMPOTENCY_MODE", "off")
    client = new_server()

    assert [charge(client, "k1").status_code for _ in range(2)] == [201, 201]
    assert real_charges(provider) == 2
