"""A lock that whoever holds it may meet again, since the collector runs anything anywhere."""

from __future__ import annotations

import threading

import pytest

from idem_middleware.reentry import DeferringLock

PATIENCE_SECONDS = 10


def test_what_is_to_be_done_is_done_at_once_where_the_lock_is_free() -> None:
    """And under it: nobody else can take it meanwhile."""
    lock, seen = DeferringLock(), []
    lock.do(lambda: seen.append(lock._mutex.locked()))
    assert seen == [True]
    assert not lock._mutex.locked()


def test_what_its_holder_asks_for_is_done_when_it_lets_go() -> None:
    """In the order asked for; waiting for itself it would wait for ever."""
    lock, done = DeferringLock(), list[str]()
    with lock:
        lock.do(lambda: done.append("one"))
        lock.do(lambda: done.append("two"))
        done.append("its own")
    assert done == ["its own", "one", "two"]


def test_what_is_asked_for_meanwhile_is_done_as_well() -> None:
    """By whoever is at it."""
    lock, done = DeferringLock(), list[str]()

    def first() -> None:
        lock.do(lambda: done.append("second"))
        done.append("first")

    lock.do(first)
    assert done == ["first", "second"]


def test_what_a_thread_asks_for_while_another_holds_the_lock_is_done_by_that_one() -> None:
    """Who asks does not wait, and nothing is lost."""
    lock, done = DeferringLock(), list[str]()
    with lock:
        asking = threading.Thread(target=lambda: lock.do(lambda: done.append(threading.current_thread().name)))
        asking.start()
        asking.join(PATIENCE_SECONDS)
        assert not asking.is_alive()
        assert done == []
    assert done == [threading.current_thread().name]


def test_it_is_let_go_of_where_its_holder_fails() -> None:
    """With what is left to be done, done."""
    lock, done = DeferringLock(), list[str]()

    def fail() -> None:
        with lock:
            lock.do(lambda: done.append("done"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert done == ["done"]
    assert not lock._mutex.locked()


def test_of_many_threads_each_has_its_work_done_once() -> None:
    """Whoever of them does it."""
    lock, counts = DeferringLock(), {"done": 0}
    together = threading.Barrier(4)

    def count() -> None:
        counts["done"] += 1

    def ask() -> None:
        together.wait(PATIENCE_SECONDS)
        for number in range(2000):
            if number % 3:
                lock.do(count)
            else:
                with lock:
                    lock.do(count)
                    counts["done"] += 0

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert counts["done"] == 8000
