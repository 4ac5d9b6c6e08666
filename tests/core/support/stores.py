"""Stores for the tests of the drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from idem_middleware import MemoryStore, StoreUnavailable
from idem_middleware.clock import Clock
from idem_middleware.records import KeptResponse, Record, Status
from idem_middleware.stores.base import ITEM_TOO_LARGE, Found, Gone, Written
from idem_middleware.stores.direct import DirectStore

__all__ = ["ChunkStore", "NarrowStore", "UnfinishedStore", "YieldingStore"]


class ChunkStore(MemoryStore):
    """Keeps bodies beside the records, as DynamoDB does."""

    inline_bytes = 64  # type: ignore[assignment]

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.chunks: dict[tuple[str, int], bytes] = {}

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> None:
        self.chunks.update({(owner.owner, number): chunk for number, chunk in enumerate(chunks)})

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Sequence[bytes | None]:
        return [self.chunks.get((owner.owner, number)) for number in range(count)]


class NarrowStore(MemoryStore):
    """Takes no record with an answer in it, and says that no retry can mend that."""

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        if isinstance(new.response, KeptResponse):
            raise StoreUnavailable("the item is too large", code=ITEM_TOO_LARGE)
        return super().swap(old, new, deadline)


class UnfinishedStore(MemoryStore):
    """Takes everything but completions, until it is told to."""

    finishes = False

    def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        if new.status is Status.COMPLETED and not self.finishes:
            raise StoreUnavailable("not now", code="ThrottlingException")
        return super().swap(old, new, deadline)


class YieldingStore(DirectStore):
    """Gives the loop a turn before and after each call; a cancelled one is carried out all the same, as by a thread."""

    async def create(self, new: Record, deadline: float) -> Written | Found:
        try:
            await asyncio.sleep(0)
        finally:
            result = await super().create(new, deadline)
        await asyncio.sleep(0)
        return result

    async def swap(self, old: Record, new: Record, deadline: float) -> Written | Found | Gone:
        try:
            await asyncio.sleep(0)
        finally:
            result = await super().swap(old, new, deadline)
        await asyncio.sleep(0)
        return result

    async def load(self, pk: str, deadline: float) -> Found | Gone:
        await asyncio.sleep(0)
        return await super().load(pk, deadline)
