from __future__ import annotations

import httpx
import pytest

from example_apps.demo.provider import ProviderServer
from tests.support.polling import eventually

ORDER = {"amount": 1200, "currency": "eur"}
LONG = 60.0


def order(provider: ProviderServer, key: str = "k1", *, timeout: float = 10) -> httpx.Response:
    """Send an order, and hang up if there is no answer in time."""
    headers = {"X-Account": "anna", "Idempotency-Key": key}
    return httpx.post(f"{provider.url}/charges", json=ORDER, headers=headers, timeout=timeout, trust_env=False)


def seen(provider: ProviderServer, name: str) -> object:
    """Ask it what it has done, as the demo does."""
    return httpx.get(f"{provider.url}/control", trust_env=False).json()[name]


def behave(provider: ProviderServer, **changes: object) -> httpx.Response:
    """Tell it how to behave, as the demo does."""
    return httpx.put(f"{provider.url}/control", json=changes, trust_env=False)


def test_by_itself_it_charges_as_often_as_it_is_asked_to(provider: ProviderServer) -> None:
    assert [order(provider).json()["id"] for _ in range(2)] == [1, 2]
    assert seen(provider, "charges") == 2


def test_honouring_keys_it_charges_once(provider: ProviderServer) -> None:
    behave(provider, honours_keys=True)

    assert [order(provider).json()["id"] for _ in range(2)] == [1, 1]
    assert order(provider, "k2").json()["id"] == 2


def test_failing_it_charges_nothing(provider: ProviderServer) -> None:
    behave(provider, failing=True)

    assert order(provider).status_code == 503
    assert seen(provider, "charges") == 0


def test_who_hangs_up_before_it_begins_is_not_charged(provider: ProviderServer) -> None:
    behave(provider, delay_seconds=LONG)

    with pytest.raises(httpx.ReadTimeout):
        order(provider, timeout=0.2)

    assert eventually(lambda: seen(provider, "waiting") == 0, what="it notices")
    assert seen(provider, "charges") == 0


def test_who_hangs_up_before_it_answers_is_charged(provider: ProviderServer) -> None:
    behave(provider, answer_delay_seconds=LONG)

    with pytest.raises(httpx.ReadTimeout):
        order(provider, timeout=0.2)

    assert seen(provider, "charges") == 1


def test_it_does_not_take_a_behaviour_that_it_does_not_know(provider: ProviderServer) -> None:
    assert behave(provider, slow=True).status_code == 404
