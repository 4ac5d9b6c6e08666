"""The lock of one lease: threads and coroutines in order of arrival, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from idem_middleware.locks import OperationLock

PATIENCE_SECONDS = 10


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextmanager
def waiting_thread(lock: OperationLock, done: list[str], name: str) -> Iterator[threading.Thread]:
    """A thread that waits for the lock by the time that the body runs, and has ended after it."""

    def work() -> None:
        with lock.held():
            done.append(name)

    before = len(lock._waiters)
    thread = threading.Thread(target=work)
    thread.start()
    while len(lock._waiters) == before:
        thread.join(0.001)  # pragma: no cover - only where the thread is slower than this one
    yield thread
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def is_free(lock: OperationLock) -> bool:
    """Whether it can be had at once."""
    return not lock._held and not lock._waiters


def test_threads_take_turns_in_order_of_arrival() -> None:
    """Nobody slips in between."""
    lock, done = OperationLock(), list[str]()
    with ExitStack() as threads, lock.held():
        for name in "abc":
            threads.enter_context(waiting_thread(lock, done, name))
        assert done == []
    assert done == ["a", "b", "c"]
    assert is_free(lock)


async def _taking(lock: OperationLock, done: list[str], name: str) -> None:
    async with lock.held_async():
        done.append(name)
        await asyncio.sleep(0)


def test_coroutines_take_turns_in_order_of_arrival() -> None:
    """Also when the holder waits for something else meanwhile."""

    async def main() -> None:
        lock, done = OperationLock(), list[str]()
        async with lock.held_async(), asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(_taking(lock, done, name))
            await settle()
            assert done == []
            # Left before the tasks end, or they would wait for what waits for them.
            lock._pass_on()
            lock._held = True
        assert done == ["a", "b", "c"]

    asyncio.run(main())


def test_a_thread_hands_over_to_a_coroutine() -> None:
    """The renewer is a thread, the owner a coroutine."""

    async def main() -> None:
        lock, done = OperationLock(), list[str]()
        with lock.held():
            task = asyncio.create_task(_taking(lock, done, "coroutine"))
            await settle()
            assert done == []
        await task
        assert done == ["coroutine"]
        assert is_free(lock)

    asyncio.run(main())


def test_a_coroutine_hands_over_to_a_thread() -> None:
    """And the loop is not blocked while it waits."""

    async def main() -> None:
        lock, done = OperationLock(), list[str]()
        with ExitStack() as threads:
            async with lock.held_async():
                threads.enter_context(waiting_thread(lock, done, "thread"))
                await settle()
                assert done == []
        assert done == ["thread"]

    asyncio.run(main())


def test_an_error_of_the_holder_frees_the_lock() -> None:
    """And comes out unchanged."""
    lock = OperationLock()
    with pytest.raises(StopIteration), lock.held():
        raise StopIteration
    assert is_free(lock)


class TestLeaving:
    """Who leaves the queue takes nothing with him."""

    def test_a_cancelled_waiter_leaves_the_queue(self) -> None:
        """The next one gets it."""

        async def main() -> None:
            lock, done = OperationLock(), list[str]()
            with lock.held():
                first = asyncio.create_task(_taking(lock, done, "first"))
                second = asyncio.create_task(_taking(lock, done, "second"))
                await settle()
                first.cancel()
                await settle()
            await second
            assert first.cancelled()
            assert done == ["second"]
            assert is_free(lock)

        asyncio.run(main())

    def test_a_waiter_that_is_cancelled_as_its_turn_comes_passes_it_on(self) -> None:
        """In the moment between being told and running."""

        async def main() -> None:
            lock, done = OperationLock(), list[str]()
            with lock.held():
                first = asyncio.create_task(_taking(lock, done, "first"))
                second = asyncio.create_task(_taking(lock, done, "second"))
                await settle()
            first.cancel()
            await second
            assert done == ["second"]
            assert is_free(lock)

        asyncio.run(main())

    def test_a_waiter_whose_turn_has_come_and_who_is_cancelled_passes_it_on(self) -> None:
        """The result is there, the task has not run yet."""

        async def main() -> None:
            lock, done = OperationLock(), list[str]()
            with lock.held():
                first = asyncio.create_task(_taking(lock, done, "first"))
                await settle()
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            assert is_free(lock)

        asyncio.run(main())

    def test_a_waiter_whose_loop_is_closed_is_passed_over(self) -> None:
        """It will never run again."""
        lock, done = OperationLock(), list[str]()
        loop = asyncio.new_event_loop()
        waiter = _taking(lock, done, "dead")

        async def start() -> asyncio.Task[None]:
            task = asyncio.create_task(waiter)
            await settle()
            return task

        with ExitStack() as threads, lock.held():
            task = loop.run_until_complete(start())
            loop.close()
            threads.enter_context(waiting_thread(lock, done, "thread"))
        assert done == ["thread"]
        assert is_free(lock)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        waiter.close()
        assert is_free(lock)

    def test_an_interrupted_thread_leaves_the_queue(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Control-C, or a time-out of green threads."""
        lock = OperationLock()

        def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

        with lock.held():
            monkeypatch.setattr(threading.Event, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt), lock.held():
                pytest.fail("not its turn")  # pragma: no cover - it must not come to this
        assert is_free(lock)

    def test_a_thread_that_is_interrupted_as_its_turn_comes_passes_it_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It was told, and could not hear it."""
        lock = OperationLock()

        def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
            lock._pass_on()  # the holder leaves at this very moment
            raise KeyboardInterrupt

        assert lock._take_or_queue(lambda: True)
        monkeypatch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), lock.held():
            pytest.fail("not its turn")  # pragma: no cover - it must not come to this
        assert is_free(lock)


def test_who_need_not_have_it_does_not_wait() -> None:
    """A renewal that meets the recording of its answer comes back later."""
    lock = OperationLock()
    with lock.held(), lock.held_if_free() as free:
        assert not free
    assert is_free(lock)
    with lock.held_if_free() as free:
        assert free
        assert not is_free(lock)
    assert is_free(lock)


def test_who_finds_the_lock_free_at_last_need_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was given back between two looks at it."""
    lock, seen = OperationLock(), list[bool]()
    monkeypatch.setattr(OperationLock, "_take", lambda self: False)  # as it was a moment ago
    with lock.held():
        seen.append(lock._held)

    async def main() -> None:
        async with lock.held_async():
            seen.append(lock._held)

    asyncio.run(main())
    assert seen == [True, True]
    assert is_free(lock)
