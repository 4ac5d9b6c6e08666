"""What a service does under attack: floods on one key and of fresh keys, slow and huge bodies, crowds of duplicates.

    python -m benchmarks.pressure [SCENARIO …] [--save]

Each scenario runs in a process of its own, against an application in that process and a store that takes 4 ms a call.
While it lasts, another caller sends a request of its own every 20 ms: what that costs him is the question. Nothing
leaves the process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from benchmarks.measuring import hardware, load, save, today, versions
from idem_middleware import Engine, MemoryStore, Options
from idem_middleware.body import RequestBody
from idem_middleware.clock import Clock
from idem_middleware.fingerprint import fingerprints
from idem_middleware.messages import Request
from idem_middleware.messages import Response as EngineResponse
from idem_middleware.records import Record
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.stores.direct import DirectStore
from idem_starlette import IdempotencyMiddleware

STORE_SECONDS = 0.004
WORK_SECONDS = 2.0
PROBE_SECONDS = 0.02
CROWD = 10_000
POOL_THREADS = 64


class SlowStore(MemoryStore):
    """A memory store as far away as a table in the same region; counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(max_entries=1_000_000)
        self.calls: Counter[str] = Counter()

    def create(self, new: Record, deadline: float) -> Written | Found:
        self.calls["create"] += 1
        time.sleep(STORE_SECONDS)
        return super().create(new, deadline)

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        self.calls["swap"] += 1
        time.sleep(STORE_SECONDS)
        return super().swap(old, new, deadline)

    def load(self, pk: str, deadline: float) -> Found | Gone:
        self.calls["load"] += 1
        time.sleep(STORE_SECONDS)
        return super().load(pk, deadline)

    def to_async(self) -> DirectStore:
        return _SlowAsync(self)


class _SlowAsync(DirectStore):
    def __init__(self, store: SlowStore) -> None:
        super().__init__(store)
        self._slow = store

    @property
    def clock(self) -> Clock:
        return self._slow.clock

    async def create(self, new: Record, deadline: float) -> Written | Found:
        self._slow.calls["create"] += 1
        await asyncio.sleep(STORE_SECONDS)
        return MemoryStore.create(self._slow, new, deadline)

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        self._slow.calls["swap"] += 1
        await asyncio.sleep(STORE_SECONDS)
        return MemoryStore.swap(self._slow, old, new, deadline)

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        self._slow.calls["load"] += 1
        await asyncio.sleep(STORE_SECONDS)
        return MemoryStore.load(self._slow, pk, deadline)


class Report:
    """What one scenario did."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.alone: list[float] = []
        self.beside: list[float] = []
        self.runs = 0
        self.calls: Counter[str] = Counter()
        self.most_threads = 0
        self.seconds = 0.0
        self._before_bytes = _peak_bytes()

    def start(self) -> None:
        """From here on memory counts."""
        self._before_bytes = _peak_bytes()

    def as_json(self) -> str:
        """For the parent process."""
        grown = (_peak_bytes() - self._before_bytes) / 2**20
        return json.dumps(
            {
                "answers": ", ".join(f"{n} × {status}" for status, n in sorted(self.statuses.items())),
                "runs": self.runs,
                "calls": ", ".join(f"{n} {name}" for name, n in sorted(self.calls.items())) or "none",
                "memory": f"{grown:.0f} MiB",
                "threads": self.most_threads,
                "seconds": f"{self.seconds:.1f}",
                "alone": _spread(self.alone),
                "beside": _spread(self.beside),
            }
        )


def _spread(seconds: Sequence[float]) -> str:
    if len(seconds) < 10:  # noqa: PLR2004 - too few to speak of a spread
        return f"at most {max(seconds) * 1000:.0f} ms ({len(seconds)})" if seconds else "-"
    cut = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"{cut[49] * 1000:.0f} / {cut[98] * 1000:.0f} ms"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- on an event loop: Starlette's adapter, called as a server calls it -----------------------------------------------

Body = Callable[[], Awaitable[dict[str, Any]]]


async def _send(
    app: Any, key: str, caller: str, body: Body | None = None, *, path: str = "/pay", length: int = 2
) -> int:
    async def two_bytes() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [
            (b"idempotency-key", key.encode()),
            (b"x-caller", caller.encode()),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % length),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    status = 0

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, body or two_bytes, send)
    return status


def _application(report: Report, store: SlowStore, **options: Any) -> Any:
    async def application(scope: Any, _: Any, send: Any) -> None:
        report.runs += 1
        if scope["path"] == "/slow":
            await asyncio.sleep(WORK_SECONDS)
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    protection: dict[str, Any] = {"caller": lambda request: request.headers["x-caller"], **options}
    return IdempotencyMiddleware(application, store=store, **protection)


async def _probe(app: Any, into: list[float], until: Callable[[], bool]) -> None:
    number = 0
    while not until():
        began = time.perf_counter()
        status = await _send(app, f"probe-{len(into)}-{number}-{id(into)}", "somebody else")
        assert status == 201, status  # noqa: PLR2004
        into.append(time.perf_counter() - began)
        number += 1
        await asyncio.sleep(PROBE_SECONDS)


async def _on_a_loop(report: Report, flood: Callable[[Any], Sequence[Awaitable[object]]], **options: Any) -> None:
    store = SlowStore()
    app = _application(report, store, **options)
    alone_until = time.perf_counter() + 2
    await _probe(app, report.alone, lambda: time.perf_counter() >= alone_until)
    before, probes = Counter(store.calls), len(report.alone)
    report.start()
    began = time.perf_counter()
    tasks = [asyncio.ensure_future(each) for each in flood(app)]
    probe = asyncio.ensure_future(_probe(app, report.beside, lambda: all(task.done() for task in tasks)))
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        report.statuses[type(result).__name__ if isinstance(result, BaseException) else str(result)] += 1
    report.seconds = time.perf_counter() - began
    await probe
    report.most_threads = threading.active_count()
    beside = len(report.beside)
    report.runs -= probes + beside
    report.calls = store.calls - before - Counter(create=beside, swap=beside)


def duplicates(report: Report) -> None:
    """10,000 duplicates at once of a request that takes 2 s; none waits (the default)."""
    asyncio.run(_on_a_loop(report, lambda app: [_send(app, "k", "ann", path="/slow") for _ in range(CROWD)]))


def waiting(report: Report) -> None:
    """The same with wait_seconds=60: 100 wait (max_waiters_per_key), the others do not."""
    asyncio.run(
        _on_a_loop(report, lambda app: [_send(app, "k", "ann", path="/slow") for _ in range(CROWD)], wait_seconds=60)
    )


def waiting_without_bound(report: Report) -> None:
    """The same with both bounds at 10,000, for comparison."""
    bounds = {"max_waiters": CROWD, "max_waiters_per_key": CROWD}
    asyncio.run(
        _on_a_loop(
            report,
            lambda app: [_send(app, "k", "ann", path="/slow") for _ in range(CROWD)],
            wait_seconds=60,
            **bounds,
        )
    )


def many_keys_waiting(report: Report) -> None:
    """20 duplicates of each of 500 requests of 2 s, wait_seconds=60: 1,000 wait (max_waiters)."""
    asyncio.run(
        _on_a_loop(
            report,
            lambda app: [_send(app, f"k{n % 500}", "ann", path="/slow") for n in range(CROWD)],
            wait_seconds=60,
        )
    )


def fresh_keys(report: Report) -> None:
    """10,000 fresh keys at once."""
    asyncio.run(_on_a_loop(report, lambda app: [_send(app, f"k{n}", "ann") for n in range(CROWD)]))


def unnamed(report: Report) -> None:
    """10,000 fresh keys at once of callers that the caller function does not know."""
    asyncio.run(
        _on_a_loop(
            report,
            lambda app: [_send(app, f"k{n}", "nobody") for n in range(CROWD)],
            caller=lambda request: None if request.headers["x-caller"] == "nobody" else "somebody else",
        )
    )


def slow_bodies(report: Report) -> None:
    """1,000 requests whose bodies come one byte in 100 ms, for 5 s, and then no more."""

    def drip() -> Body:
        sent = 0

        async def receive() -> dict[str, Any]:
            nonlocal sent
            sent += 1
            await asyncio.sleep(0.1)
            if sent > 50:  # noqa: PLR2004 - 5 s
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": b"x", "more_body": True}

        return receive

    asyncio.run(
        _on_a_loop(report, lambda app: [_send(app, f"k{n}", "ann", drip(), length=100_000) for n in range(1000)])
    )


def _huge(size: int) -> Body:
    left = size
    piece = b"x" * 65536

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= len(piece)
        await asyncio.sleep(0)
        return {"type": "http.request", "body": piece, "more_body": left > 0}

    return receive


def huge_bodies(report: Report) -> None:
    """20 bodies of 64 MiB at once, without max_request_bytes: they go to temporary files."""
    size = 64 * 2**20
    asyncio.run(
        _on_a_loop(report, lambda app: [_send(app, f"k{n}", "ann", _huge(size), length=size) for n in range(20)])
    )


def huge_bodies_refused(report: Report) -> None:
    """1,000 bodies of 64 MiB at once that lie about their length, with max_request_bytes=1 MiB."""
    size = 64 * 2**20
    asyncio.run(
        _on_a_loop(
            report,
            lambda app: [_send(app, f"k{n}", "ann", _huge(size), length=2) for n in range(1000)],
            max_request_bytes=2**20,
        )
    )


# --- on threads -------------------------------------------------------------------------------------------------------


def _on_threads(report: Report, **options: Any) -> None:
    """2,000 duplicates of a request of 2 s, on a server with 64 threads; the other caller stands in the same queue."""
    store = SlowStore()
    engine = Engine(store, Options(caller=lambda native: native, **options))

    def request(key: str, caller: str) -> Request:
        headers = (("idempotency-key", key),)
        return Request(method="POST", path="/", headers=headers, body=RequestBody.from_bytes(b"{}"), native=caller)

    def slow(_: object) -> EngineResponse:
        report.runs += 1
        time.sleep(WORK_SECONDS)
        return EngineResponse(201)

    pool = ThreadPoolExecutor(POOL_THREADS)

    def probe(into: list[float], until: Callable[[], bool]) -> None:
        while not until():
            began = time.perf_counter()
            key = f"probe-{id(into)}-{len(into)}"
            pool.submit(engine.run, request(key, "else"), lambda _: EngineResponse(201)).result()
            into.append(time.perf_counter() - began)
            time.sleep(PROBE_SECONDS)

    alone_until = time.perf_counter() + 2
    probe(report.alone, lambda: time.perf_counter() >= alone_until)
    before = Counter(store.calls)
    report.start()
    began = time.perf_counter()
    flood = [pool.submit(engine.run, request("k", "ann"), slow) for _ in range(2000)]
    probe(report.beside, lambda: all(each.done() for each in flood))
    report.seconds = time.perf_counter() - began
    report.statuses.update(str(each.result().status) for each in flood)
    report.most_threads = threading.active_count()
    report.calls = store.calls - before - Counter(create=len(report.beside), swap=len(report.beside))
    pool.shutdown()


def threads_waiting(report: Report) -> None:
    """2,000 duplicates of a request of 2 s, 64 threads, wait_seconds=60: 32 threads wait (max_waiting_threads)."""
    _on_threads(report, wait_seconds=60)


def threads_waiting_without_bound(report: Report) -> None:
    """The same with max_waiting_threads=64, for comparison."""
    _on_threads(report, wait_seconds=60, max_waiting_threads=POOL_THREADS)


SCENARIOS: dict[str, Callable[[Report], None]] = {
    each.__name__: each
    for each in (
        duplicates,
        waiting,
        waiting_without_bound,
        many_keys_waiting,
        threads_waiting,
        threads_waiting_without_bound,
        fresh_keys,
        unnamed,
        slow_bodies,
        huge_bodies,
        huge_bodies_refused,
    )
}


# --- is there a difference between a key that another caller uses and one that nobody does? ---------------------------


def foreign_key_times() -> list[str]:
    """One table row for each kind of key, in CPU and wall time of `Engine.run` with a memory store."""
    engine = Engine(MemoryStore(max_entries=1_000_000), Options(caller=lambda native: native))
    names = [f"key-{number:06}" for number in range(6_000)]

    def run(key: str, caller: str) -> int:
        headers = (("idempotency-key", key),)
        request = Request(method="POST", path="/", headers=headers, body=RequestBody.from_bytes(b"{}"), native=caller)
        began = time.perf_counter_ns()
        engine.run(request, lambda _: EngineResponse(201))
        return time.perf_counter_ns() - began

    for name in names[::2]:
        run(name, "ann")
    times: dict[str, list[int]] = {"used by another caller": [], "used by nobody": []}
    for number, name in enumerate(names):
        times["used by nobody" if number % 2 else "used by another caller"].append(run(name, "bob"))
    rows = []
    for kind, taken in times.items():
        cut = statistics.quantiles(taken, n=10, method="inclusive")
        rows.append(f"| {kind} | {len(taken)} | {cut[0] / 1000:.1f} | {cut[4] / 1000:.1f} | {cut[8] / 1000:.1f} |")
    return rows


def work_per_byte() -> list[str]:
    """One row for each kind of body: CPU nanoseconds per byte at growing sizes."""
    kinds: dict[str, tuple[str, Callable[[int], bytes]]] = {
        "JSON, one string": ("application/json", lambda n: b'"' + b"a" * (n - 2) + b'"'),
        "JSON, many members": (
            "application/json",
            lambda n: json.dumps({f"m{i:07}": i for i in range(n // 21)}).encode(),
        ),
        "JSON, backslashes without an end": ("application/json", lambda n: b'"' + b"\\" * (n - 1)),
        "JSON, brackets": ("application/json", lambda n: b"[" * n),
        "JSON, one number": ("application/json", lambda n: b"9" * n),
        "multipart, one part": (
            "multipart/form-data; boundary=b",
            lambda n: b"--b\r\nA: b\r\n\r\n" + b"x" * n + b"\r\n--b--",
        ),
        "multipart, what looks like boundaries": ("multipart/form-data; boundary=b", lambda n: b"\r\n--b" * (n // 5)),
        "multipart, almost boundaries": (
            "multipart/form-data; boundary=bbbbbbbbbbb",
            lambda n: b"--bbbbbbbbbbb\r\n\r\n" + b"\r\n--bbbbbbbbb" * (n // 13),
        ),
        "urlencoded": ("application/x-www-form-urlencoded", lambda n: b"a=%ff&" * (n // 6)),
        "anything else": ("application/octet-stream", lambda n: b"x" * n),
    }
    rows = []
    for kind, (content_type, make) in kinds.items():
        shown = []
        for size in (64 * 1024, 256 * 1024, 1020 * 1024, 4 * 2**20):
            body = make(size)
            best = min(_cpu_of(body, content_type) for _ in range(5))
            shown.append(f"{best / len(body):.1f}")
        rows.append(f"| {kind} | {' | '.join(shown)} |")
    return rows


def _cpu_of(body: bytes, content_type: str) -> int:
    began = time.process_time_ns()
    spooled = RequestBody()
    for start in range(0, len(body), 65536):
        spooled.write(body[start : start + 65536])
    fingerprints((None,), method="POST", path="/", query="", content_type=content_type, body=spooled)
    taken = time.process_time_ns() - began
    spooled.close()
    return taken


# --- the whole --------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the scenarios, each in a process of its own, and print a report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        report = Report()
        SCENARIOS[chosen.one](report)
        print(report.as_json())
        return
    lines = [
        f"# Pressure, {today()}",
        "",
        f"- {hardware()}; {load()}",
        f"- {versions('starlette', 'python-multipart')}",
        f"- `{' '.join(['python -m benchmarks.pressure', *chosen.scenarios])}`",
        "",
        "*memory* is what the process's peak grew by; *beside* is the median and the 99th percentile of a request that",
        "another caller sends every 20 ms during it, *alone* the same before it. The store takes 4 ms a call.",
        "",
        "| scenario | answers | handler runs | store calls | seconds | memory | threads | alone | beside |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for name in chosen.scenarios or SCENARIOS:
        lines.append(_row(name))
        print(lines[-1], flush=True)
    if not chosen.scenarios:
        lines += ["", "## Can a caller tell by time whether another one uses a key?", ""]
        lines += [
            "| the key is | requests | first decile µs | median µs | ninth decile µs |",
            "|---|---:|---:|---:|---:|",
        ]
        lines += foreign_key_times()
        lines += ["", "## Work per byte of a body: CPU ns", ""]
        lines += ["| body | 64 KiB | 256 KiB | 1020 KiB | 4 MiB |", "|---|---:|---:|---:|---:|", *work_per_byte()]
    print("\n".join(lines))
    if chosen.save:
        save("pressure", lines)


def _row(name: str) -> str:
    about = (SCENARIOS[name].__doc__ or "").strip().rstrip(".")
    done = None
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.pressure", "--one", name],
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    if done is None or done.returncode:
        return f"| {about} | it did not end | | | | | | | |"
    got = json.loads(done.stdout.splitlines()[-1])
    names = ("answers", "runs", "calls", "seconds", "memory", "threads", "alone", "beside")
    return f"| {about} | {' | '.join(str(got[key]) for key in names)} |"


if __name__ == "__main__":
    main()
