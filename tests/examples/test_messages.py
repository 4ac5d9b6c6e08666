"""The consumers of docs/messages.md, on a queue with a dead-letter queue and a redrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from example_apps.messages import consumer, functions
from idem_middleware import Engine, Options
from idem_middleware.stores import MemoryStore
from idem_middleware.testing import Fault, FaultyStore, ManualClock

ROOT = Path(__file__).resolve().parents[2]
DAY = 86400
TIMES_BEFORE_DEAD = 3


@pytest.fixture
def clock() -> ManualClock:
    """What the records are judged by."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """The consumers' store, empty, and on a clock of the test's."""
    store = FaultyStore(MemoryStore(clock=clock))
    for module in (consumer, functions):
        monkeypatch.setattr(module, "engine", Engine(store, consumer.engine.options))
    return store


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The orders that were charged, in order."""
    orders: list[str] = []

    def charge(order: dict[str, Any], lease: Any) -> dict[str, Any]:
        orders.append(order["id"])
        return {"charged": order["id"], "attempt": lease.attempt}

    monkeypatch.setattr(consumer, "charge", charge)
    return orders


class Queues:
    """A queue, and where it puts what was received too often. Nothing stays invisible."""

    def __init__(self) -> None:
        self.sqs: Any = boto3.client("sqs", region_name="eu-central-1")
        self.dead: str = self.sqs.create_queue(QueueName="dead", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = {"deadLetterTargetArn": attributes["QueueArn"], "maxReceiveCount": TIMES_BEFORE_DEAD}
        self.url: str = self.sqs.create_queue(
            QueueName="orders", Attributes={"VisibilityTimeout": "0", "RedrivePolicy": json.dumps(policy)}
        )["QueueUrl"]

    def send(self, order: str = "7", *, amount: str = "12.00", sent_at: float = 1.0) -> None:
        """As a producer does: each sending is another message."""
        body = {"sent_at": sent_at, "order": {"id": order, "amount": amount, "currency": "EUR"}}
        self.sqs.send_message(QueueUrl=self.url, MessageBody=json.dumps(body))

    def poll(self) -> int:
        """One round of the consumer."""
        return consumer.poll(self.sqs, self.url, self.dead)

    def dead_letters(self) -> list[str]:
        """The bodies of what was given up."""
        return [message["Body"] for message in self.sqs.receive_message(QueueUrl=self.dead).get("Messages", [])]

    def redrive(self) -> int:
        """Move all of it back, as StartMessageMoveTask does: each is a new message, with a new id."""
        bodies = self.dead_letters()
        self.sqs.purge_queue(QueueUrl=self.dead)
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)
        return len(bodies)


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queues]:
    """On moto; long polling would wait in real time."""
    with mock_aws():
        queues = Queues()
        receive = queues.sqs.receive_message
        monkeypatch.setattr(
            queues.sqs, "receive_message", lambda **request: receive(**{**request, "WaitTimeSeconds": 0})
        )
        yield queues


@pytest.mark.usefixtures("store")
class TestQueue:
    """`poll`."""

    def test_a_message_that_is_sent_twice_is_done_once(self, queues: Queues, charged: list[str]) -> None:
        """Two messages with ids and time stamps of their own about one order."""
        queues.send(sent_at=1.0)
        queues.send(sent_at=2.5)
        assert queues.poll() == 2
        assert charged == ["7"]
        assert queues.poll() == 0

    def test_a_message_that_fails_goes_to_the_dead_letters_and_a_redrive_does_it(
        self, queues: Queues, charged: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Days later, when the cause is mended; done once in the end."""
        works = consumer.charge
        monkeypatch.setattr(consumer, "charge", lambda order, lease: 1 // 0)
        queues.send()
        assert [queues.poll() for _ in range(TIMES_BEFORE_DEAD + 1)] == [0] * (TIMES_BEFORE_DEAD + 1)
        assert len(queues.dead_letters()) == 1
        monkeypatch.setattr(consumer, "charge", works)
        assert queues.redrive() == 1
        assert queues.poll() == 1
        assert charged == ["7"]

    def test_a_redrive_of_what_was_done_does_nothing(
        self, queues: Queues, charged: list[str], clock: ManualClock
    ) -> None:
        """It was done, and its deletion got lost: 28 days after, the record still says so."""
        queues.send()
        queues.poll()
        clock.advance(28 * DAY)
        queues.send(sent_at=99.0)
        assert queues.poll() == 1
        assert charged == ["7"]

    def test_after_the_retention_it_is_done_again(self, queues: Queues, charged: list[str], clock: ManualClock) -> None:
        """Which is why the retention is longer than a message can live."""
        queues.send()
        queues.poll()
        clock.advance(31 * DAY)
        queues.send()
        queues.poll()
        assert charged == ["7", "7"]

    def test_producers_that_disagree_are_left_to_a_person(self, queues: Queues, charged: list[str]) -> None:
        """The same order with another amount: no number of deliveries would help."""
        queues.send()
        queues.send(amount="13.00")
        assert queues.poll() == 2
        assert charged == ["7"]
        assert "13.00" in queues.dead_letters()[0]

    def test_an_outage_of_the_store_gives_the_message_back(
        self, queues: Queues, charged: list[str], store: FaultyStore
    ) -> None:
        """Nothing ran, nothing is lost."""
        store.fail(Fault.REFUSED, on="create")
        given_back: list[int] = []
        queues.sqs.change_message_visibility = lambda **request: given_back.append(request["VisibilityTimeout"])
        queues.send()
        assert queues.poll() == 0
        assert charged == []
        assert given_back == [1]
        assert queues.poll() == 1
        assert charged == ["7"]


@pytest.mark.usefixtures("store")
def test_two_consumers_at_once_do_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A visibility timeout that is too short: the second is refused, and runs nothing."""
    begun, finish = threading.Event(), threading.Event()
    runs: list[str] = []

    def charge(order: dict[str, Any], lease: Any) -> dict[str, Any]:
        runs.append(order["id"])
        begun.set()
        assert finish.wait(30)
        return {"charged": order["id"]}

    monkeypatch.setattr(consumer, "charge", charge)
    body = json.dumps({"order": {"id": "7", "amount": "1", "currency": "EUR"}})
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(consumer.consume, body)
        assert begun.wait(30)
        answer = functions.on_queue({"Records": [{"messageId": "second", "body": body}]}, None)
        finish.set()
        assert first.result() == {"charged": "7"}
    assert answer == {"batchItemFailures": [{"itemIdentifier": "second"}]}
    assert runs == ["7"]


@pytest.mark.usefixtures("store")
class TestFunctions:
    """Lambda."""

    def test_one_bad_message_brings_no_other_back(self, charged: list[str]) -> None:
        """Only its own id is reported."""
        good = json.dumps({"order": {"id": "7", "amount": "1", "currency": "EUR"}})
        batch = [("a", good), ("b", "no JSON"), ("c", good)]
        answer = functions.on_queue({"Records": [{"messageId": i, "body": body} for i, body in batch]}, None)
        assert answer == {"batchItemFailures": [{"itemIdentifier": "b"}]}
        assert charged == ["7"]

    def test_an_event_that_is_published_again_is_done_once(self) -> None:
        """Under other ids and times. One that says something else about it is parked."""
        detail = {"orderId": "8", "revision": 3, "amount": "5.00"}
        answers = [
            functions.on_event({"id": i, "time": i, "detail-type": "OrderShipped", "detail": each}, None)
            for i, each in (("1", detail), ("2", detail), ("3", {**detail, "amount": "6.00"}))
        ]
        assert answers == ["shipped 8", "shipped 8", "parked: key-reused"]

    def test_a_call_that_is_made_again_is_answered_alike(self) -> None:
        """By whoever calls."""
        answers = [functions.on_call({"order": {"id": "9"}}, None) for _ in range(2)]
        assert answers == [{"refunded": "9"}] * 2


@pytest.mark.parametrize("name", ["consumer", "functions"])
def test_the_page_shows_the_code_that_is_tested(name: str) -> None:
    """To the letter."""
    code = (ROOT / "example_apps" / "messages" / f"{name}.py").read_text("utf-8").partition("\n\n")[2]
    assert f"```python\n{code}```" in (ROOT / "docs" / "messages.md").read_text("utf-8")


def test_the_retention_is_as_long_as_two_queues_keep_a_message() -> None:
    """14 days in the queue and 14 among the dead letters are the most that SQS keeps one."""
    options: Options = consumer.engine.options
    assert options.retention_seconds > 28 * DAY
