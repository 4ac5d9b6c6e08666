"""Several regions, and one home for each key: all that is written and read of a key happens in one of them.

In a global table with eventual consistency a condition sees one region alone, so two regions could both claim a key.
With a home for each key there is one place where its condition is judged, wherever its requests arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from hashlib import sha256
from threading import Lock
from types import MappingProxyType
from typing import Any

from idem_middleware.clock import Clock, CorrectedClock
from idem_middleware.errors import ConfigurationError, StoreMisconfigured
from idem_middleware.events import Observer
from idem_middleware.keys import PLACE, caller_partition
from idem_middleware.records import Record
from idem_middleware.stores.base import AsyncStore, Cancelled, Found, Gone, Written
from idem_middleware.stores.dynamodb.describing import TableDescription
from idem_middleware.stores.dynamodb.listing import UsedKey
from idem_middleware.stores.dynamodb.reconciling import Reconciled, reconcile
from idem_middleware.stores.dynamodb.store import DynamoDBStore
from idem_middleware.stores.faces import Face
from idem_middleware.transactions import Transaction

__all__ = ["AsyncRegionalStore", "Homes", "RegionalStore"]

logger = logging.getLogger("idem_middleware")

RISK = (
    "what was claimed or answered there and had not been replicated can run a second time, and so can requests that "
    "reach a process which has not been told"
)


class Homes:
    """Which region is the home of which key. Safe under threads.

    Rendezvous hashing: each region gives each key a weight, and the heaviest is its home. When a region goes, its keys
    alone move, evenly to the others; they come back when it does.
    """

    def __init__(self, regions: Sequence[str], evacuated: Iterable[str] = ()) -> None:
        self.regions = tuple(regions)
        self._lock = Lock()
        self._evacuated = frozenset(evacuated)
        problems = list(self._problems())
        if problems:
            raise ConfigurationError(problems)

    @property
    def evacuated(self) -> frozenset[str]:
        """The regions that are given up for now."""
        return self._evacuated

    def home_of(self, pk: str) -> str:
        """The region of this record. A caller's partition has one home as a whole."""
        place = pk.partition(PLACE)[2] or pk
        given_up = self._evacuated
        return max(
            (region for region in self.regions if region not in given_up), key=lambda region: _weight(region, place)
        )

    def evacuate(self, region: str) -> None:
        """Give a region up until it is restored: each of its keys has the next one as its home.

        Raises:
            ConfigurationError: it is none of the regions, or the last one.

        """
        self._set(self._evacuated | {region})

    def restore(self, region: str) -> None:
        """Take a region back."""
        self._set(self._evacuated - {region})

    def _set(self, evacuated: frozenset[str]) -> None:
        with self._lock:
            before, self._evacuated = self._evacuated, evacuated
            problems = list(self._problems())
            if problems:
                self._evacuated = before
                raise ConfigurationError(problems)

    def _problems(self) -> Iterator[str]:
        if not self.regions:
            yield "regions is empty: name at least one"
        if len(set(self.regions)) != len(self.regions):
            yield f"a region is named twice: {', '.join(self.regions)}"
        unknown = sorted(self._evacuated - set(self.regions))
        if unknown:
            yield f"{', '.join(unknown)} can't be evacuated: it is none of {', '.join(self.regions)}"
        elif self.regions and not set(self.regions) - self._evacuated:
            yield "no region is left: not all of them can be evacuated"


def _weight(region: str, place: str) -> bytes:
    return sha256(f"{region}\0{place}".encode()).digest()


class RegionalStore:
    """Records in the tables of several regions, each key's in its home. A store as any other.

    Every process, in every region, must be given the same `regions`, in any order; processes that disagree are as if
    keys had no home. Other settings are `DynamoDBStore`'s, the same for each region; `endpoints` is for emulators.

    Where a home can't be reached, its keys are refused (503), or whatever `on_store_error` says: nothing moves by
    itself. `evacuate` moves them, at a risk that the operator takes: what was claimed or answered there and had not
    been replicated can run a second time.

    Raises:
        ConfigurationError: no region, one twice, an unknown one evacuated; and what `DynamoDBStore` raises.

    """

    def __init__(
        self,
        table: str,
        regions: Sequence[str],
        *,
        evacuated: Iterable[str] = (),
        endpoints: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(regions, str):
            raise ConfigurationError([f"regions must be a list of regions, not {regions!r}"])
        self.homes = Homes(regions, evacuated)
        # One clock for all: a record is judged by it wherever it lies.
        settings.setdefault("clock", CorrectedClock())
        found = endpoints or {}
        self.stores: Mapping[str, DynamoDBStore] = MappingProxyType(
            {r: DynamoDBStore(table, region=r, endpoint=found.get(r), **settings) for r in self.homes.regions}
        )
        self.table = table
        self._warn(self.homes.evacuated)

    def __repr__(self) -> str:
        return f"RegionalStore({self.table!r}, {list(self.homes.regions)!r})"

    @property
    def clock(self) -> Clock:
        """The clock that its records are judged by."""
        return self._any.clock

    @property
    def deadline_seconds(self) -> float:
        """How long one decision may try to reach a key's home."""
        return self._any.deadline_seconds

    @property
    def inline_bytes(self) -> int | None:
        """How large an answer may be inside a record."""
        return self._any.inline_bytes

    @property
    def by_caller(self) -> bool:
        """Whether each caller's records lie together."""
        return self._any.by_caller

    def subscribe(self, observer: Observer) -> None:
        """Tell `observer` what any of the regions has to tell."""
        for store in self.stores.values():
            store.subscribe(observer)

    # --- the register -------------------------------------------------------------------------------------------------

    def create(self, new: Record, deadline: float) -> Written | Found:
        """As `Store.create`, in the key's home."""
        return self.home_of(new.pk).create(new, deadline)

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `Store.swap`, in the key's home."""
        return self.home_of(new.pk).swap(old, new, deadline)

    def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `Store.load`, in the key's home."""
        return self.home_of(pk).load(pk, deadline)

    @property
    def is_transactional(self) -> bool:
        """Whether other items can be written together with a record: those of its home's region."""
        return self._any.is_transactional

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """As `Store.transact`, in the key's home: a transaction stays in one region."""
        return self.home_of(new.pk).transact(old, new, transaction, deadline)

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `Store.put_chunks`, in the key's home."""
        self.home_of(owner.pk).put_chunks(owner, chunks, deadline)

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `Store.get_chunks`, in the key's home."""
        return self.home_of(owner.pk).get_chunks(owner, count, deadline)

    def home_of(self, pk: str) -> DynamoDBStore:
        """The store of a record's home."""
        return self.stores[self.homes.home_of(pk)]

    # --- around it ----------------------------------------------------------------------------------------------------

    def twin(self) -> RegionalStore:
        """As `Store.twin`. What is evacuated here is evacuated there."""
        twin = copy(self)
        twin.stores = MappingProxyType({region: store.twin() for region, store in self.stores.items()})
        return twin

    def open(self) -> None:
        """As `DynamoDBStore.open`, for each region in use."""
        for region, store in self.stores.items():
            if region not in self.homes.evacuated:
                store.open()

    def to_async(self) -> AsyncStore:
        """As `Store.to_async`."""
        return AsyncRegionalStore(self, {region: store.to_async() for region, store in self.stores.items()})

    # --- an operator's ------------------------------------------------------------------------------------------------

    def evacuate(self, region: str) -> None:
        """Give a region up, in this process: the keys of which it is the home move to the next one.

        The risk: what was claimed or answered there and had not been replicated can run a second time, and so can
        requests that reach a process which has not been told. So tell all of them, and only when the region is down for
        good or for long; until then its keys are refused, which runs nothing twice.
        """
        self.homes.evacuate(region)
        self._warn({region})

    def restore(self, region: str) -> None:
        """Take a region back, once what was written elsewhere meanwhile has been replicated to it."""
        self.homes.restore(region)

    def create_table(self, **settings: Any) -> None:
        """Make a table in each region, as `DynamoDBStore.create_table`; joining them is UpdateTable's."""
        for store in self.stores.values():
            store.create_table(**settings)

    def check(self, *, ttl: bool = True) -> None:
        """Check the table of each region that is not evacuated, as `table.check_table`.

        Raises:
            StoreMisconfigured: all that is wrong, in all regions.
            StoreUnavailable: no answer.

        """
        problems = []
        for region, store in self.stores.items():
            if region in self.homes.evacuated:
                continue
            try:
                store.check(ttl=ttl, homes=self.homes.regions)
            except StoreMisconfigured as exc:
                problems.append(f"{region}: {exc}")
        if problems:
            raise StoreMisconfigured("; ".join(problems))

    def describe(self, *, ttl: bool = True) -> dict[str, TableDescription]:
        """What the table is like in each region that is not evacuated."""
        return {
            region: store.describe(ttl=ttl)
            for region, store in self.stores.items()
            if region not in self.homes.evacuated
        }

    def reconcile(
        self,
        *,
        observers: Iterable[Observer] = (),
        units_per_second: float = 25.0,
        max_seconds: float | None = None,
        resume_from: str | None = None,
    ) -> Reconciled:
        """Compare the owners of all keys across the regions that are not evacuated, as `reconciling.reconcile`."""
        return reconcile(
            {region: store.admin() for region, store in self.stores.items() if region not in self.homes.evacuated},
            observers=observers,
            units_per_second=units_per_second,
            max_seconds=max_seconds,
            resume_from=resume_from,
        )

    def keys_of(self, caller: str, *, namespace: str = "", **settings: Any) -> Iterator[UsedKey]:
        """As `DynamoDBStore.keys_of`: a caller's partition has one home."""
        name = f"{PLACE}{caller_partition(namespace, caller)}"
        return self.home_of(name).keys_of(caller, namespace=namespace, **settings)

    @property
    def _any(self) -> DynamoDBStore:
        return next(iter(self.stores.values()))

    def _warn(self, regions: Iterable[str]) -> None:
        for region in regions:
            logger.warning("the region %s is evacuated: %s", region, RISK)


class AsyncRegionalStore(Face[RegionalStore]):
    """The records of a `RegionalStore`, for callers on event loops."""

    def __init__(self, store: RegionalStore, stores: Mapping[str, AsyncStore]) -> None:
        super().__init__(store)
        self._stores = stores

    def __repr__(self) -> str:
        return f"Async{self._store!r}"

    async def create(self, new: Record, deadline: float) -> Written | Found:
        """As `RegionalStore.create`."""
        return await self._home_of(new.pk).create(new, deadline)

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        """As `RegionalStore.swap`."""
        return await self._home_of(new.pk).swap(old, new, deadline)

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        """As `RegionalStore.load`."""
        return await self._home_of(pk).load(pk, deadline)

    async def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        """As `RegionalStore.transact`."""
        return await self._home_of(new.pk).transact(old, new, transaction, deadline)

    async def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        """As `RegionalStore.put_chunks`."""
        await self._home_of(owner.pk).put_chunks(owner, chunks, deadline)

    async def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        """As `RegionalStore.get_chunks`."""
        return await self._home_of(owner.pk).get_chunks(owner, count, deadline)

    def _home_of(self, pk: str) -> AsyncStore:
        return self._stores[self._store.homes.home_of(pk)]
