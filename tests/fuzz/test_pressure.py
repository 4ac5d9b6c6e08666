"""What goes on beside the requests, while much of it has to wait for a store that is away."""

from __future__ import annotations

import threading

from idem_middleware.upkeep import Lane, Upkeep


def test_late_recordings_do_not_wait_for_claims_that_are_undone() -> None:
    """At a shutdown nothing may keep an answer from its record that is of less importance."""
    upkeep = Upkeep()
    over, recorded = threading.Event(), threading.Event()

    def undo() -> None:
        over.wait()

    def record() -> None:
        recorded.set()

    for _ in range(50):
        upkeep.schedule(0.0, undo)
    upkeep.schedule(0.0, record, Lane.RECORDING)
    try:
        assert upkeep.drain(3.0)
        assert recorded.is_set()
    finally:
        over.set()
