"""The probes that the tests of one process share: each starts when it is first asked for, all stop together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, contextmanager
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.servers.client import Service
from tests.servers.table import REGION, Table
from tests.support.fault_proxy import FaultProxy
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
# Whatever the product can be asked to be strict about.
STRICT = Setup(
    workers=2,
    options={"strict_key": True, "docs_url": DOCS_URL, "on_error": "store", "on_abandoned": "refuse"},
)
# Whoever comes second waits; and keys must be UUIDs. Around it are a cross-origin and a compressing middleware.
PATIENT = Setup(workers=2, options={"wait_seconds": 15, "key_pattern": "uuid"}, module="tests.servers.layered_probe")
# Its workers are made to crash, and its leases are as short as they can be.
CRASHING = Setup(workers=2, options={"lease_seconds": 1})


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
            return self._stack.enter_context(self.started(framework, setup, table)), table
        except ProcessFailedError as failed:  # each test that needs it fails, without another try
            return failed

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
