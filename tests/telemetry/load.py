"""A service under load, in which all that happens that the dashboard knows: `python -m tests.telemetry.load`.

Time is moved by hand, so that leases end and slow handlers are slow without anybody waiting. DynamoDB is a stub that
answers with its errors. Prints "ready" when the metrics can be scraped, and goes on until it is told to stop.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import start_http_server

from idem_middleware import DynamoDBStore, Engine, Event, EventKind, Lease, MemoryStore, Options, Request, Response
from idem_middleware.body import RequestBody
from idem_middleware.errors import RequestRefused
from idem_middleware.runtime import Runtime
from idem_middleware.telemetry.prometheus import PrometheusObserver
from idem_middleware.testing import Fault, FaultyStore, ManualClock
from idem_middleware.upkeep import Upkeep

OBSERVER = PrometheusObserver()
_ROUNDS = 1200
_PAUSE_SECONDS = 0.1

Work = Callable[[Lease | None], object]


class Service:
    """One process of it."""

    def __init__(self) -> None:
        self.clock = ManualClock(margin_seconds=2.0)
        self.store = FaultyStore(MemoryStore(clock=self.clock))
        self.upkeep = Upkeep(monotonic=self.clock.monotonic, threads=False)
        self._keys = (f"order-{number}" for number in itertools.count(1))

    def engine(self, **options: object) -> Engine:
        """With these options."""
        chosen = Options.from_mapping({"observers": [OBSERVER], **options})
        runtime = Runtime(self.store, chosen, upkeep=self.upkeep, pause=self._pause, log=lambda event: None)
        return Engine(self.store, runtime=runtime)

    def run(
        self, work: Work = lambda lease: "done", *, key: str | None = None, payload: int = 0, **options: object
    ) -> str:
        """Do a piece of work, and give its key."""
        key = next(self._keys) if key is None else key
        with suppress(RequestRefused, ArithmeticError, SystemExit):
            self.engine(**options).run_once(key, payload, work)
        return key

    def pass_time(self, seconds: float) -> int:
        """Let it pass, and what is due be done; gives how much that was."""
        self.clock.advance(seconds)
        return self.upkeep.run_due()

    def _pause(self, woken: threading.Event, seconds: float) -> bool:
        self.clock.advance(seconds)
        return woken.is_set()


def fail(lease: Lease | None) -> object:
    """A handler with a bug."""
    raise ArithmeticError


def die(lease: Lease | None) -> object:
    """A worker that is told to go in the middle of a handler."""
    raise SystemExit


def ordinary_day(service: Service) -> None:
    """New requests, retries, clients' mistakes, and handlers that fail or take long."""
    for _ in range(5):
        service.run()
    key = service.run()
    for _ in range(30):
        service.run(key=key)  # a storm
    service.run(key=key, payload=1)  # key-reused
    for _ in range(4):
        service.run(key=service.run(fail))  # and run again
    service.run(lambda lease: [service.pass_time(25) for _ in range(2)])  # renewed
    engine = service.engine()
    request = Request(method="POST", path="/orders", body=RequestBody())
    for _ in range(4):
        engine.run(request, lambda lease: Response(201))  # key-missing
    redirect = Request(method="POST", path="/orders", headers=(("idempotency-key", service.run()),))
    engine.run(redirect, lambda lease: Response(307))  # released


def crashes(service: Service) -> None:
    """Workers that go, handlers that take too long, leases that end."""
    key = service.run(die)
    service.pass_time(63)
    service.run(key=key)  # taken over
    key = service.run(die, on_abandoned="refuse")
    service.pass_time(63)
    service.run(key=key, on_abandoned="refuse")  # outcome-unknown

    def stall(lease: Lease | None) -> object:
        service.clock.advance(63)
        return service.run(key="order-overtaken")

    service.run(stall, key="order-overtaken")  # lost, and executed without being recorded
    service.run(
        lambda lease: [service.pass_time(11) for _ in range(3)],
        lease_seconds=30,
        max_execution_seconds=30,
    )

    def duplicate(lease: Lease | None) -> object:
        return service.run(key="order-watched", wait_seconds=1)

    service.run(duplicate, key="order-watched")  # waits, then in-progress
    service.clock.advance(100_000)  # those two keys are free again


def bad_store(service: Service) -> None:
    """No answers in time: to a claim, to a completion."""
    service.store.fail(Fault.LOST_REQUEST, on="create")
    service.run(on_store_error="bypass")
    service.store.fail(Fault.LOST_REPLY, on="create")
    service.run()
    service.pass_time(1)  # undone
    service.store.fail(Fault.LOST_REQUEST, on="swap", times=None)
    service.run()
    for _ in range(14):
        service.pass_time(5)  # executed, not recorded
    service.store.recover()


class Stub(BaseHTTPRequestHandler):
    """DynamoDB, throttling or refusing, with a clock of its own."""

    code = "ThrottlingException"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer any call with the error."""
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"__type": "com.amazonaws.dynamodb.v20120810#%s", "message": "no"}' % type(self).code.encode()
        self.send_response_only(400)
        self.send_header("Date", self.date_time_string(time.time() + 120))
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Nothing."""


class DeniedStub(Stub):
    """One that does not know this service."""

    code = "AccessDeniedException"


def dynamodb_says_no(kind: type[Stub]) -> None:
    """Through the real client."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        store = DynamoDBStore(
            "orders", region="eu-central-1", endpoint=endpoint, transport="lean", deadline_seconds=0.5
        )
        engine = Engine(store, Options(observers=(OBSERVER,)))
        with suppress(RequestRefused):
            engine.run_once("order-1", None, lambda lease: "done")
    finally:
        server.shutdown()
        server.server_close()


def what_a_real_table_says() -> None:
    """Told directly: it takes DynamoDB's conditions and transactions, its sweeper, or a second region."""
    for kind in (
        EventKind.CONDITION_FAILED,
        EventKind.TRANSACTED,
        EventKind.CHECKPOINTED,
        EventKind.CROWDED,
        EventKind.LATE_DUPLICATE,
        EventKind.CROSS_REGION_DUPLICATE,
    ):
        OBSERVER(Event(kind=kind))
    OBSERVER(Event(kind=EventKind.TRANSACTION_CANCELLED, reason="TransactionConflict"))
    OBSERVER(Event(kind=EventKind.RECORD_REJECTED, reason="authentication"))
    OBSERVER(Event(kind=EventKind.PROBED, reason="unknown"))
    OBSERVER(Event(kind=EventKind.TTL_REMOVED, seconds=3600.0))


def main() -> None:
    """Serve metrics, and work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    start_http_server(parser.parse_args().port, addr="127.0.0.1")
    for number in range(_ROUNDS):
        service = Service()
        ordinary_day(service)
        crashes(service)
        bad_store(service)
        service.run(lambda lease: service.clock.advance(45))  # noqa: B023 - it runs at once
        dynamodb_says_no(Stub)
        dynamodb_says_no(DeniedStub)
        what_a_real_table_says()
        if number == 0:
            print("ready", flush=True)  # noqa: T201 - for who started us
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
