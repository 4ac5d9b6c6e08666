"""The register in terms of DynamoDB's calls, written once for both kinds of store; nothing is interpreted here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from idem_middleware.errors import StoreUnavailable, TransactionInvalid
from idem_middleware.records import Record
from idem_middleware.stores.base import GONE, WRITTEN, Cancelled, Found, Gone, Written
from idem_middleware.stores.dynamodb.audit import AuditLog
from idem_middleware.stores.dynamodb.calls import Answer, Calls, Pause, Steps
from idem_middleware.stores.dynamodb.faults import CANCELLED, ITEM_TOO_LARGE, TRANSACT, Fault, Kind
from idem_middleware.stores.dynamodb.items import chunk_data, chunk_pk, item_of, item_size, record_of
from idem_middleware.stores.dynamodb.layouts import item_name
from idem_middleware.stores.dynamodb.limits import check_actions
from idem_middleware.stores.dynamodb.requests import (
    BATCH_KEYS,
    Request,
    create_request,
    get_chunk_request,
    get_chunks_request,
    load_request,
    put_chunk_request,
    swap_request,
    transact_request,
)
from idem_middleware.transactions import CancellationCode, CancellationReason, Transaction

__all__ = ["Register"]

_MOST_VANISHINGS = 3
"""A record that stops a create and is gone when looked at: a sweeper's work, once. More often, something is wrong."""

_NOT_TAKEN = frozenset({"ValidationException", "SerializationException", ITEM_TOO_LARGE})
"""The whole of it is not well-formed, which what we add is known to be."""

_OF_THE_MOMENT = frozenset({CancellationCode.NONE, *(code for code in CancellationCode if code.passes)})


def _cancelled(own: CancellationReason, theirs: Sequence[CancellationReason]) -> Cancelled:
    """Nothing stood against the record.

    Raises:
        StoreUnavailable: nor against an action, for good.
    """
    if any(reason.code not in _OF_THE_MOMENT for reason in theirs):
        return Cancelled(tuple(theirs))
    raise StoreUnavailable(
        f"DynamoDB cancelled a transaction for the claim's own part: {own.code.value}", code=own.code.value
    )


def _token(new: Record) -> str:
    """Names the transaction of one claim: sent again after a lost reply, it is not carried out again."""
    named = f"{new.pk} {new.owner} {new.version} {new.created_at!r} {new.expires_at!r}"
    return sha256(named.encode()).hexdigest()[:32]


_LEFT_OVER = Fault(Kind.RETRY, "UnprocessedKeys")


class Register:
    """The steps of each call of a store on one table."""

    def __init__(self, table: str, calls: Calls, *, region: str | None = None, audit: AuditLog | None = None) -> None:
        self._table = table
        self._calls = calls
        self._region = region
        self._audit = audit

    def create(self, new: Record, deadline: float) -> Steps[Written | Found]:
        """As `Store.create`. Where there is an audit log, what it knows stands there, too."""
        yield from self._calls.entered(new.pk, deadline)
        try:
            return (yield from self._created(new, deadline))
        finally:
            self._calls.crowds.leave(new.pk)

    def _created(self, new: Record, deadline: float) -> Steps[Written | Found]:
        request = create_request(self._table, new)
        for _ in range(_MOST_VANISHINGS):
            if self._audit is not None:
                known = yield from self._transact(None, new, Transaction((), _token(new)), deadline)
                if isinstance(known, Written | Found):
                    return known
                continue
            outcome = yield from self._calls.call("put_item", request, deadline, pk=new.pk)
            if isinstance(outcome, Answer):
                return WRITTEN
            found = yield from self._standing(outcome.item, new.pk, deadline)
            if isinstance(found, Found):
                return found
        raise StoreUnavailable(
            f"DynamoDB table {self._table!r}: a record stopped a write {_MOST_VANISHINGS} times, and none is there",
            code="ConditionalCheckFailedException",
        )

    def swap(self, old: Record, new: Record, deadline: float) -> Steps[Written | Found | Gone]:
        """As `Store.swap`. What an audit log knew is not replaced: its record is gone, so a new one is put."""
        if old.audited:
            return (yield from self._put_anew(new, deadline))
        request = swap_request(self._table, old, new)
        outcome = yield from self._calls.call("update_item", request, deadline, pk=new.pk)
        if isinstance(outcome, Answer):
            return WRITTEN
        return (yield from self._standing(outcome.item, new.pk, deadline))

    def load(self, pk: str, deadline: float) -> Steps[Found | Gone]:
        """As `Store.load`."""
        item = yield from self._read(load_request(self._table, pk), pk, deadline)
        return GONE if item is None else self._found(item, pk)

    def transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Steps[Written | Found | Gone | Cancelled]:
        """As `Store.transact`."""
        check_actions(
            transaction.actions,
            table=self._table,
            pk=new.pk,
            claim_bytes=item_size(item_of(new)),
            region=self._region,
            own_actions=2 if self._audit is not None and old is None else 1,
        )
        return (yield from self._transact(old, new, transaction, deadline))

    def _transact(
        self, old: Record | None, new: Record, transaction: Transaction, deadline: float
    ) -> Steps[Written | Found | Gone | Cancelled]:
        """A claim's own transaction consults the audit log, as the last of its actions."""
        audit = self._audit if old is None else None
        if audit is not None:
            # The claim's own instant: sent again under the same token, the transaction must be the same.
            check = audit.check(new.pk, new.created_at)
            transaction = replace(transaction, actions=(*transaction.actions, check))
        stands = None if old is None or old.audited else old
        request = transact_request(self._table, stands, new, transaction)
        try:
            outcome = yield from self._calls.call(TRANSACT, request, deadline, pk=new.pk)
        except StoreUnavailable as error:
            if error.code in _NOT_TAKEN:
                raise TransactionInvalid(f"DynamoDB does not take this transaction: {error.code}") from error
            raise
        if isinstance(outcome, Answer):
            return WRITTEN
        if not outcome.reasons:
            raise StoreUnavailable("DynamoDB did not say why it cancelled the transaction", code=CANCELLED)
        own, *theirs = outcome.reasons
        if own.code is CancellationCode.CONDITION_FAILED:
            return (yield from self._standing(own.item, new.pk, deadline))
        if audit is not None and (known := theirs.pop()).code is CancellationCode.CONDITION_FAILED:
            return Found(audit.read(known.item, new.pk))
        return _cancelled(own, theirs)

    def put_chunks(self, owner: Record, chunks: Sequence[bytes], deadline: float) -> Steps[None]:
        """As `Store.put_chunks`."""
        for number, data in enumerate(chunks):
            request = put_chunk_request(self._table, owner, number, data)
            yield from self._calls.call("put_item", request, deadline, pk=owner.pk)

    def get_chunks(self, owner: Record, count: int, deadline: float) -> Steps[Sequence[bytes | None]]:
        """As `Store.get_chunks`."""
        if count == 1:
            item = yield from self._read(get_chunk_request(self._table, owner, 0), owner.pk, deadline)
            return [None if item is None else chunk_data(item)]
        pks = [chunk_pk(owner, number) for number in range(count)]
        found: dict[str, bytes | None] = {}
        for start in range(0, count, BATCH_KEYS):
            yield from self._read_batch(pks[start : start + BATCH_KEYS], found, owner.pk, deadline)
        return [found.get(pk) for pk in pks]

    def _standing(self, item: object | None, pk: str, deadline: float) -> Steps[Found | Gone]:
        """What stopped a write: as the write itself tells, else (no item, or an old emulator) as a read does."""
        if item:
            return self._found(item, pk)
        return (yield from self.load(pk, deadline))

    def _found(self, item: object, pk: str) -> Found:
        record = record_of(item, pk)
        return Found(record if self._audit is None else self._audit.extended(record, self._calls.clock.now()))

    def _put_anew(self, new: Record, deadline: float) -> Steps[Written | Found | Gone]:
        outcome = yield from self._calls.call("put_item", create_request(self._table, new), deadline, pk=new.pk)
        if isinstance(outcome, Answer):
            return WRITTEN
        return (yield from self._standing(outcome.item, new.pk, deadline))

    def _read(self, request: Request, pk: str, deadline: float) -> Steps[object | None]:
        outcome = yield from self._calls.call("get_item", request, deadline, pk=pk)
        return outcome.response.get("Item") if isinstance(outcome, Answer) else None

    def _read_batch(self, pks: Sequence[str], found: dict[str, bytes | None], pk: str, deadline: float) -> Steps[None]:
        """Read until nothing is left over: DynamoDB leaves off beyond 16 MB a call, and where it throttles."""
        tries = 0
        while pks:
            outcome = yield from self._calls.call(
                "batch_get_item", get_chunks_request(self._table, pks), deadline, pk=pk
            )
            response: Any = outcome.response if isinstance(outcome, Answer) else {}
            items = [item for table in response.get("Responses", {}).values() for item in table]
            found.update((item_name(item), chunk_data(item)) for item in items)
            pks = [item_name(key) for part in response.get("UnprocessedKeys", {}).values() for key in part["Keys"]]
            # Progress means the 16 MB: go on at once. None means throttling: wait.
            tries = 0 if items else tries + 1
            if pks and not items:
                pause_seconds = self._calls.pause_seconds(tries, deadline, _LEFT_OVER, pk=pk)
                if pause_seconds is None:
                    raise StoreUnavailable(
                        f"DynamoDB table {self._table!r} left {len(pks)} chunks of a body unread", code=_LEFT_OVER.code
                    )
                yield Pause(pause_seconds)
