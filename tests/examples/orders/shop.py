"""The tables of the orders example, and clients that want an answer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3
import httpx

from tests.stores.records import new_pk

_GIVE_UP_AFTER_SECONDS = 300

CALLS = {
    "/orders": ("claim", "transaction"),
    "/deliveries": ("claim", "transaction", "settlement"),
    "/reservations": ("transaction", "settlement"),
}
"""What each way to order asks of DynamoDB, in that order."""

WAYS_TO_DIE = [
    (path, place)
    for path, calls in CALLS.items()
    for place in (*(f"{call} {moment}" for call in calls for moment in ("before", "during", "after")), "answer")
]
"""Where a worker can be made to die: `workers` says what each place means."""


class Tables:
    """Stock and orders, and the table of keys."""

    def __init__(self, endpoint: str, stock: Mapping[str, int]) -> None:
        self._client: Any = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=endpoint)
        self.keys, self.orders, self.stock = (f"{name}-{new_pk()[:12]}" for name in ("keys", "orders", "stock"))
        for name in (self.orders, self.stock):
            self._client.create_table(
                TableName=name,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        for sku, available in stock.items():
            self._client.put_item(TableName=self.stock, Item={"id": {"S": sku}, "available": {"N": str(available)}})

    def left(self) -> dict[str, int]:
        """What is available."""
        return {item["id"]["S"]: int(item["available"]["N"]) for item in self._all(self.stock)}

    def ordered(self) -> dict[str, tuple[str, int]]:
        """Every order: its number to what was ordered."""
        return {item["id"]["S"]: (item["sku"]["S"], int(item["quantity"]["N"])) for item in self._all(self.orders)}

    def _all(self, table: str) -> list[Any]:
        pages = self._client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


@dataclass
class Customer:
    """One order, sent until there is an answer."""

    number: int
    path: str
    sku: str
    quantity: int
    dies: tuple[str, ...]
    answers: list[httpx.Response] = field(default_factory=list)
    sendings: int = 0
    heard: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The same for every sending."""
        return f"order-{self.number}"

    @property
    def first(self) -> httpx.Response:
        """The answer."""
        return self.answers[0]

    async def send(self, client: httpx.AsyncClient) -> None:
        """Get an answer, however long that takes; its connection is lost where a worker dies."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _GIVE_UP_AFTER_SECONDS
        while loop.time() < give_up_at:
            headers = {"Idempotency-Key": self.key}
            if self.sendings < len(self.dies):
                headers["X-Die"] = self.dies[self.sendings]
            self.sendings += 1
            body = json.dumps({"sku": self.sku, "quantity": self.quantity})
            try:
                answer = await client.post(self.path, content=body, headers=headers)
            except httpx.TransportError as error:
                self.heard.append(type(error).__name__)
                await asyncio.sleep(0.05)
                continue
            retry_after = answer.headers.get("retry-after")
            if retry_after is None and answer.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
                self.answers.append(answer)
                return
            self.heard.append(f"{answer.status_code} {answer.text[:60]}")
            await asyncio.sleep(min(1.0, float(retry_after or 0.5)))
        raise AssertionError(f"order {self.number} had no answer in {_GIVE_UP_AFTER_SECONDS} s: {self.heard}")


async def serve(url: str, customers: Sequence[Customer], at_once: int) -> None:
    """All of them, so many at a time; and then all of them again, to hear the same."""
    places = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_keepalive_connections=0)  # so that every sending may come to another worker
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as client:

        async def one(customer: Customer) -> None:
            async with places:
                await customer.send(client)

        for _ in range(2):
            await asyncio.gather(*(one(customer) for customer in customers))


def tally(customers: Iterable[Customer]) -> Counter[tuple[str, str]]:
    """How much of each was sold by each way, as the customers were told."""
    sold: Counter[tuple[str, str]] = Counter()
    for customer in customers:
        if customer.first.status_code == httpx.codes.CREATED:
            sold[customer.path, customer.sku] += customer.quantity
    return sold
