"""One key that everybody asks for, or that DynamoDB does not answer about: the others are served all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, Thread
from typing import Any

import pytest

from idem_middleware import AsyncLease, Engine, Options, Response
from idem_middleware import Request as IncomingRequest
from idem_middleware.errors import StoreCrowded, StoreUnavailable
from idem_middleware.keys import record_pk
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import Found, Written
from idem_middleware.stores.dynamodb.aio import AsyncDynamoDBStore, ThreadedTransport
from idem_middleware.stores.dynamodb.crowds import MOST_AT_ONCE, MOST_IN_TROUBLE, Crowds, Entry
from idem_middleware.stores.dynamodb.items import item_of
from idem_middleware.stores.dynamodb.requests import Request
from tests.stores.doubles import answer, condition_failed, error, read_timeout, soon
from tests.stores.records import pending
from tests.support.polling import eventually

HOT, COLD = "h" * 64, "c" * 64


class HotClient:
    """A client of DynamoDB that answers about one key as it is told, about all others at once."""

    def __init__(self, hot: Callable[[], Mapping[str, Any]]) -> None:
        self._hot = hot
        self._lock = Lock()
        self.calls: Counter[str] = Counter()
        self.inside = 0

    def update_item(self, **_: Any) -> Mapping[str, Any]:
        return answer()

    def get_item(self, **_: Any) -> Mapping[str, Any]:
        return answer()

    def put_item(self, **request: Any) -> Mapping[str, Any]:
        pk = request["Item"]["pk"]["S"]
        with self._lock:
            self.calls[pk] += 1
            self.inside += 1
        try:
            return self._hot() if pk == HOT else answer()
        finally:
            with self._lock:
                self.inside -= 1


def store_on(client: HotClient, *, threads: int = 50, **settings: Any) -> DynamoDBStore:
    """A store with that client."""
    return DynamoDBStore("keys", client=client, max_pool_connections=threads, **settings)


async def looked(look: Callable[[], bool]) -> None:
    """Until that is so, while the loop goes on."""
    await asyncio.to_thread(eventually, look, what="the calls that were to be made", every_seconds=0.001)


def throttled() -> Mapping[str, Any]:
    """The answer about a hot key."""
    raise error("ProvisionedThroughputExceededException")


class TestOnALoop:
    """With boto3's client behind threads."""

    def test_a_throttled_key_holds_no_thread_while_it_pauses(self) -> None:
        """Two of them pause, with two threads in all; another key is claimed meanwhile."""
        client = HotClient(throttled)
        store = store_on(client, threads=2)
        paused: list[float] = []

        async def run() -> None:
            over = asyncio.Event()

            async def sleep(seconds: float) -> None:
                paused.append(seconds)
                await over.wait()
                raise StoreUnavailable("enough")

            made = store.to_async()
            assert isinstance(made, AsyncDynamoDBStore)
            assert isinstance(made._transport, ThreadedTransport)
            made._sleep = sleep
            hot = [asyncio.ensure_future(made.create(pending(HOT), soon(store))) for _ in range(2)]
            await looked(lambda: len(paused) == 2)
            assert await made.create(pending(COLD), soon(store)) == Written()
            over.set()
            assert all(
                isinstance(ended, StoreUnavailable) for ended in await asyncio.gather(*hot, return_exceptions=True)
            )

        asyncio.run(asyncio.wait_for(run(), 30))

    def test_a_key_that_hangs_takes_few_threads_and_then_hardly_any(self) -> None:
        """A hundred ask for it: 16 wait for an answer, and when there is none, two try again; the rest is told so."""
        release = Event()

        def hang() -> Mapping[str, Any]:
            assert release.wait(30)
            raise read_timeout()

        client = HotClient(hang)
        store = store_on(client, random=lambda: 1.0)

        async def run() -> list[object]:
            made = store.to_async()
            hot = [asyncio.ensure_future(made.create(pending(HOT), soon(store, 2.0))) for _ in range(100)]
            await looked(lambda: client.inside == MOST_AT_ONCE)
            for number in range(20):
                assert await made.create(pending(f"{number:064}"), soon(store)) == Written()
            assert client.calls[HOT] == MOST_AT_ONCE
            release.set()
            return list(await asyncio.gather(*hot, return_exceptions=True))

        ended = asyncio.run(asyncio.wait_for(run(), 60))
        assert {type(outcome) for outcome in ended} == {StoreUnavailable, StoreCrowded}
        assert {outcome.code for outcome in ended if isinstance(outcome, StoreUnavailable)} == {"ReadTimeoutError"}
        assert client.calls[HOT] < 100 * 2


class TestInThreads:
    """With boto3's client, for callers that may block."""

    def test_who_comes_while_a_key_is_in_trouble_is_told_at_once(self) -> None:
        """Its thread is free for another request, which would come too late otherwise."""
        asked, release = Event(), Event()

        def sleep(_: float) -> None:
            asked.set()
            assert release.wait(30)

        client = HotClient(throttled)
        store = store_on(client, sleep=sleep)
        first = [Thread(target=self._try, args=(store,)) for _ in range(MOST_IN_TROUBLE)]
        for thread in first:
            thread.start()
        eventually(lambda: client.calls[HOT] == MOST_IN_TROUBLE and asked.is_set(), what="two at the key")
        with pytest.raises(StoreCrowded) as unavailable:
            store.create(pending(HOT), soon(store))
        assert unavailable.value.code == "ProvisionedThroughputExceededException"
        assert client.calls[HOT] == MOST_IN_TROUBLE
        assert store.create(pending(COLD), soon(store)) == Written()
        release.set()
        for thread in first:
            thread.join()

    def test_a_crowd_that_is_answered_is_served(self) -> None:
        """However large: everybody gets a turn."""

        def stands() -> Mapping[str, Any]:
            raise condition_failed(item_of(pending(HOT)))

        client = HotClient(stands)
        store = store_on(client)
        outcomes: list[object] = []

        def claim() -> None:
            outcomes.append(store.create(pending(HOT, owner="x"), soon(store)))

        crowd = [Thread(target=claim) for _ in range(60)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        assert outcomes == [Found(pending(HOT))] * 60

    def test_duplicates_that_meet_a_transaction_of_the_owners_are_told_what_stands_there(self) -> None:
        """DynamoDB refuses their claims while it goes on, for some milliseconds: nobody is turned away for that."""
        conflicts = iter(range(40))
        lock = Lock()

        def meets() -> Mapping[str, Any]:
            with lock:
                if next(conflicts, None) is not None:
                    raise error("TransactionConflictException")
            raise condition_failed(item_of(pending(HOT)))

        store = store_on(HotClient(meets), random=lambda: 0.5)
        with ThreadPoolExecutor(20) as threads:
            claims = [threads.submit(store.create, pending(HOT, owner="x"), soon(store)) for _ in range(20)]
            assert [claim.result() for claim in claims] == [Found(pending(HOT))] * 20

    @staticmethod
    def _try(store: DynamoDBStore) -> None:
        with pytest.raises(StoreUnavailable):
            store.create(pending(HOT), store.clock.monotonic() + 0.05)


class TestTheBounds:
    """Of one key."""

    def test_so_many_may_be_at_it(self) -> None:
        crowds = Crowds()
        assert [crowds.enter(HOT) for _ in range(MOST_AT_ONCE + 1)] == [Entry.IN] * MOST_AT_ONCE + [Entry.WAIT]
        assert crowds.enter(COLD) is Entry.IN
        crowds.leave(HOT)
        assert crowds.enter(HOT) is Entry.IN

    def test_in_trouble_hardly_anybody_may(self) -> None:
        crowds = Crowds()
        crowds.enter(HOT)
        crowds.note(HOT, "ThrottlingException")
        assert [crowds.enter(HOT) for _ in range(2)] == [Entry.IN, Entry.TURNED_AWAY]
        assert crowds.trouble(HOT) == "ThrottlingException"
        crowds.note(HOT, None)
        assert crowds.enter(HOT) is Entry.IN

    def test_a_key_that_nobody_is_at_is_forgotten(self) -> None:
        crowds = Crowds()
        crowds.enter(HOT)
        crowds.note(HOT, "ThrottlingException")
        crowds.leave(HOT)
        crowds.note(HOT, "ThrottlingException")
        assert crowds.trouble(HOT) is None
        assert crowds._crowds == {}

    def test_a_forked_child_begins_anew(self) -> None:
        crowds = Crowds()
        crowds.enter(HOT)
        crowds.after_fork()
        assert crowds._crowds == {}


def test_a_client_that_loops_on_a_throttled_key_gets_503_and_the_others_are_served() -> None:
    """Through the engine: at once, with Retry-After, while another client's request runs."""
    client = HotClient(throttled)
    store = store_on(client, threads=4, random=lambda: 1.0, deadline_seconds=0.2)
    engine = Engine(store, Options(caller="shared"))
    hot_pk = record_pk("", None, "hot")

    def hot_or_not(**request: Any) -> Mapping[str, Any]:
        is_hot = request["Item"]["pk"]["S"] == hot_pk
        return put(**{**request, "Item": {**request["Item"], "pk": {"S": HOT if is_hot else COLD}}})

    put = client.put_item
    client.put_item = hot_or_not  # type: ignore[method-assign]

    def request(key: str) -> IncomingRequest:
        return IncomingRequest(method="POST", path="/", headers=(("idempotency-key", key),))

    async def handler(_: AsyncLease | None) -> Response:
        return Response(201)

    async def run() -> tuple[list[Response], list[Response]]:
        running = engine.asynchronous
        hot = [asyncio.ensure_future(running.run(request("hot"), handler)) for _ in range(60)]
        others = [await running.run(request(f"cold-{number}"), handler) for number in range(5)]
        return others, await asyncio.gather(*hot)

    others, hot = asyncio.run(asyncio.wait_for(run(), 60))
    assert {answer.status for answer in others} == {201}
    assert {(answer.status, answer.header("retry-after")) for answer in hot} == {(503, "1")}
    assert client.calls[HOT] < 60
    assert len(engine.runtime.undos) <= 1  # of those that were sent; the others have nothing to take back


def test_a_turn_that_does_not_come_is_not_waited_for_beyond_the_deadline() -> None:
    """The client gets a 503 in time."""
    store = store_on(HotClient(throttled))
    for _ in range(MOST_AT_ONCE):
        store._register._calls.crowds.enter(HOT)
    with pytest.raises(StoreUnavailable) as unavailable:
        store.create(pending(HOT), store.clock.monotonic() + 0.05)
    assert unavailable.value.code == "KeyBusy"


def test_a_cancelled_claim_gives_its_place_back() -> None:
    """At once."""
    release = Event()

    def hang() -> Mapping[str, Any]:
        assert release.wait(30)
        return answer()

    client = HotClient(hang)
    store = store_on(client)

    async def run() -> None:
        made = store.to_async()
        claim = asyncio.ensure_future(made.create(pending(HOT), soon(store)))
        await looked(lambda: client.inside == 1)
        claim.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claim
        assert store._register._calls.crowds._crowds == {}
        release.set()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_the_transport_in_threads_sees_requests_as_they_are() -> None:
    """Nothing is between."""
    seen: list[tuple[str, Request]] = []

    def transport(operation: str, request: Request) -> Mapping[str, Any]:
        seen.append((operation, request))
        return {"done": True}

    async def run() -> Mapping[str, Any]:
        threaded = ThreadedTransport(transport, 1)
        try:
            return await threaded("get_item", {"TableName": "keys"})
        finally:
            await threaded.aclose()

    assert asyncio.run(run()) == {"done": True}
    assert seen == [("get_item", {"TableName": "keys"})]
