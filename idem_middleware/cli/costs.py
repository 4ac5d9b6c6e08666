"""What a load costs on DynamoDB: the calls of the engine, counted, and the items of the store, measured. Pure.

The calls are those of the table "What it costs" in docs/operating.md, which tests count on a real table. The sizes are
not guessed: a record with an answer of the given size is made into an item by the store's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, floor

from idem_middleware.bodies import CHUNK_BYTES
from idem_middleware.records import Chunks, KeptResponse, Record, Status
from idem_middleware.stores.dynamodb.items import chunk_item, item_of, item_size
from idem_middleware.stores.dynamodb.layouts import Layout
from idem_middleware.stores.dynamodb.requests import INLINE_BYTES

__all__ = ["DEFAULT_PRICES", "PARTITION_WRITE_UNITS", "Budget", "Flow", "Load", "Prices", "reckon"]

PARTITION_WRITE_UNITS = 1000
"""What one partition, and so one item, takes in a second. Developer Guide, "Designing partition keys"."""

_WRITE_BYTES, _READ_BYTES = 1024, 4096
_GB_BYTES = 1024**3
_ITEM_OVERHEAD_BYTES = 100  # storage is billed with it: Developer Guide, "DynamoDB item sizes and formats"
_MONTH_SECONDS = 730 * 3600  # AWS's month
_COMPRESS_FROM_BYTES = 512  # as `bodies.pack`
_TRANSACTION_FACTOR = 2  # prepare and commit
_HEADER_TEXT_BYTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What AWS asks, in one currency. Change them to your region's and to your contract's."""

    write_per_million: float = 0.625
    read_per_million: float = 0.125
    storage_per_gb_month: float = 0.25
    recovery_per_gb_month: float = 0.20
    currency: str = "USD"
    source: str = "AWS's price list for DynamoDB, on-demand, us-east-1, Standard table class, as of 2024-11-01"


DEFAULT_PRICES = Prices()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes in, and how the service is set. Rates are a second's, at the peak."""

    requests_per_second: float
    duplicate_ratio: float = 0.0
    average_requests_per_second: float | None = None
    answer_bytes: int = 1000
    header_bytes: int = 200
    compression_ratio: float = 0.3
    handler_seconds: float = 0.5
    lease_seconds: float = 60.0
    failure_ratio: float = 0.0
    retention_seconds: float = 86400.0
    deletion_lag_seconds: float = 48 * 3600.0
    transaction_items: int = 0
    checkpoint: bool = False
    layout: Layout = "flat"
    regions: int = 1
    recovery: bool = True
    largest_caller_share: float | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """One kind of call: how often a second, and what one of them takes."""

    name: str
    calls_per_second: float
    write_units: float = 0.0
    read_units: float = 0.0
    replicated: bool = True

    @property
    def writes(self) -> float:
        """Write units a second."""
        return self.calls_per_second * self.write_units

    @property
    def reads(self) -> float:
        """Read units a second."""
        return self.calls_per_second * self.read_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What it comes to. Units are a second's at the peak, costs a month's at the average load."""

    load: Load
    prices: Prices
    flows: tuple[Flow, ...]
    claim_item_bytes: int
    completed_item_bytes: int
    chunk_bytes: int
    stored_gb: float
    notes: tuple[str, ...] = field(default=())

    @property
    def claim_writes(self) -> float:
        """Conditional puts a second: the peak × (1 + duplicates)."""
        return self.load.requests_per_second * (1 + self.load.duplicate_ratio)

    @property
    def write_units(self) -> float:
        """Write units a second, in one region."""
        return sum(flow.writes for flow in self.flows)

    @property
    def read_units(self) -> float:
        """Read units a second."""
        return sum(flow.reads for flow in self.flows)

    @property
    def replicated_units(self) -> float:
        """Write units a second in each further region: what was written, and what TTL deleted, free in the first."""
        deleted = _write_units(self.completed_item_bytes) + ceil(self.chunk_bytes / _WRITE_BYTES)
        deleted += self.load.layout == "caller"
        return sum(flow.writes for flow in self.flows if flow.replicated) + self.load.requests_per_second * deleted

    @property
    def _average(self) -> float:
        load = self.load
        average = load.average_requests_per_second
        return 1.0 if average is None or not load.requests_per_second else average / load.requests_per_second

    @property
    def monthly(self) -> dict[str, float]:
        """What each part costs in a month."""
        month = self._average * _MONTH_SECONDS / 1e6
        gigabytes = self.stored_gb * self.load.regions
        replicas = self.load.regions - 1
        return {
            "writes": self.write_units * month * self.prices.write_per_million,
            "replicated writes": self.replicated_units * replicas * month * self.prices.write_per_million,
            "reads": self.read_units * month * self.prices.read_per_million,
            "storage": gigabytes * self.prices.storage_per_gb_month,
            "recovery": gigabytes * self.prices.recovery_per_gb_month if self.load.recovery else 0.0,
        }

    @property
    def monthly_total(self) -> float:
        """All of it."""
        return sum(self.monthly.values())


def reckon(load: Load, prices: Prices = DEFAULT_PRICES) -> Budget:
    """Count the calls that this load makes, and measure the items that they write."""
    packed = _packed_bytes(load)
    inline = load.header_bytes + packed <= INLINE_BYTES
    chunks = 0 if inline else ceil(packed / CHUNK_BYTES)
    claim = item_size(item_of(_record(Status.PENDING)))
    completed = item_size(item_of(_record(Status.COMPLETED, _answer(load, packed, chunks))))
    chunk_sizes = [min(CHUNK_BYTES, packed - start) for start in range(0, packed, CHUNK_BYTES)] if chunks else []
    chunk_items = [item_size(chunk_item(_record(Status.COMPLETED), n, bytes(s))) for n, s in enumerate(chunk_sizes)]
    stored_bytes = completed + _ITEM_OVERHEAD_BYTES + sum(size + _ITEM_OVERHEAD_BYTES for size in chunk_items)
    average = load.requests_per_second if load.average_requests_per_second is None else load.average_requests_per_second
    kept_seconds = load.retention_seconds + load.deletion_lag_seconds
    return Budget(
        load=load,
        prices=prices,
        flows=tuple(_flows(load, claim, completed, chunk_items)),
        claim_item_bytes=claim,
        completed_item_bytes=completed,
        chunk_bytes=sum(chunk_items),
        stored_gb=average * kept_seconds * stored_bytes / _GB_BYTES,
        notes=tuple(_notes(load, completed)),
    )


def _flows(load: Load, claim: int, completed: int, chunk_items: list[int]) -> Iterator[Flow]:
    first = load.requests_per_second
    done = first * (1 - load.failure_ratio)
    yield Flow("claim: PutItem", first, _write_units(claim))
    if load.layout == "caller":
        yield Flow("claim: its entry in the index", first, 1)  # of keys alone: completing does not change it
    if load.duplicate_ratio:
        # A failed conditional write is billed by the item that stands there: by now, mostly one with its answer.
        yield Flow("duplicate: failed PutItem", first * load.duplicate_ratio, _write_units(completed), replicated=False)
        if chunk_items:
            reads = sum(ceil(size / _READ_BYTES) for size in chunk_items)
            yield Flow("duplicate: its answer's chunks", first * load.duplicate_ratio, read_units=reads)
    renewals = floor(load.handler_seconds / (load.lease_seconds / 3))
    if renewals:
        yield Flow("renewal: UpdateItem", first * renewals, _write_units(claim))
    if chunk_items:
        yield Flow("answer's chunks: PutItem", done * len(chunk_items), _mean_units(chunk_items))
    if load.transaction_items:
        name = "lease.transact" if load.checkpoint else "lease.complete_with"
        mine = claim if load.checkpoint else completed
        units = _TRANSACTION_FACTOR * (load.transaction_items - 1 + _write_units(mine))
        yield Flow(f"{name}: TransactWriteItems of {load.transaction_items}", done, units)
    if not load.transaction_items or load.checkpoint:
        yield Flow("completion: UpdateItem", done, _write_units(completed))
    if load.failure_ratio:
        yield Flow("failure: UpdateItem", first - done, _write_units(claim))


def _notes(load: Load, completed: int) -> Iterator[str]:
    if load.largest_caller_share is not None:
        units = load.requests_per_second * load.largest_caller_share * (2 + load.duplicate_ratio)
        units += load.requests_per_second * load.largest_caller_share * _write_units(completed)
        if units > PARTITION_WRITE_UNITS:
            yield (
                f"the largest caller alone writes {units:,.0f} units a second, and a partition takes "
                f"{PARTITION_WRITE_UNITS:,}: keep the layout flat"
            )
        else:
            yield (
                f"the largest caller writes {units:,.0f} of the {PARTITION_WRITE_UNITS:,} units a second that "
                "one partition takes"
            )


def _packed_bytes(load: Load) -> int:
    if load.answer_bytes < _COMPRESS_FROM_BYTES:
        return load.answer_bytes
    return min(load.answer_bytes, ceil(load.answer_bytes * load.compression_ratio))


def _answer(load: Load, packed: int, chunks: int) -> KeptResponse:
    """An answer with header lines and a body of these sizes."""
    lines = max(1, load.header_bytes // _HEADER_TEXT_BYTES)
    text = max(0, load.header_bytes - lines * (len("name") + 4)) // lines
    headers = tuple(("name", "v" * text) for _ in range(lines))
    if chunks:
        where = Chunks(count=chunks, size_bytes=packed, sha256=bytes(32))
        return KeptResponse(status=201, headers=headers, encoding="deflate", chunks=where)
    return KeptResponse(status=201, headers=headers, encoding="deflate", body=bytes(packed))


def _record(status: Status, response: KeptResponse | None = None) -> Record:
    return Record(
        pk="0" * 64,
        status=status,
        version=1,
        owner="0" * 32,
        attempt=1,
        fingerprint=bytes(33),
        caller_digest=None,
        created_at=1_700_000_000.1234567,
        expires_at=1_700_000_060.1234567,
        bound_until=1_700_086_400.1234567,
        response=response,
    )


def _write_units(size_bytes: int) -> int:
    return ceil(size_bytes / _WRITE_BYTES)


def _mean_units(sizes: list[int]) -> float:
    return sum(map(_write_units, sizes)) / len(sizes)
