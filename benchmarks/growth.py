"""How costs grow: with live keys, bodies, waiters on one key, and leases that are renewed.

    python -m benchmarks.growth [--most-keys N] [--most-leases N] [--seconds N] [--save]

Nothing may grow faster than what it handles, or at all with what it does not touch.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from threading import get_ident

from benchmarks.clients import claim, completed
from benchmarks.measuring import hardware, load, save, today, versions
from idem_middleware import Engine, Event, EventKind, Lease, MemoryStore, Options, Request, Response, StoreUnavailable
from idem_middleware.body import RequestBody
from idem_middleware.cache import AnswerCache
from idem_middleware.fingerprint import fingerprints
from idem_middleware.records import Record
from idem_middleware.stores.base import Found, Gone, Written

CALL_SECONDS = 0.004
"""As a write takes in a region."""
BROWN_OUT_SECONDS = 5.0
_SAMPLE = 2000
_PIECE_BYTES = 64_000
_numbers = count()
_Results = dict[str, dict[int, float]]


def powers(most: int, least: int = 1) -> Iterator[int]:
    """Powers of ten."""
    number = least
    while number <= most:
        yield number
        number *= 10


def cheapest(once: Callable[[], object], calls: int = _SAMPLE, rounds: int = 7) -> float:
    """CPU microseconds per call, of the best round: other work on the machine only ever adds."""
    costs = []
    for _ in range(rounds):
        began = time.process_time_ns()
        for _ in range(calls):
            once()
        costs.append((time.process_time_ns() - began) / calls / 1000)
    return min(costs)


def keys(most: int) -> _Results:
    """A claim and its completion in a MemoryStore, and a look into the local cache, with so many keys that live."""
    results: _Results = {"MemoryStore: claim and completion, µs": {}, "local cache: found, µs": {}, "kept, µs": {}}
    for number in powers(most, 1000):
        first = claim(time.time())
        store, cache = MemoryStore(max_entries=2 * most, max_bytes=1 << 40), AnswerCache()
        for pk in range(number):
            record = replace(first, pk=f"{pk:064x}", expires_at=first.expires_at + pk)
            store.create(record, 0)
            cache.keep(completed(record, b"x" * 64), 1 << 40)
        gc.collect()
        gc.freeze()

        def once(store: MemoryStore = store, first: Record = first) -> None:
            record = replace(first, pk=f"new-{next(_numbers):060x}")
            store.create(record, 0)
            store.swap(record, completed(record, b"x" * 64), 0)

        def keep(cache: AnswerCache = cache, first: Record = first) -> None:
            cache.keep(replace(completed(first, b"x" * 64), pk=f"new-{next(_numbers):060x}"), 1 << 40)

        def find(cache: AnswerCache = cache, number: int = number) -> None:
            cache.find(f"{next(_numbers) * 7919 % number:064x}")

        works: tuple[Callable[[], None], ...] = (once, find, keep)
        for name, work in zip(results, works, strict=True):
            results[name][number] = cheapest(work)
        gc.unfreeze()
    return results


def bodies(most_bytes: int) -> _Results:
    """A request's body: taken in by pieces and compared."""
    results: _Results = {"JSON, µs": {}, "other, µs": {}, "other, peak memory added, MB": {}}
    for size in powers(most_bytes, 1000):
        piece = b"[" + b"1," * ((min(size, _PIECE_BYTES) - 3) // 2) + b"1]"

        def whole(media_type: str, size: int = size, piece: bytes = piece) -> None:
            with RequestBody() as body:
                for _ in range(max(1, size // len(piece))):
                    body.write(piece)
                fingerprints((None,), method="POST", path="/", query="", content_type=media_type, body=body)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        calls = max(1, min(200, 10_000_000 // size))
        results["other, µs"][size] = cheapest(lambda: whole("application/octet-stream"), calls, 3)
        results["other, peak memory added, MB"][size] = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        ) / 1024
        results["JSON, µs"][size] = cheapest(lambda: whole("application/json"), calls, 3)
    return results


class Counted(MemoryStore):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(max_entries=2_000_000)
        self.calls = 0

    def create(self, new: Record, deadline: float) -> Written | Found:
        self.calls += 1
        return super().create(new, deadline)

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        self.calls += 1
        return super().swap(old, new, deadline)

    def load(self, pk: str, deadline: float) -> Found | Gone:
        self.calls += 1
        return super().load(pk, deadline)


def post(key: str) -> Request:
    """A request with this key."""
    return Request(method="POST", path="/", headers=(("idempotency-key", key),))


async def waiters(number: int, seconds: float) -> dict[str, float]:
    """So many duplicates wait for one request of so many seconds, while others are served."""
    store, others = Counted(), Counted()
    engine = Engine(store, Options(caller="shared", wait_seconds=2 * seconds)).asynchronous
    bystanders = Engine(others, Options(caller="shared")).asynchronous
    latencies: list[float] = []
    done = asyncio.Event()

    async def slow(_: object) -> Response:
        await asyncio.sleep(seconds)
        return Response(201)

    async def quick(_: object) -> Response:
        return Response(201)

    async def others_meanwhile() -> None:
        while not done.is_set():
            began = time.perf_counter()
            await bystanders.run(post(f"other-{next(_numbers)}"), quick)
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(0.002)

    owner = asyncio.create_task(engine.run(post("one"), slow))
    await asyncio.sleep(0.05)
    arrived = [asyncio.create_task(engine.run(post("one"), slow)) for _ in range(number)]
    await asyncio.sleep(0.3)  # they have arrived, each with its own call; from here on they only wait
    creates = store.calls
    # The one for which all wait has a timer of its own: its work is a sleep.
    timers = sum(not timer.cancelled() for timer in asyncio.get_running_loop()._scheduled) - 1  # type: ignore[attr-defined]  # noqa: SLF001  # nothing public tells
    cpu = time.process_time()
    meanwhile = asyncio.create_task(others_meanwhile())
    await owner
    done.set()
    await asyncio.gather(meanwhile, *arrived)
    return {
        "store calls when they arrived": creates,
        "store calls while they waited": store.calls - creates,
        "timers": timers,
        "CPU of all, ms": (time.process_time() - cpu) * 1000,
        "others: median, µs": statistics.median(latencies) * 1e6,
        "others: p99, µs": statistics.quantiles(latencies, n=100)[98] * 1e6,
    }


def waiters_in_turns(numbers: Sequence[int], seconds: float) -> dict[int, dict[str, float]]:
    """The same for each number, three times in turn: the middle of each figure."""
    rounds = [{number: asyncio.run(waiters(number, seconds)) for number in numbers} for _ in range(3)]
    return {
        number: {name: statistics.median(each[number][name] for each in rounds) for name in rounds[0][number]}
        for number in numbers
    }


class Remote(MemoryStore):
    """Takes the time of a region for what is written beside the requests, and is away for a while when told."""

    def __init__(self) -> None:
        super().__init__(max_entries=2_000_000)
        self.away = False
        self.calls = 0
        self._requests = get_ident()

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        if get_ident() != self._requests:
            self.calls += 1
            if self.away:
                time.sleep(max(0.0, min(1.0, deadline - self.clock.monotonic())))
                raise StoreUnavailable("away", code="Away")
            time.sleep(CALL_SECONDS)
        return super().swap(old, new, deadline)


def leases(number: int, seconds: float) -> dict[str, float]:
    """So many leases of 60 s are kept for so long; in the middle the store is away."""
    lost: list[Event] = []

    def observe(event: Event) -> None:
        if event.kind in {EventKind.LEASE_LOST, EventKind.ABANDONED}:
            lost.append(event)

    store = Remote()
    options = Options(caller="shared", observers=(observe,))
    engine = Engine(store, options)
    held: list[Lease] = []
    for key in range(number):
        admitted = engine.admit(options, "POST", "/", [f"lease-{key}"])
        outcome = engine.acquire(post(f"lease-{key}"), admitted)  # type: ignore[arg-type]  # it has a key
        assert isinstance(outcome, Lease)
        held.append(outcome)
    cpu, began = time.process_time(), time.monotonic()
    time.sleep(seconds / 2)
    store.away = True
    time.sleep(BROWN_OUT_SECONDS)
    store.away = False
    time.sleep(seconds / 2)
    cpu, wall = time.process_time() - cpu, time.monotonic() - began
    calls = store.calls
    for lease in held:
        lease.abandon()
    lost_in_time = len([event for event in lost if event.kind is EventKind.LEASE_LOST])
    # What the same calls cost by themselves, on one thread.
    bare = cheapest(lambda: time.sleep(CALL_SECONDS), 100, 3) + 5.0
    return {
        "calls": calls,
        "lost": lost_in_time,
        "CPU, % of a core": 100 * cpu / wall,
        "of that the calls, %": 100 * calls * bare / 1e6 / wall,
    }


def grid(title: str, rows: dict[int, dict[str, float]], first: str) -> Iterator[str]:
    """Lines of Markdown: one line for each size."""
    names = list(next(iter(rows.values())))
    yield from ("", f"## {title}", "", f"| {first} | {' | '.join(names)} |", f"|---:|{'---:|' * len(names)}")
    for number, row in rows.items():
        yield f"| {number:,} | {' | '.join(f'{row[name]:,.1f}' for name in names)} |"


def turned(results: _Results) -> dict[int, dict[str, float]]:
    """By size instead of by name."""
    sizes = next(iter(results.values()))
    return {size: {name: row[size] for name, row in results.items()} for size in sizes}


def main() -> None:
    """Print a report, and keep it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most-keys", type=int, default=1_000_000)
    parser.add_argument("--most-leases", type=int, default=10_000)
    parser.add_argument("--most-bytes", type=int, default=100_000_000)
    parser.add_argument("--most-waiters", type=int, default=1000)
    parser.add_argument("--waiting-seconds", type=float, default=5.0, help="how long they wait")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long leases are kept, the brown-out aside")
    parser.add_argument("--save", action="store_true", help="into benchmarks/results, under today's date")
    arguments = parser.parse_args()
    began = load()
    by_leases = {number: leases(number, arguments.seconds) for number in powers(arguments.most_leases)}
    by_waiters = waiters_in_turns((0, *powers(arguments.most_waiters)), arguments.waiting_seconds)
    by_bytes = turned(bodies(arguments.most_bytes))
    by_keys = turned(keys(arguments.most_keys))
    options = f"--most-keys {arguments.most_keys} --most-leases {arguments.most_leases} --seconds {arguments.seconds:g}"
    lines = [
        f"# Growth, {today()}",
        "",
        f"- {hardware()}; {began}",
        f"- {versions()}",
        f"- `python -m benchmarks.growth {options}`",
        *grid("Live keys", by_keys, "keys"),
        *grid("Request bodies", by_bytes, "bytes"),
        *grid(f"Waiters on one request of {arguments.waiting_seconds:g} s", by_waiters, "waiters"),
        *grid(f"Leases, renewed at 4 ms a call, with a brown-out of {BROWN_OUT_SECONDS:g} s", by_leases, "leases"),
    ]
    print("\n".join(lines))
    if arguments.save:
        raw = {"keys": by_keys, "bytes": by_bytes, "waiters": by_waiters, "leases": by_leases}
        save("growth", lines, raw)


if __name__ == "__main__":
    main()
