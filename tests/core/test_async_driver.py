"""What only event loops can do to a request: cancel it anywhere, go down, or be several."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from idem_middleware import AsyncLease, EventKind, Lease, Options, Response
from idem_middleware.aio import acquisition
from idem_middleware.aio.concurrency import Recordings, Signal, _alarms_of, in_thread, pause
from idem_middleware.aio.engine import AsyncEngine
from idem_middleware.body import SPOOL_BYTES, RequestBody
from idem_middleware.identity import Admitted, CallerUnknown
from idem_middleware.messages import Request
from idem_middleware.outcomes import Refused, Replayed
from idem_middleware.settling import Recorded, Unrecorded
from idem_middleware.stores.base import AsyncStore
from idem_middleware.testing import Fault, FaultyStore, ManualClock
from tests.core.support.stores import YieldingStore
from tests.core.support.worlds import CREATED, SyncWorld, request

ADMITTED = Admitted(Options(), "k")
STEPS = range(25)  # more than a whole request takes
PATIENCE_SECONDS = 10


class YieldingFaults(FaultyStore):
    """Faults, behind a face that yields."""

    def to_async(self) -> AsyncStore:
        return YieldingStore(self)


class Process(SyncWorld):
    """A process whose engine is used from event loops, each call of the store with several awaits."""

    def __init__(self) -> None:
        super().__init__()
        self.runtime.store = self.store = YieldingFaults(self.memory)
        self.asynchronous = AsyncEngine(self.store, runtime=self.runtime)
        self.began = 0
        self.ended = 0

    async def handler(self, lease: AsyncLease | None) -> Response:
        """Does its work with an await in the middle."""
        self.began += 1
        await asyncio.sleep(0)
        self.ended += 1
        return CREATED

    async def serve(self) -> Response:
        """The one request of these tests."""
        return await self.asynchronous.run(request(), self.handler)

    async def attempt(self, body: bytes = b"", **options: object) -> object:
        """A try to get a lease."""
        return await self.asynchronous.acquire(request(body), Admitted(Options.from_mapping(options), "k"))

    async def lease_async(self) -> AsyncLease:
        """A lease."""
        lease = await self.attempt()
        assert isinstance(lease, AsyncLease)
        return lease


@pytest.fixture
def process() -> Process:
    """A fresh one."""
    return Process()


async def steps(number: int) -> None:
    """Let the loop turn."""
    for _ in range(number):
        await asyncio.sleep(0)


def assert_consistent(process: Process) -> None:
    """The rule is "did the handler start", not "was it cancelled" (elchin92/avito-mcp#60, caura-ai/caura#1629)."""
    process.pass_by(2, step=0.1)
    outcome = process.another().acquire()
    if process.ended:  # done: recorded, whatever was cancelled
        assert isinstance(outcome, Replayed)
    elif process.began:  # half-way: nobody knows, so the key is held until the lease is over
        assert isinstance(outcome, Refused)
        process.pass_by(62)
        assert process.another().lease().attempt == 2
    else:  # never begun: the retry need not wait
        assert not isinstance(outcome, Refused | Replayed)


@pytest.mark.parametrize("number", STEPS)
def test_a_request_that_is_cancelled_at_any_await_leaves_its_key_right(process: Process, number: int) -> None:
    """While it claims, while it runs, while it records, and after."""

    async def main() -> None:
        task = asyncio.create_task(process.serve())
        await steps(number)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or task.result() == CREATED
        await process.asynchronous._recordings.drain(PATIENCE_SECONDS)

    asyncio.run(main())
    assert_consistent(process)


@pytest.mark.parametrize("number", STEPS)
def test_a_loop_that_goes_down_at_any_await_leaves_its_key_right(process: Process, number: int) -> None:
    """What was being recorded is recorded beside the loop."""

    async def main() -> None:
        tasks = [asyncio.create_task(process.serve())]
        await steps(number)
        assert tasks

    asyncio.run(main())
    assert_consistent(process)


@pytest.mark.parametrize("number", STEPS)
def test_a_loop_that_just_stops_at_any_await_leaves_its_key_right(process: Process, number: int) -> None:
    """Without a word to its tasks, as some servers do when they are told twice to end."""
    loop = asyncio.new_event_loop()
    coroutine = process.serve()
    task = loop.create_task(coroutine)
    loop.run_until_complete(steps(number))
    loop.close()
    for unfinished in [task, *process.asynchronous._recordings._tasks]:
        unfinished._log_destroy_pending = False  # type: ignore[attr-defined]
        unfinished.get_coro().close()
    assert_consistent(process)


def test_the_steps_reach_beyond_a_whole_request(process: Process) -> None:
    """Or the tests above would prove less than they say."""

    async def main() -> bool:
        task = asyncio.create_task(process.serve())
        await steps(STEPS[-1])
        return task.done()

    assert asyncio.run(main())


def test_a_cancelled_completion_is_recorded_all_the_same(process: Process) -> None:
    """The cancellation comes out, and the write goes on."""

    async def main() -> None:
        lease = await process.lease_async()
        task = asyncio.create_task(lease.settle(CREATED))
        await steps(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert lease.settled
        lease.abandon()  # what an adapter may well do now changes nothing
        assert await process.asynchronous._recordings.drain(PATIENCE_SECONDS)

    asyncio.run(main())
    assert process.another().replay() == CREATED
    assert process.kinds() == ["claimed", "completed"]


def test_a_completion_that_waits_for_a_renewal_leaves_the_loop_free(process: Process) -> None:
    """The renewer is a thread that holds the lease's lock."""

    async def main() -> None:
        lease = await process.lease_async()
        with lease._claim.lock.held():  # the renewer
            task = asyncio.create_task(lease.settle(CREATED))
            await steps(10)
            assert not task.done()
        assert await task == Recorded()

    asyncio.run(main())


def test_a_completion_that_is_cancelled_while_it_waits_for_a_renewal_goes_on(process: Process) -> None:
    """Even if its loop is gone by the time that the renewal is done."""

    async def main(lease: AsyncLease) -> None:
        tasks = [asyncio.create_task(lease.settle(CREATED))]
        await steps(5)
        assert not tasks[0].done()

    async def claim() -> AsyncLease:
        return await process.lease_async()

    lease = asyncio.run(claim())
    with lease._claim.lock.held():
        asyncio.run(main(lease))
    process.pass_by(1, step=0.1)
    assert process.another().replay() == CREATED


def test_a_waiter_that_is_cancelled_hands_over(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one looks from then on."""
    sleepers = Sleepers(process.clock)
    monkeypatch.setattr(acquisition, "pause", sleepers.pause)

    async def main() -> None:
        lease = await process.lease_async()
        first, second = (asyncio.create_task(process.attempt(wait_seconds=30)) for _ in range(2))
        await steps(20)
        first.cancel()
        await steps(5)
        assert await lease.settle(CREATED) == Recorded()
        assert isinstance(await second, Replayed)
        assert first.cancelled()

    asyncio.run(main())
    assert process.runtime.flights._flights == {}


def test_many_waiters_of_a_key_look_once(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """One polls, all are told, and at once when the owner is in the same process."""
    sleepers = Sleepers(process.clock)
    monkeypatch.setattr(acquisition, "pause", sleepers.pause)

    async def main() -> None:
        lease = await process.lease_async()
        waiters = [asyncio.create_task(process.attempt(wait_seconds=30)) for _ in range(20)]
        await steps(20)
        process.calls()
        for _ in range(3):
            await sleepers.pass_by(1.0)
        assert process.calls() == ["load"] * 3
        assert await lease.settle(CREATED) == Recorded()
        assert all([isinstance(await waiter, Replayed) for waiter in waiters])
        assert process.calls() == ["swap", "load"]

    asyncio.run(main())


def test_who_comes_while_others_wait_asks_the_store_nothing(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand duplicates cost as many calls as two; only their own request is waited for."""
    sleepers = Sleepers(process.clock)
    monkeypatch.setattr(acquisition, "pause", sleepers.pause)

    async def main() -> None:
        lease = await process.lease_async()
        waiters = [asyncio.create_task(process.attempt(wait_seconds=30))]
        await steps(20)
        assert process.calls() == ["create", "create"]
        waiters += [asyncio.create_task(process.attempt(wait_seconds=30)) for _ in range(20)]
        await steps(20)
        assert process.calls() == []
        assert isinstance(await process.attempt(b"another", wait_seconds=30), Refused)
        assert isinstance(await process.attempt(), Refused)  # it has no time to wait
        assert process.calls() == ["create", "create"]
        assert await lease.settle(CREATED) == Recorded()
        assert all([isinstance(await waiter, Replayed) for waiter in waiters])
        assert process.calls() == ["swap", "load"]

    asyncio.run(main())


def test_waiters_take_over_one_at_a_time(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease ended: one runs, the others wait for that one."""
    sleepers = Sleepers(process.clock)
    monkeypatch.setattr(acquisition, "pause", sleepers.pause)
    process.another().lease(lease_seconds=3)

    async def main() -> None:
        waiters = {asyncio.create_task(process.attempt(wait_seconds=30)) for _ in range(5)}
        await steps(20)
        for _ in range(6):
            await sleepers.pass_by(1.0)
        done = {waiter for waiter in waiters if waiter.done()}
        (winner,) = [waiter.result() for waiter in done]
        assert isinstance(winner, AsyncLease)
        assert winner.attempt == 2
        await winner.settle(CREATED)
        assert {type(await waiter) for waiter in waiters - done} == {Replayed}

    asyncio.run(main())


class Sleepers:
    """Pauses that end when they are woken, or when a clock that is moved by hand has reached their end."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._sleeping: list[tuple[float, Signal]] = []

    async def pause(self, signal: Signal, seconds: float) -> None:
        """As `aio.concurrency.pause`."""
        sleeper = self._clock.monotonic() + seconds, signal
        self._sleeping.append(sleeper)
        try:
            await signal.wait(PATIENCE_SECONDS)
        finally:
            self._sleeping.remove(sleeper)

    async def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.advance(seconds)
        for until, signal in self._sleeping:
            if until <= self._clock.monotonic():
                signal.set()
        await steps(30)


class TestSeveralLoops:
    """One engine belongs to no loop (aio-libs/aiobotocore#807, terricain/aioboto3#180)."""

    def test_one_after_the_other(self, process: Process) -> None:
        """As `asyncio.run` for each request does it."""
        assert asyncio.run(process.serve()) == CREATED
        answer = asyncio.run(process.serve())
        assert (answer.body, answer.header("idempotent-replayed")) == (b"created", "true")
        assert process.ended == 1

    def test_a_lease_may_be_settled_on_another_loop(self, process: Process) -> None:
        """It belongs to none."""
        lease = asyncio.run(process.lease_async())

        async def settle() -> object:
            return await lease.settle(CREATED)

        assert asyncio.run(settle()) == Recorded()

    def test_at_once_in_several_threads(self, process: Process) -> None:
        """Exactly one runs, the others wait and get its answer."""
        answers: list[bytes] = []
        options = Options(wait_seconds=PATIENCE_SECONDS)
        engine = AsyncEngine(self_store := process.store, options, runtime=process.runtime)
        assert engine.store is self_store

        def work() -> None:
            async def main() -> Response:
                return await engine.run(request(), process.handler)

            answers.append(asyncio.run(main()).body)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert answers == [b"created"] * 8
        assert process.began == 1

    def test_a_blocking_lease_is_the_same_lease(self, process: Process) -> None:
        """For code of the request that runs on a thread."""
        lease = asyncio.run(process.lease_async())
        assert lease.blocking.settle(CREATED) == Recorded()
        assert lease.settled


class TestCaller:
    """The function may be a coroutine function."""

    @staticmethod
    def ask(process: Process, caller: Callable[[object], Awaitable[object]]) -> str | None:
        """Ask it."""
        admitted = Admitted(Options(caller=caller), "k")

        async def main() -> str | None:
            return await process.asynchronous.caller(admitted, "ada")

        return asyncio.run(main())

    def test_it_is_awaited(self, process: Process) -> None:
        """And gets the framework's request."""

        async def caller(native: object) -> object:
            await asyncio.sleep(0)
            return native

        assert self.ask(process, caller) == "ada"

    def test_one_that_raises_names_nobody(self, process: Process) -> None:
        """The cause is kept."""

        async def caller(native: object) -> object:
            raise LookupError(native)

        with pytest.raises(CallerUnknown) as caught:
            self.ask(process, caller)
        assert isinstance(caught.value.__cause__, LookupError)


def test_a_large_body_is_read_off_the_loop(process: Process) -> None:
    """It lies in a file."""
    threads: list[threading.Thread] = []

    def payload(sent: Request) -> int:
        threads.append(threading.current_thread())
        return 1

    async def main(size: int) -> None:
        with RequestBody() as body:
            body.write(b"x" * size)
            sent = Request(method="POST", path="/", body=body)
            await process.asynchronous.acquire(sent, Admitted(Options(payload=payload), str(size)))

    asyncio.run(main(SPOOL_BYTES))
    asyncio.run(main(SPOOL_BYTES + 1))
    assert [thread is threading.current_thread() for thread in threads] == [True, False]


class TestDraining:
    """At the end of a loop."""

    def test_what_is_being_recorded_is_waited_for(self, process: Process) -> None:
        """And what goes on beside it."""

        async def main() -> bool:
            lease = await process.lease_async()
            task = asyncio.create_task(lease.settle(CREATED))
            await steps(1)
            task.cancel()
            return await process.asynchronous.drain_async(PATIENCE_SECONDS)

        assert asyncio.run(main())
        assert process.another().replay() == CREATED

    def test_what_could_not_be_recorded_in_time_is_told(self, process: Process) -> None:
        """Here the upkeep has no threads."""

        async def main() -> bool:
            lease = await process.lease_async()
            process.store.fail(Fault.LOST_REQUEST, on="swap")
            assert await lease.settle(CREATED) == Unrecorded()
            return await process.asynchronous.drain_async(0)

        assert not asyncio.run(main())

    def test_a_recording_that_hangs_is_left(self) -> None:
        """After its time."""

        async def main() -> None:
            recordings = Recordings()
            hanging = asyncio.Event()
            task = asyncio.create_task(recordings.shielded(hanging.wait(), cancelled=lambda: None))
            await steps(1)
            assert not await recordings.drain(0)
            hanging.set()
            assert await task
            assert await recordings.drain(0)

        asyncio.run(main())

    def test_recordings_of_another_loop_are_not_waited_for(self) -> None:
        """They can't be."""
        recordings = Recordings()
        loop = asyncio.new_event_loop()
        hanging = asyncio.Event()

        async def begin() -> asyncio.Task[bool]:
            task = asyncio.create_task(recordings.shielded(hanging.wait(), cancelled=lambda: None))
            await steps(2)
            return task

        task = loop.run_until_complete(begin())
        assert asyncio.run(recordings.drain(PATIENCE_SECONDS))
        hanging.set()
        loop.run_until_complete(task)
        loop.close()

    def test_a_blocking_wait_is_off_the_loop_and_its_threads(self) -> None:
        """Those may all be busy."""

        async def main() -> tuple[float, bool]:
            loop = asyncio.get_running_loop()
            seen: list[float] = []
            others = threading.Event()
            loop.set_default_executor(Busy())

            def wait(seconds: float) -> bool:
                seen.append(seconds)
                others.set()
                return threading.current_thread() is not threading.main_thread()

            return seen[0] if await in_thread(wait, 3.0) else -1.0, others.is_set()

        assert asyncio.run(main()) == (3.0, True)


class Busy(asyncio.base_events.concurrent.futures.ThreadPoolExecutor):  # type: ignore[name-defined,misc]
    """Takes no work."""

    def submit(self, *_: object, **__: object) -> None:
        """Whoever asks waits for ever."""
        pytest.fail("the loop's own threads were asked")  # pragma: no cover - it must not come to this


class TestSignals:
    """Waking a coroutine from anywhere."""

    def test_one_that_is_set_ends_the_pause(self) -> None:
        """From another thread; and only the next one."""

        async def main() -> None:
            signal = Signal()
            threading.Thread(target=signal.set).start()
            await pause(signal, PATIENCE_SECONDS)
            await pause(signal, 0)

        asyncio.run(main())

    def test_one_of_a_closed_loop_is_nobodys(self) -> None:
        """Setting it does no harm."""

        async def main() -> Signal:
            return Signal()

        asyncio.run(main()).set()

    def test_a_thousand_waits_take_one_timer(self) -> None:
        """And all are over when their time is."""

        async def main(loop: LeapingLoop) -> None:
            await asyncio.gather(*[pause(Signal(), 5.0) for _ in range(1000)])
            assert loop.now == pytest.approx(5.0)
            assert loop.timers == 1

        LeapingLoop.run(main)

    def test_each_wait_ends_at_its_own_time(self) -> None:
        """In whatever order they began; one that begins after another has ended, too."""
        over: list[float] = []

        async def wait(loop: LeapingLoop, seconds: float) -> None:
            await pause(Signal(), seconds)
            over.append(loop.now)

        async def main(loop: LeapingLoop) -> None:
            await asyncio.gather(*[wait(loop, seconds) for seconds in (3.0, 1.0, 2.0, 1.0)])
            await wait(loop, 0.5)

        LeapingLoop.run(main)
        assert over == pytest.approx([1.0, 1.0, 2.0, 3.0, 3.5])

    def test_a_wait_that_was_cut_short_leaves_nothing_behind(self) -> None:
        """However long it would have been: a busy process has thousands of them each second."""

        async def main(loop: LeapingLoop) -> None:
            signal = Signal()
            waiting = asyncio.create_task(pause(Signal(), 1800.0))
            for _ in range(2000):
                signal.set()
                await pause(signal, 3600.0)
                leaving = asyncio.create_task(pause(signal, 3600.0))
                await asyncio.sleep(0)
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
            assert len(_alarms_of(loop)._ends) <= 128
            assert loop.now == 0
            waiting.cancel()
            await asyncio.sleep(0)
            assert not _alarms_of(loop)._ends
            await asyncio.sleep(3600)
            assert loop.wakings == 1, "its timer rang for nobody"

        LeapingLoop.run(main)

    def test_a_wait_that_was_ended_before_its_time_keeps_no_other_from_its_own(self) -> None:
        """The timer that was set for it rings for nobody, and is set for the next."""

        async def main(loop: LeapingLoop) -> float:
            signal = Signal()
            first = loop.create_task(pause(signal, 5.0))
            second = loop.create_task(pause(Signal(), 6.0))
            await asyncio.sleep(0)
            signal.set()
            await first
            await second
            return loop.now

        with contextlib.closing(LeapingLoop()) as loop:
            assert loop.run_until_complete(main(loop)) == pytest.approx(6.0, abs=0.01)

    def test_a_loop_that_rings_early_and_gives_bare_handles_will_do(self) -> None:
        """As uvloop, whose timers are as fine as a millisecond."""
        over: list[float] = []

        async def wait(loop: LeapingLoop, seconds: float) -> None:
            await pause(Signal(), seconds)
            over.append(loop.now)

        async def main(loop: LeapingLoop) -> None:
            await asyncio.gather(*[wait(loop, number / 4) for number in (3, 1, 2)])

        with contextlib.closing(CoarseLoop()) as loop:
            loop.run_until_complete(main(loop))
        assert over == pytest.approx([0.25, 0.5, 0.75], abs=0.01)
        assert loop.timers == 4  # one for each end, and the first end of all was thought to be another

    def test_a_thread_keeps_nothing_of_a_loop_that_is_closed(self) -> None:
        """Nor what hung on waits there, even if nobody cancelled them."""

        async def wait() -> None:
            await pause(Signal(), 5.0)

        loop = LeapingLoop()
        waiting = loop.create_task(wait())
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.run_until_complete(asyncio.sleep(0))
        gone = weakref.ref(loop)
        loop.close()
        del loop, waiting
        gc.collect()
        assert gone() is None


class LeapingLoop(asyncio.SelectorEventLoop):
    """Where nothing is to be done, time has passed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.timers = 0
        self.wakings = 0
        selector: Any = vars(self)["_selector"]
        self._look = selector.select
        selector.select = self._leap

    @classmethod
    def run(cls, main: Callable[[LeapingLoop], Coroutine[Any, Any, None]]) -> None:
        """One coroutine, from its beginning to its end."""
        with contextlib.closing(cls()) as loop:
            loop.run_until_complete(main(loop))

    def time(self) -> float:
        return self.now

    def call_at(self, *args: Any, **named: Any) -> asyncio.TimerHandle:  # type: ignore[override] # only counted
        self.timers += 1
        return super().call_at(*args, **named)

    def _leap(self, timeout: float | None) -> Any:
        self.wakings += bool(timeout)
        self.now += timeout or 0.0
        return self._look(0)


class CoarseLoop(LeapingLoop):
    """Its timers ring a little early, and tell nobody when."""

    def call_at(self, when: float, *args: Any, **named: Any) -> Any:  # type: ignore[override]
        handle = super().call_at(when - 0.004, *args, **named)
        return SimpleNamespace(cancel=handle.cancel) if args[0].__name__ == "_rung" else handle


def test_the_uncertain_claim_of_a_cancelled_request_is_undone(process: Process) -> None:
    """The write went on in its thread, and nothing runs under it."""

    async def main() -> None:
        task = asyncio.create_task(process.serve())
        await steps(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert process.began == 0
    process.pass_by(1, step=0.1)
    assert process.last(EventKind.CLAIM_UNDONE).key_digest


@pytest.fixture(autouse=True)
def no_task_is_forgotten() -> Iterator[None]:
    """Nothing of one test's loops is collected in another."""
    yield
    import gc  # noqa: PLC0415

    gc.collect()


def test_a_lease_of_a_thread_can_be_used_on_a_loop(process: Process) -> None:
    """As a coroutine view has it under a server of threads: one claim, and one end."""
    lease = process.lease()
    assert isinstance(lease, Lease)
    shared = process.asynchronous.lease_of(lease)
    assert isinstance(asyncio.run(shared.settle(CREATED)), Recorded)
    assert lease.settled
    assert shared.claim is lease.claim
    assert process.replay() == CREATED
