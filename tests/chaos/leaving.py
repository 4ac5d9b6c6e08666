"""A process that ends in the middle of its work: `python -m tests.chaos.leaving HOW URL`."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from idem_middleware import Engine, Options, Request, Response
from idem_middleware.aio.lease import AsyncLease
from idem_middleware.blocking.lease import Lease
from idem_middleware.body import RequestBody
from idem_middleware.identity import Admitted

_LEASE_SECONDS = 1


def _request(key: str) -> Request:
    headers = (("idempotency-key", key),)
    return Request(method="POST", path="/orders", headers=headers, body=RequestBody.from_bytes(b"{}"))


def _lease(engine: Engine, key: str) -> Lease:
    request = _request(key)
    admitted = engine.admit_request(request)
    assert isinstance(admitted, Admitted)
    lease = engine.acquire(request, admitted, None)
    assert isinstance(lease, Lease)
    return lease


def leave_with_leases(engine: Engine) -> None:
    """The main thread ends while it holds leases that are renewed."""
    held = [_lease(engine, f"held-{number}") for number in range(3)]
    time.sleep(_LEASE_SECONDS)  # so that renewals have begun, and their threads are there
    assert len(held) == len({lease.key_digest for lease in held})


def leave_threads_behind(engine: Engine) -> None:
    """A daemon thread is in the middle of its handler when the interpreter goes down."""
    began = threading.Event()

    def work() -> None:
        def handler(lease: Lease | None) -> Response:
            began.set()
            time.sleep(3600)
            return Response(201)

        engine.run(_request("daemon"), handler)

    threading.Thread(target=work, daemon=True).start()
    assert began.wait(30)


def leave_a_loop(engine: Engine) -> None:
    """An event loop ends, and cancels its tasks, while they hold leases."""

    async def handler(lease: AsyncLease | None) -> Response:
        began.set()
        await asyncio.sleep(3600)
        return Response(201)

    async def main() -> None:
        global began  # noqa: PLW0603  # an event belongs to its loop
        began = asyncio.Event()
        task = asyncio.create_task(engine.asynchronous.run(_request("loop"), handler))
        await asyncio.wait_for(began.wait(), 30)
        assert not task.done()

    asyncio.run(main())


began: asyncio.Event

if __name__ == "__main__":
    ways = {"leases": leave_with_leases, "threads": leave_threads_behind, "loop": leave_a_loop}
    ways[sys.argv[1]](Engine(sys.argv[2], Options(caller="shared", lease_seconds=_LEASE_SECONDS)))
    sys.stdout.write("leaving\n")
