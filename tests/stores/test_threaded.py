"""A blocking store for event loops: its threads, its loops, and what a cancellation does."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event, Thread, active_count, current_thread

import pytest

from idem_middleware.errors import ConfigurationError, StoreFull, StoreUnavailable
from idem_middleware.records import Record
from idem_middleware.stores import MemoryStore
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.threaded import ThreadedStore
from idem_middleware.stores.threads import Threads
from idem_middleware.transactions import Transaction
from tests.stores.records import pending
from tests.support.overtaken import Overtaken

caller: ContextVar[str] = ContextVar("caller", default="nobody")


class SlowStore(MemoryStore):
    """Waits before it writes, until it is told to go on; runs `probe` in the calling thread."""

    def __init__(self, probe: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.probe = probe
        self.entered = Event()
        self.go_on = Event()
        self.go_on.set()
        self.written: dict[str, Event] = defaultdict(Event)
        self.seen: list[object] = []

    def create(self, new: Record, deadline: float) -> Written | Found:
        """Wait, then create."""
        self.seen.append(self.probe())
        self.entered.set()
        assert self.go_on.wait(timeout=30)
        outcome = super().create(new, deadline)
        self.written[new.pk].set()
        return outcome


def test_calls_run_in_threads_of_its_own() -> None:
    """Not on the loop, and not in its default executor, which the application may have filled."""
    store = SlowStore(probe=lambda: current_thread().name)
    asyncio.run(ThreadedStore(store).create(pending("1"), 0.0))
    assert str(store.seen[0]).startswith("idem-store")


def test_the_callers_context_goes_along() -> None:
    """Tracing and logging see the request."""
    store = SlowStore(probe=caller.get)

    async def request() -> None:
        caller.set("customer 1")
        await ThreadedStore(store).create(pending("1"), 0.0)

    asyncio.run(request())
    assert store.seen == ["customer 1"]


def test_errors_come_back_as_they_are() -> None:
    """The engine tells them apart by their class."""
    full = MemoryStore(max_entries=1)
    full.create(pending("1"), 0.0)
    with pytest.raises(StoreFull):
        asyncio.run(ThreadedStore(full).create(pending("2"), 0.0))


def test_one_store_serves_one_loop_after_the_other() -> None:
    """Nothing of it belongs to a loop that is closed (aioboto3#180): asyncio.run per request, or per test."""
    store = ThreadedStore(MemoryStore())
    assert asyncio.run(store.create(pending("1"), 0.0)) == Written()
    assert asyncio.run(store.create(pending("1"), 0.0)) == Found(pending("1"))


def test_one_store_serves_two_loops_at_once() -> None:
    """Each in a thread of its own (aiobotocore#807)."""
    slow = SlowStore()
    slow.go_on.clear()
    store = ThreadedStore(slow)
    outcomes: dict[str, object] = {}

    def serve(pk: str) -> None:
        outcomes[pk] = asyncio.run(store.create(pending(pk), 0.0))

    loops = [Thread(target=serve, args=(pk,)) for pk in ("1", "2")]
    for loop in loops:
        loop.start()
    slow.go_on.set()
    for loop in loops:
        loop.join()
    assert outcomes == {"1": Written(), "2": Written()}


def test_a_cancelled_call_runs_to_its_end() -> None:
    """Whoever waited is free at once; the write is not half given up."""
    slow = SlowStore()
    slow.go_on.clear()
    store = ThreadedStore(slow)

    async def cancel_it() -> None:
        call = asyncio.ensure_future(store.create(pending("1"), 0.0))
        await asyncio.to_thread(slow.entered.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        slow.go_on.set()
        assert await asyncio.to_thread(slow.written["1"].wait, 30)

    asyncio.run(cancel_it())


def test_a_cancelled_call_that_waits_for_a_thread_runs_too() -> None:
    """It was handed over; that all threads were busy makes no difference to what is written."""
    slow = SlowStore()
    slow.go_on.clear()
    store = ThreadedStore(slow, max_workers=1)

    async def cancel_it() -> None:
        first = asyncio.ensure_future(store.create(pending("1"), 0.0))
        await asyncio.to_thread(slow.entered.wait, 30)
        second = asyncio.ensure_future(store.create(pending("2"), 0.0))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        slow.go_on.set()
        assert await first == Written()
        assert await asyncio.to_thread(slow.written["2"].wait, 30)

    asyncio.run(cancel_it())


def test_a_call_that_outlives_its_loop_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The loop was closed while a cancelled call was still under way."""
    slow = SlowStore()
    slow.go_on.clear()
    store = ThreadedStore(slow)

    async def leave() -> None:
        call = asyncio.ensure_future(store.create(pending("1"), 0.0))
        await asyncio.to_thread(slow.entered.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(leave())
    slow.go_on.set()
    assert asyncio.run(store.load("2", 0.0)) == Gone()
    assert caplog.text == ""


def test_no_thread_runs_before_the_first_call() -> None:
    """A server may still fork."""
    before = active_count()
    store = ThreadedStore(MemoryStore())
    assert active_count() == before
    assert store.inline_bytes is None


def test_its_threads_end_with_it() -> None:
    """Tests and reloads make many stores."""
    store = ThreadedStore(MemoryStore())
    asyncio.run(store.load("1", 0.0))
    assert store._threads._executor is not None
    threads = list(store._threads._executor._threads)
    del store
    gc.collect()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_after_the_end_of_the_process_began_it_is_unavailable() -> None:
    """No new thread can be had then; the caller gets the error that it knows."""
    store = ThreadedStore(MemoryStore())
    asyncio.run(store.load("1", 0.0))
    assert store._threads._executor is not None
    store._threads._executor.shutdown()
    with pytest.raises(StoreUnavailable, match="shutting down"):
        asyncio.run(store.load("1", 0.0))


def test_at_least_one_thread_is_needed() -> None:
    """None would wait for ever."""
    with pytest.raises(ConfigurationError):
        ThreadedStore(MemoryStore(), max_workers=0)


@dataclass
class Limits:
    """What a store says of itself."""

    clock: object = field(default_factory=object)
    deadline_seconds: float = 1.5
    inline_bytes: int = 7


def test_its_limits_are_the_stores() -> None:
    """It adds none of its own."""
    limits = Limits()
    store = ThreadedStore(limits)  # type: ignore[arg-type]
    assert (store.clock, store.deadline_seconds, store.inline_bytes) == (limits.clock, 1.5, 7)


def test_of_two_calls_that_come_first_one_makes_the_threads() -> None:
    """Those of the other would never be used again, nor end."""
    threads = Threads(2)
    lock = Overtaken(threads._threads)
    threads._lock = lock  # type: ignore[assignment]
    assert threads._threads() is lock.seen is threads._threads()


def test_every_call_goes_to_the_store_behind() -> None:
    """With what it gives, and what it raises."""
    memory = MemoryStore()
    store = ThreadedStore(memory)
    new = pending("1")

    async def calls() -> None:
        assert await store.create(new, 0.0) == Written()
        with pytest.raises(ConfigurationError, match="MemoryStore has no transactions"):
            await store.transact(None, new, Transaction((), "t"), 0.0)
        with pytest.raises(AssertionError, match="in the record"):
            await store.put_chunks(new, [b""], 0.0)
        with pytest.raises(AssertionError, match="in the record"):
            await store.get_chunks(new, 1, 0.0)

    asyncio.run(calls())
    assert repr(store) == f"ThreadedStore({memory!r})"
