"""What happens beside the requests: renewals, late recordings, the undoing of claims that nobody got.

One scheduling thread per process, started when it is first needed, earliest job first; a few threads for each kind of
job, so that none delays another. A fork starts with nothing of its parent's.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

__all__ = ["Job", "Lane", "Upkeep", "process_upkeep"]

_DRAIN_AT_EXIT_SECONDS = 5.0
_SWEEP_FROM = 1024  # how many jobs may wait before those are dropped that were cancelled: most renewals are

_LONGEST_SLEEP_SECONDS = 1.0
_NO_MORE_THREADS = "can't start new thread"  # the words of CPython, 3.11 to 3.14, where the system refuses one

logger = logging.getLogger("idem_middleware")


class Lane(Enum):
    """Kinds of jobs that must not wait for each other: each has threads of its own."""

    RENEWAL = "renewal"
    RECORDING = "recording"
    OTHER = "upkeep"


# 10,000 leases of 60 s at 4 ms a renewal keep two threads busy; the rest is for a slow store. While that is away, all
# threads of the other lanes may wait for it, and no lane waits for another.
_WORKERS = {Lane.RENEWAL: 16, Lane.RECORDING: 8, Lane.OTHER: 4}


class Job:
    """Work that is due at some time. `run` gives the seconds until it wants to run again, or None when it is done."""

    __slots__ = ("_run", "cancelled", "important", "lane")

    def __init__(self, run: Callable[[], float | None], lane: Lane, *, important: bool = False) -> None:
        self._run = run
        self.lane = lane
        self.important = important  # an orderly end waits for it
        self.cancelled = False

    def run(self) -> float | None:
        return None if self.cancelled else self._run()

    def cancel(self) -> None:
        """Don't run (again). What is running now ends by itself."""
        self.cancelled = True
        self._run = _nothing  # and hold nothing of it


def _nothing() -> None:
    """The work of a job that was cancelled."""


_Entry = tuple[float, int, Job]


class Upkeep:
    """Runs jobs at their time. With `threads=False` nothing runs but by `run_due`, for tests with a manual clock."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        workers: Mapping[Lane, int] = _WORKERS,
        threads: bool = True,
    ) -> None:
        self._monotonic = monotonic
        self._workers = workers
        self._threads = threads
        self._forget()
        _instances.add(self)

    def _forget(self) -> None:
        """Start anew: at first, and in a forked child, which has none of these threads."""
        # To be taken twice by one thread: a dropped answer schedules its recording from wherever it is collected.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._due: list[tuple[float, int, Job]] = []
        self._wake_at = math.inf  # when the scheduling thread looks again by itself
        self._sweep_at = _SWEEP_FROM
        self._order = itertools.count()
        self._unfinished: set[Job] = set()
        self._thread: threading.Thread | None = None
        self._pools: dict[Lane, ThreadPoolExecutor] = {}

    def schedule(
        self,
        delay_seconds: float,
        run: Callable[[], float | None],
        lane: Lane = Lane.OTHER,
        *,
        important: bool = False,
    ) -> Job:
        """Run this after a delay, and again as long as it gives a number of seconds.

        Recordings, and what else is important, are what `drain` waits for.
        """
        job = Job(run, lane, important=important or lane is Lane.RECORDING)
        if job.important:
            with self._lock:
                self._unfinished.add(job)
        self._push(delay_seconds, job)
        return job

    def __len__(self) -> int:
        """How many jobs are waiting for their time."""
        with self._lock:
            return sum(not job.cancelled for _, _, job in self._due)

    def run_due(self) -> int:
        """Run what is due now on this thread; gives how many."""
        jobs = self._take_due()
        for job in jobs:
            self._run(job)
        return len(jobs)

    def drain(self, timeout_seconds: float) -> bool:
        """Run the important jobs now and wait for their end; False if some have not ended in time."""
        give_up_at = self._monotonic() + timeout_seconds
        with self._lock:
            if not self._unfinished:
                return True
            now = self._monotonic()
            self._rebuild(lambda entry: (now, *entry[1:]) if entry[2].important else entry)
            self._changed.notify_all()
            while self._unfinished:
                left = give_up_at - self._monotonic()
                if left <= 0 or not self._threads:
                    return False
                self._changed.wait(left)
            return True

    def _rebuild(self, change: Callable[[_Entry], _Entry | None]) -> None:
        """Change or drop each entry. Call it under the lock.

        The collector may schedule a job in the middle of it, on this very thread: that one goes into the new heap.
        """
        entries, self._due = self._due, []
        changed = [new for entry in entries if (new := change(entry)) is not None]
        self._due += changed
        heapq.heapify(self._due)

    def _push(self, delay_seconds: float, job: Job) -> None:
        thread: threading.Thread | None = None
        with self._lock:
            if len(self._due) >= self._sweep_at:
                self._rebuild(lambda entry: None if entry[2].cancelled else entry)
                self._sweep_at = max(_SWEEP_FROM, 2 * len(self._due))
            due = self._monotonic() + delay_seconds
            heapq.heappush(self._due, (due, next(self._order), job))
            if self._threads and self._thread is None:
                thread = self._thread = self._new_thread()
            elif due < self._wake_at:  # not for every first job: nearly each renewal is one, and cancelled soon
                self._changed.notify_all()
        if thread is not None:
            self._start(thread)

    def _start(self, thread: threading.Thread) -> None:
        try:
            # Without the lock: green threads would run the new one at once, which wants it.
            thread.start()
        except RuntimeError as error:  # no more threads for the moment: the next job tries again
            logger.error("idempotency upkeep could not start: %s", error)  # noqa: TRY400 - it says all
            with self._lock:
                self._thread = None

    def _new_thread(self) -> threading.Thread:
        self._pools = {
            lane: ThreadPoolExecutor(number, thread_name_prefix=f"idempotency-{lane.value}")
            for lane, number in self._workers.items()
        }
        return threading.Thread(target=self._loop, args=(self._pools,), name="idempotency-upkeep", daemon=True)

    def _take_due(self) -> list[Job]:
        with self._lock:
            return self._pop_due()

    def _pop_due(self) -> list[Job]:
        now = self._monotonic()
        jobs: list[Job] = []
        if not self._due or self._due[0][0] > now:
            # A first job that is cancelled stays: without one, the next of these short requests would wake the thread.
            return jobs
        while self._due and (self._due[0][0] <= now or self._due[0][2].cancelled):
            job = heapq.heappop(self._due)[2]
            if job.cancelled:
                self._finished(job)
            else:
                jobs.append(job)
        return jobs

    def _loop(self, pools: dict[Lane, ThreadPoolExecutor]) -> None:
        while True:
            with self._lock:
                jobs = self._pop_due()
                if not jobs:
                    self._wake_at = self._due[0][0] if self._due else math.inf
                    # Not for longer: what the collector schedules on this thread, just before it sleeps, wakes nobody.
                    self._changed.wait(min(self._wake_at - self._monotonic(), _LONGEST_SLEEP_SECONDS))
                    continue
            for job in jobs:
                try:
                    pools[job.lane].submit(self._run, job)
                except RuntimeError as error:
                    if _NO_MORE_THREADS not in str(error):
                        return  # the interpreter is going down; leases lapse by themselves
                    # The pool has the job all the same, and asks for a thread again when it gets another.
                    logger.error("idempotency upkeep needs a thread for what is due: %s", error)  # noqa: TRY400
                    self._push(_LONGEST_SLEEP_SECONDS, Job(_nothing, job.lane))

    def _run(self, job: Job) -> None:
        again: float | None = None
        try:
            again = job.run()
        except Exception:
            logger.exception("idempotency upkeep failed")
        if again is not None and not job.cancelled:
            self._push(again, job)
            return
        with self._lock:
            self._finished(job)

    def _finished(self, job: Job) -> None:
        self._unfinished.discard(job)
        self._changed.notify_all()


_instances: weakref.WeakSet[Upkeep] = weakref.WeakSet()
_default: Upkeep | None = None
_default_lock = threading.Lock()


def process_upkeep() -> Upkeep:
    """The one of this process."""
    global _default  # noqa: PLW0603 - one per process is the point
    if _default is not None:
        return _default
    with _default_lock:
        if _default is None:
            _default = Upkeep()
        return _default


def _after_fork() -> None:  # pragma: no cover - runs in children, where nothing is measured
    global _default_lock  # noqa: PLW0603 - the parent may have held it
    _default_lock = threading.Lock()
    for upkeep in list(_instances):
        upkeep._forget()  # noqa: SLF001


def _at_exit() -> None:
    if _default is not None:
        _default.drain(_DRAIN_AT_EXIT_SECONDS)


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has none
    os.register_at_fork(after_in_child=_after_fork)
# Before the pools' threads are joined, which `atexit` would be too late for.
getattr(threading, "_register_atexit", atexit.register)(_at_exit)
