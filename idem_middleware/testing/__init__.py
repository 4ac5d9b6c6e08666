"""For tests: of services that use this library, and of stores that are written for it.

    assert_idempotent(client, request)   sends a request twice and at once, and explains what differed
    ManualClock                          time that is moved by hand
    FaultyStore, Fault                   a store that fails where you say
    plugin                               fixtures for pytest, there as soon as the package is installed
    contract                             what every store does, for whoever writes one; needs pytest

`docs/testing.md` shows each.
"""

from __future__ import annotations

from idem_middleware.testing.clients import ClientRequest, Sent, assert_idempotent, assert_idempotent_async
from idem_middleware.testing.doubles import Call, Fault, FaultyStore, ManualClock, Operation

__all__ = [
    "Call",
    "ClientRequest",
    "Fault",
    "FaultyStore",
    "ManualClock",
    "Operation",
    "Sent",
    "assert_idempotent",
    "assert_idempotent_async",
]
