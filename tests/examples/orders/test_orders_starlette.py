"""Whatever is killed when: stock and orders add up, and every retry is answered like its first request."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import cycle

import pytest

from idem_middleware import DynamoDBStore
from tests.examples.orders.shop import WAYS_TO_DIE, Customer, Tables, serve, tally
from tests.support.ports import free_port
from tests.support.processes import Process

pytestmark = [pytest.mark.dynamodb_local, pytest.mark.processes]

SKUS = ("a", "b", "c")
SEED = 20_261_129


def customers(number: int) -> list[Customer]:
    """Each way to die in turn; of many, some die twice, and some not at all."""
    chance = random.Random(SEED)  # noqa: S311
    made = []
    for order, (path, place) in zip(range(number), cycle(WAYS_TO_DIE), strict=False):
        _, another = chance.choice(WAYS_TO_DIE)
        fate = chance.random() if order >= len(WAYS_TO_DIE) else 0.5
        dies = () if fate < 0.1 else (place, another) if fate > 0.8 else (place,)
        made.append(Customer(order, path, chance.choice(SKUS), chance.randint(1, 3), dies))
    chance.shuffle(made)
    return made


def check_orders(endpoint: str, number: int, *, workers: int, at_once: int) -> None:
    """Serve so many orders, and count."""
    wanted: Counter[str] = Counter()
    everybody = customers(number)
    for customer in everybody:
        wanted[customer.sku] += customer.quantity
    stock = {sku: wanted[sku] * 4 // 5 for sku in SKUS}  # not enough for all
    tables = Tables(endpoint, stock)
    DynamoDBStore(tables.keys, endpoint=endpoint).create_table()
    environment = {
        "IDEMPOTENCY_STORE": f"dynamodb://{tables.keys}?endpoint={endpoint}",
        "ORDERS_TABLE": tables.orders,
        "ORDERS_STOCK_TABLE": tables.stock,
        "ORDERS_LEASE_SECONDS": "1",
    }
    port = free_port()
    module = "tests.examples.orders.workers"
    with Process.module(module, str(port), str(workers), environment=environment) as process:
        process.wait_for_line("ready")
        asyncio.run(serve(f"http://127.0.0.1:{port}", everybody, at_once))

    for customer in everybody:
        first, again = customer.answers
        assert first.status_code in (201, 409)
        assert again.status_code == first.status_code
        if first.status_code == 201 or customer.path != "/reservations":  # whose refusals are not final
            assert again.content == first.content
            assert again.headers["idempotent-replayed"] == "true"
    ordered, left, sold = tables.ordered(), tables.left(), tally(everybody)
    by_order = {sku: sum(quantity for what, quantity in ordered.values() if what == sku) for sku in SKUS}
    told = {sku: sum(quantity for (_, what), quantity in sold.items() if what == sku) for sku in SKUS}
    assert by_order == told
    assert {sku: left[sku] + by_order[sku] for sku in SKUS} == stock
    assert len(ordered) == sum(customer.first.status_code == 201 for customer in everybody)
    refused = sum(customer.first.status_code == 409 for customer in everybody)
    died = sum(customer.sendings - len(customer.answers) > 0 for customer in everybody)
    print(  # noqa: T201
        f"{number} orders: {len(ordered)} placed, {refused} sold out, "
        f"{sum(customer.sendings for customer in everybody)} sendings, {died} customers had to ask again; "
        f"stock {sum(stock.values())} = {sum(left.values())} left + {sum(by_order.values())} ordered"
    )


def test_orders_add_up_though_workers_die_at_every_step(dynamodb_local: str) -> None:
    """Each step once for each way to order."""
    check_orders(dynamodb_local, len(WAYS_TO_DIE), workers=4, at_once=len(WAYS_TO_DIE))


@pytest.mark.chaos
def test_two_hundred_orders_add_up_though_workers_die_at_every_step(dynamodb_local: str) -> None:
    """Each step about eight times for each way to order."""
    check_orders(dynamodb_local, 200, workers=4, at_once=50)
