"""The probes that the tests of one process share: each starts when it is first asked for, all stop together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.servers.client import Service, is_fresh, plan
from tests.servers.table import REGION, Table
from tests.support.fault_proxy import FaultProxy
from tests.support.polling import eventually
from tests.support.probes import RunningProbe, running_probe
from tests.support.processes import ProcessFailedError


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """How a probe is started."""

    workers: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    module: str = "tests.probe"


DOCS_URL = "https://docs.example.com/idempotency"

ONE_WORKER = Setup()
TWO_WORKERS = Setup(workers=2)
# As few probes as can be, since each takes more of the tests' time than all of its requests: whatever is not the
# default in one of them, as far as no option stands in another's way, and other middleware around it.
DEMANDING = Setup(
    workers=2,
    options={
        "strict_key": True,
        "key_pattern": "uuid",
        "docs_url": DOCS_URL,
        "wait_seconds": 15,
        "on_error": "store",
        "on_abandoned": "refuse",
        "tombstone_seconds": 7 * 86400,
        "on_expired": "refuse",
    },
    module="tests.servers.layered_probe",
)
# Its leases are as short as they can be.
SHORT_LEASES = Setup(workers=2, options={"lease_seconds": 1})


class Probes:
    """All probes of this test process, with one table each."""

    def __init__(self, local: str, proxy: FaultProxy, folder: Path) -> None:
        self._local = local
        self._proxy = proxy
        self._folder = folder
        self._stack = ExitStack()
        self._running: dict[tuple[str, Setup], tuple[RunningProbe, Table] | ProcessFailedError] = {}

    @contextmanager
    def service(self, framework: str, setup: Setup) -> Iterator[Service]:
        """Give a client of one probe."""
        if (framework, setup) not in self._running:
            self._running[framework, setup] = self._start(framework, setup)
        running = self._running[framework, setup]
        if isinstance(running, ProcessFailedError):
            raise running
        with Service(*running, self._proxy) as service:
            yield service

    def stop(self) -> None:
        """Stop all of them, at once rather than one after the other."""
        for running in self._running.values():
            if not isinstance(running, ProcessFailedError):
                running[0].process.terminate()
        self._stack.close()

    def _start(self, framework: str, setup: Setup) -> tuple[RunningProbe, Table] | ProcessFailedError:
        table = Table(f"servers-{uuid4().hex}", self._local)
        self._stack.callback(table.close)
        try:
            probe = self._stack.enter_context(self.started(framework, setup, table))
        except ProcessFailedError as failed:  # each test that needs it fails, without another try
            return failed
        with Service(probe, table, self._proxy) as service:
            let_every_worker_call(service, setup.workers)
        return probe, table

    @contextmanager
    def started(self, framework: str, setup: Setup, table: Table, log: Path | None = None) -> Iterator[RunningProbe]:
        """Start a probe of one's own."""
        with running_probe(
            framework,
            log or self._folder / f"{table.name}.log",
            store=f"dynamodb://{table.name}?region={REGION}&endpoint={self._proxy.url}",
            workers=setup.workers,
            options=setup.options,
            module=setup.module,
        ) as probe:
            yield probe


def let_every_worker_call(service: Service, workers: int) -> None:
    """Have each worker make its first call to the store, which takes longer than all the others."""

    def all_called() -> bool:
        sent = [service.send_in_background(plan(delay=0.02), key=f'"{uuid4()}"') for _ in range(2 * workers)]
        for request in sent:
            is_fresh(request.result())
        return len({run["pid"] for run in service.probe.records(service.name)}) == workers

    eventually(all_called, what="a request to every worker")
