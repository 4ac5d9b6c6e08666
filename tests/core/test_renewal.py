"""When a lease is renewed: counted from what the store was sent, and with everything ready by then."""

from __future__ import annotations

from idem_middleware import Engine, Lease, MemoryStore, Options
from idem_middleware.identity import Identity
from idem_middleware.records import Record
from idem_middleware.runtime import Runtime
from idem_middleware.stores.base import Found, Gone, Written
from idem_middleware.testing import ManualClock
from idem_middleware.upkeep import Upkeep
from tests.support.overtaken import Overtaken

LEASE_SECONDS = 60.0


class SlowStore(MemoryStore):
    """Takes its time for each swap, and notes when it was opened."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.time = clock
        self.takes_seconds = 0.0
        self.opened_at: list[float] = []

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        written = super().swap(old, new, deadline)
        self.time.advance(self.takes_seconds)
        return written

    def open(self) -> None:
        """What a store does that has connections to make."""
        self.opened_at.append(self.time.monotonic())


def claimed(store: SlowStore, upkeep: Upkeep) -> Lease:
    """A lease that nothing but `upkeep` keeps alive."""
    options = Options(lease_seconds=LEASE_SECONDS)
    engine = Engine(store, options, runtime=Runtime(store, options, upkeep=upkeep))
    lease = engine.claim(Identity(pk="1", fingerprint=b"f", caller_digest=None, options=options))
    assert isinstance(lease, Lease)
    return lease


def expiry(store: SlowStore) -> float:
    """When the lease that stands in the store is over."""
    found = store.load("1", 0.0)
    assert isinstance(found, Found)
    return found.record.expires_at


def run_until(upkeep: Upkeep, clock: ManualClock, instant: float) -> None:
    """Let time pass, second by second."""
    while clock.monotonic() < instant:
        clock.advance(1.0)
        upkeep.run_due()


def test_a_slow_renewal_does_not_delay_the_next() -> None:
    """The lease began when it was sent: a reply that took most of it leaves little time."""
    clock = ManualClock()
    upkeep = Upkeep(threads=False, monotonic=clock.monotonic)
    store = SlowStore(clock)
    lease = claimed(store, upkeep)
    store.takes_seconds = 55.0
    run_until(upkeep, clock, 22.0)
    first = expiry(store)
    store.takes_seconds = 0.0
    clock.advance(1.0)
    upkeep.run_due()
    assert clock.now() < first
    assert expiry(store) > first
    assert not lease.settled


def test_a_first_renewal_does_not_wait_for_connections_of_its_own() -> None:
    """Making a client may take longer than a short lease has left; until then the requests' own one does."""
    clock = ManualClock()
    upkeep = Upkeep(threads=False, monotonic=clock.monotonic)
    store = SlowStore(clock)
    lease = claimed(store, upkeep)
    began = expiry(store)
    run_until(upkeep, clock, 20.0)
    assert expiry(store) == began + 20.0
    run_until(upkeep, clock, 21.0)
    assert store.opened_at == [21.0]
    assert not lease.settled


def test_short_work_opens_nothing() -> None:
    """Most requests are over long before their lease needs anything."""
    clock = ManualClock()
    upkeep = Upkeep(threads=False, monotonic=clock.monotonic)
    store = SlowStore(clock)
    claimed(store, upkeep).fail()
    run_until(upkeep, clock, 100.0)
    assert store.opened_at == []


def test_of_two_first_renewals_one_opens_the_store_beside_the_requests() -> None:
    """The other's connections would never be used."""
    runtime = Runtime(MemoryStore(), Options())
    lock = Overtaken(lambda: runtime.upkeep_store)
    runtime._twin_lock = lock  # type: ignore[assignment]
    assert runtime.upkeep_store is lock.seen is runtime.upkeep_store
