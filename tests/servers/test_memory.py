"""A large upload stays out of memory; the 200 MiB one is `python -m benchmarks.uploads`."""

from __future__ import annotations

import pytest

from tests.servers.client import Service
from tests.support.uploads import MIB, Kind, can_measure, peak_bytes

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.processes,
    pytest.mark.dynamodb_local,
    pytest.mark.skipif(not can_measure(), reason="this system tells no peak of a process"),
]

# More than the bound: whoever holds all of it in memory is found out. Measured: 0 to 6 MiB, with us and without.
_UPLOAD_MIB = 48
_MOST_ABOVE_BARE_MIB = 32


@pytest.mark.parametrize("kind", ["raw", "form"])
def test_a_large_upload_takes_little_more_memory_than_without_protection(single_service: Service, kind: Kind) -> None:
    """However the handler reads it (paveg/hono-idempotency#80, josipmusa/idempotency4j#43)."""
    service = single_service

    def peak_mib(route: str) -> float:
        path = f"/{route}/{service.name}"
        return peak_bytes(service.probe.port, path, kind, mebibytes=_UPLOAD_MIB, key=service.key) / MIB

    assert peak_mib("probe") < peak_mib("exempt") + _MOST_ABOVE_BARE_MIB
    service.ran(2)
