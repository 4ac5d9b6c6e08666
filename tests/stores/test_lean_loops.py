"""The native asynchronous store: its loops, its connections, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event, Thread, current_thread

import pytest
from botocore.config import Config

from idem_middleware.errors import StoreUnavailable
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.base import Gone
from idem_middleware.stores.dynamodb.aio import AsyncDynamoDBStore
from idem_middleware.stores.dynamodb.lean import aio as lean_aio
from idem_middleware.stores.dynamodb.lean.aio import AsyncLeanTransport
from idem_middleware.stores.dynamodb.lean.source import Source
from tests.stores.records import pending
from tests.stores.servers import Reply, ScriptedServer, black_hole, scripted_server
from tests.stores.test_lean_settings import TestCredentials as Lifetimes
from tests.stores.test_lean_settings import Vendor, refuse

REGION = "eu-central-1"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """Answers everything with nothing."""
    with scripted_server() as server:
        yield server


def store_of(endpoint: str, **settings: object) -> AsyncDynamoDBStore:
    """A native store."""
    settings.setdefault("region", REGION)
    store = DynamoDBStore("keys", endpoint=endpoint, transport="lean", **settings).to_async()  # type: ignore[arg-type]
    assert isinstance(store, AsyncDynamoDBStore)
    return store


def transport_of(store: AsyncDynamoDBStore) -> AsyncLeanTransport:
    """What carries its calls."""
    transport = store._transport
    assert isinstance(transport, AsyncLeanTransport)
    return transport


async def load(store: AsyncDynamoDBStore, pk: str = "pk") -> object:
    """One call."""
    return await store.load(pk, store.clock.monotonic() + 30)


def ends_in(store: AsyncDynamoDBStore, seconds: float) -> None:
    """Let its keys end by then."""
    credentials = transport_of(store)._source.line().credentials
    credentials._expiry_time = datetime.now(UTC) + timedelta(seconds=seconds)


class TestLoops:
    """Several of them in one process."""

    def test_one_store_serves_one_loop_after_the_other(self, server: ScriptedServer) -> None:
        """Nothing of it belongs to a loop that is closed (aioboto3#180): asyncio.run per request, or per test."""
        store = store_of(server.url)
        for _ in range(3):
            assert asyncio.run(load(store)) == Gone()
        assert transport_of(store)._ends == {}

    def test_one_store_serves_two_loops_at_once(self, server: ScriptedServer) -> None:
        """Each with connections of its own (aiobotocore#807)."""
        store = store_of(server.url)
        together = Barrier(2)
        outcomes: list[object] = []

        async def serve() -> None:
            outcomes.append(await load(store))
            await asyncio.to_thread(together.wait, 30)
            outcomes.append(await load(store))

        loops = [Thread(target=lambda: asyncio.run(serve())) for _ in range(2)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join()
        assert outcomes == [Gone()] * 4
        assert server.connections == 2
        assert transport_of(store)._ends == {}

    def test_a_loop_that_ends_closes_its_connections(self, server: ScriptedServer) -> None:
        """Without anybody's call: servers and tests end their loops orderly, and know nothing of us."""
        store = store_of(server.url)
        with asyncio.Runner() as runner:
            runner.run(load(store))
            (end,) = transport_of(store)._ends.values()
            assert end._connection is not None
            session = end._connection.session
            assert not session.closed
        assert session.closed

    def test_a_loop_that_was_closed_without_a_word_is_forgotten(self, server: ScriptedServer) -> None:
        """It could do nothing any more; the next one is not troubled."""
        store = store_of(server.url)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(load(store))
        (end,) = transport_of(store)._ends.values()
        assert end._connection is not None
        # Closed here, so that no warning about this loop falls into another test.
        loop.run_until_complete(end._connection.session.close())
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        assert asyncio.run(load(store)) == Gone()
        assert transport_of(store)._ends == {}
        del end
        gc.collect()

    def test_a_session_that_can_not_be_made_is_what_it_is(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A bug comes out; what was not opened is neither closed nor left behind."""
        store = store_of(server.url)

        def fail(_: object) -> object:
            raise ZeroDivisionError("a bug")

        async def calls() -> None:
            with pytest.raises(ZeroDivisionError, match="a bug"):
                await load(store)
            await store.aclose()
            assert transport_of(store)._ends == {}

        with monkeypatch.context() as patch:
            patch.setattr(lean_aio, "_Connection", fail)
            asyncio.run(calls())
            loop = asyncio.new_event_loop()
            with pytest.raises(ZeroDivisionError):
                loop.run_until_complete(load(store))
            loop.close()
        assert asyncio.run(load(store)) == Gone()  # the closed loop's end, which had no session, is forgotten
        assert transport_of(store)._ends == {}

    def test_a_loop_on_which_nothing_could_be_found_out_has_nothing_to_close(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next call looks again."""
        store = store_of(server.url)

        def fail(_: object) -> object:
            raise ZeroDivisionError("a bug")

        async def calls() -> None:
            with monkeypatch.context() as patch:
                patch.setattr(Source, "line", fail)
                with pytest.raises(ZeroDivisionError, match="a bug"):
                    await load(store)
                await store.aclose()
            assert await load(store) == Gone()

        asyncio.run(calls())

    def test_it_can_be_closed_early(self, server: ScriptedServer) -> None:
        """And used again."""
        store = store_of(server.url)

        async def close_and_go_on() -> None:
            await load(store)
            await store.aclose()
            assert transport_of(store)._ends == {}
            await store.aclose()
            assert await load(store) == Gone()

        asyncio.run(close_and_go_on())
        assert server.connections == 2

    def test_nothing_runs_before_the_first_call(self) -> None:
        """A server may still fork, and has perhaps no loop yet."""
        store = store_of("http://127.0.0.1:9")
        assert transport_of(store)._source.known is None
        assert (store.deadline_seconds, store.inline_bytes) == (3.0, DynamoDBStore.inline_bytes)
        assert repr(store) == "AsyncDynamoDBStore('keys')"

    def test_an_async_generator_of_ours_ends_quietly_with_its_loop(self, server: ScriptedServer) -> None:
        """Also beside those of the application."""
        store = store_of(server.url)

        async def stream() -> AsyncIterator[object]:
            yield await load(store)

        async def read_one() -> None:
            await anext(stream())

        asyncio.run(read_one())


class TestConnections:
    """As many as are needed, and no more than allowed."""

    def test_one_caller_needs_one(self, server: ScriptedServer) -> None:
        """It is kept."""
        store = store_of(server.url)

        async def calls() -> None:
            for _ in range(5):
                await load(store)

        asyncio.run(calls())
        assert server.connections == 1

    def test_many_callers_share_those_that_there_are(self, server: ScriptedServer) -> None:
        """The rest waits for its turn."""
        store = store_of(server.url, max_pool_connections=3)

        async def calls() -> None:
            assert await asyncio.gather(*[load(store) for _ in range(30)]) == [Gone()] * 30

        asyncio.run(calls())
        assert server.connections <= 3

    def test_callers_that_wait_for_a_connection_in_vain_give_up(self) -> None:
        """All are held by calls that hang: nobody waits longer than for such a call."""
        quick = Config(connect_timeout=0.1, read_timeout=0.2)
        with black_hole() as url:
            store = store_of(url, max_pool_connections=1, client_config=quick)

            async def calls() -> list[object]:
                deadline = store.clock.monotonic() + 0.5
                return list(
                    await asyncio.gather(*[store.load("pk", deadline) for _ in range(20)], return_exceptions=True)
                )

            outcomes = asyncio.run(calls())
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}

    def test_a_cancelled_call_ends_at_once(self) -> None:
        """Nothing of it stays behind, and the next call works."""
        answered = Event()

        def late() -> Reply:
            answered.wait(timeout=30)
            return Reply()

        with scripted_server(late, Reply()) as server:
            store = store_of(server.url)

            async def cancel_it() -> None:
                call = asyncio.ensure_future(store.create(pending("1"), store.clock.monotonic() + 30))
                while not server.seen:  # noqa: ASYNC110  # the server's own thread sets it
                    await asyncio.sleep(0)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                answered.set()
                assert await load(store) == Gone()

            asyncio.run(cancel_it())

    def test_first_calls_find_out_together(self, server: ScriptedServer) -> None:
        """Off the loop, and once."""
        store = store_of(server.url)
        source = transport_of(store)._source
        found_out_in: list[str] = []
        find_out = source.line

        def line() -> object:
            found_out_in.append(current_thread().name)
            return find_out()

        source.line = line  # type: ignore[method-assign, assignment]

        async def calls() -> None:
            await asyncio.gather(*[load(store) for _ in range(10)])

        asyncio.run(calls())
        assert len(found_out_in) == 1
        assert found_out_in[0].startswith("idem-lean")


class TestCredentials:
    """Keys are renewed off the loop."""

    def test_a_renewal_blocks_nobody(self, server: ScriptedServer) -> None:
        """While it lasts, keys that are still good sign on."""
        go_on = Event()
        vendor = Vendor(Lifetimes.HOUR)
        session = vendor.session()
        store = store_of(server.url, session=session)

        async def calls() -> None:
            await load(store)
            vendor._before = lambda: go_on.wait(timeout=30)
            credentials = transport_of(store)._source.line().credentials
            credentials._advisory_refresh_timeout = 10**9  # due, although good for an hour
            for _ in range(3):
                await load(store)
            assert {seen.headers["x-amz-security-token"] for seen in server.seen} == {"token1"}
            go_on.set()
            credentials._advisory_refresh_timeout = 0
            while credentials._frozen_credentials.token == "token1":  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0)
            await load(store)

        asyncio.run(calls())
        assert server.seen[-1].headers["x-amz-security-token"] == "token2"
        assert vendor.asked == 2

    def test_callers_without_good_keys_share_a_renewal(self, server: ScriptedServer) -> None:
        """One asks, all wait."""
        vendor = Vendor(Lifetimes.LAST, Lifetimes.HOUR)
        store = store_of(server.url, session=vendor.session())

        async def calls() -> None:
            ends_in(store, Lifetimes.HOUR)
            await load(store)
            ends_in(store, Lifetimes.LAST)
            await asyncio.gather(*[load(store) for _ in range(20)])

        asyncio.run(calls())
        assert vendor.asked == 3

    def test_a_failed_renewal_is_tried_by_the_next_call(self, server: ScriptedServer) -> None:
        """It is nobody's for ever."""
        vendor = Vendor(Lifetimes.HOUR)
        store = store_of(server.url, session=vendor.session())

        async def calls() -> None:
            await load(store)
            ends_in(store, Lifetimes.LAST)
            vendor._before = refuse
            with pytest.raises(StoreUnavailable) as raised:
                await store.load("pk", store.clock.monotonic() - 1)
            assert raised.value.code == "CredentialRetrievalError"
            vendor._before = lambda: None
            assert await load(store) == Gone()

        asyncio.run(calls())
