"""Stores for the tests of the drivers."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from idem_middleware import MemoryStore, StoreUnavailable
from idem_middleware.clock import Clock
from idem_middleware.records import KeptResponse, Record, Status
from idem_middleware.stores.base import ITEM_TOO_LARGE, Cancelled, Found, Gone, Written
from idem_middleware.stores.direct import DirectStore
from idem_middleware.transactions import Action, CancellationCode, CancellationReason, Transaction

__all__ = ["ChunkStore", "LedgerStore", "NarrowStore", "UnfinishedStore", "YieldingStore"]


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


_REASON_NONE = CancellationReason(CancellationCode.NONE)
_TAKE = re.compile(r"SET (\w+) = \1 - (:\w+)")
_AT_LEAST = re.compile(r"(\w+) >= (:\w+)")


class LedgerStore(MemoryStore):
    """Other tables beside the records. It knows two actions: put what is not there, and take from what is enough."""

    is_transactional = True

    def __init__(self, *, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.tables: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.tokens: list[str] = []
        self._whole = Lock()

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        with self._whole:
            if transaction.token in self.tokens:
                return Written()
            standing = self.load(new.pk, deadline)
            if old is None and isinstance(standing, Found):
                return standing
            if old is not None:
                if isinstance(standing, Gone):
                    return standing
                found = standing.record
                if (found.version, found.owner, found.status) != (old.version, old.owner, old.status):
                    return standing
            reasons = [self._reason(action) for action in transaction.actions]
            if any(reason is not _REASON_NONE for reason in reasons):
                return Cancelled(tuple(reasons))
            for action in transaction.actions:
                self._apply(action)
            self.tokens.append(transaction.token)
            return self.create(new, deadline) if old is None else self.swap(old, new, deadline)

    def number(self, table: str, key: str, name: str) -> int:
        """One number of one item."""
        return int(self.tables[table][key][name]["N"])

    def _reason(self, action: Action) -> CancellationReason:
        ((kind, part),) = action.items()
        item = self.tables[part["TableName"]].get(self._key(part))
        if kind == "Put":
            holds = item is None
        else:
            at_least = _AT_LEAST.fullmatch(part["ConditionExpression"])
            assert at_least is not None
            least = part["ExpressionAttributeValues"][at_least[2]]
            holds = item is not None and int(item[at_least[1]]["N"]) >= int(least["N"])
        return _REASON_NONE if holds else CancellationReason(CancellationCode.CONDITION_FAILED, item)

    def _apply(self, action: Action) -> None:
        ((kind, part),) = action.items()
        table, key = self.tables[part["TableName"]], self._key(part)
        if kind == "Put":
            table[key] = dict(part["Item"])
            return
        take = _TAKE.fullmatch(part["UpdateExpression"])
        assert take is not None
        amount = int(part["ExpressionAttributeValues"][take[2]]["N"])
        table[key] = {**table[key], take[1]: {"N": str(int(table[key][take[1]]["N"]) - amount)}}

    @staticmethod
    def _key(part: Any) -> str:
        key: str = (part["Item"] if "Item" in part else part["Key"])["id"]["S"]
        return key


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

    waits = True

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

    async def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Written | Found | Gone | Cancelled:
        try:
            await asyncio.sleep(0)
        finally:
            result = await super().transact(old, new, transaction, deadline)
        await asyncio.sleep(0)
        return result
