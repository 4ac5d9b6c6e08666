"""What the register makes of each outcome of a call, without any call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from idem_middleware.errors import StoreUnavailable, TransactionInvalid
from idem_middleware.records import Status
from idem_middleware.stores.base import GONE, WRITTEN, Cancelled, Found
from idem_middleware.stores.dynamodb.audit import AuditLog
from idem_middleware.stores.dynamodb.calls import Answer, Calls, ConditionFailed, Steps
from idem_middleware.stores.dynamodb.items import item_of
from idem_middleware.stores.dynamodb.register import Register
from idem_middleware.transactions import CancellationCode, CancellationReason, Put, Transaction, actions_of
from tests.stores.doubles import ManualTime
from tests.stores.records import NOW, SMALL_ANSWER, after, pending

PK = "1" * 64
CLAIM = pending(PK)
OTHER = pending(PK, owner="b" * 32)
DONE = after(OTHER, status=Status.COMPLETED, response=SMALL_ANSWER)
AUDIT = AuditLog("audit", 86400.0)
DEADLINE = 1e9
T = TypeVar("T")

NOTHING = Answer({})
REFUSED = ConditionFailed(item_of(OTHER))
UNTOLD = ConditionFailed(None)

NONE = CancellationReason(CancellationCode.NONE)
STOOD_THERE = CancellationReason(CancellationCode.CONDITION_FAILED, item_of(OTHER))
VANISHED = CancellationReason(CancellationCode.CONDITION_FAILED)
CONFLICT = CancellationReason(CancellationCode.CONFLICT)
THEIRS = CancellationReason(CancellationCode.CONDITION_FAILED, {"id": {"S": "1"}})
KNOWN = CancellationReason(CancellationCode.CONDITION_FAILED, AUDIT.entry(DONE, NOW))

Outcome = Answer | ConditionFailed | StoreUnavailable


class Told(Calls):
    """Gives the outcomes of a list, and keeps what was to be called."""

    def __init__(self, *outcomes: Outcome) -> None:
        super().__init__("keys", clock=ManualTime().clock())
        self._outcomes = list(outcomes)
        self.operations: list[str] = []

    def call(
        self, operation: str, request: Any, deadline: float, *, pk: str | None = None
    ) -> Steps[Answer | ConditionFailed]:
        self.operations.append(operation)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, StoreUnavailable):
            raise outcome
        yield from ()
        return outcome


def carried_out(steps: Steps[T]) -> T:
    """The result of steps that wait for nothing."""
    result: list[T] = []

    def through() -> Iterator[Any]:
        result.append((yield from steps))

    assert list(through()) == []
    return result[0]


def register(*outcomes: Outcome, audit: AuditLog | None = None) -> tuple[Register, Told]:
    """One whose calls end like this."""
    calls = Told(*outcomes)
    return Register("keys", calls, audit=audit), calls


def transaction() -> Transaction:
    """One item beside the record."""
    return Transaction(actions_of([Put("orders", {"id": "1"})]), "t")


class TestCreate:
    """A claim where nothing is known to stand."""

    def test_that_met_a_record_brings_it_along(self) -> None:
        """No read is needed."""
        made, calls = register(REFUSED)
        assert carried_out(made.create(CLAIM, DEADLINE)) == Found(OTHER)
        assert calls.operations == ["put_item"]

    def test_that_is_not_told_what_it_met_looks_for_it(self) -> None:
        """As where DynamoDB does not say."""
        made, calls = register(UNTOLD, Answer({"Item": item_of(OTHER)}))
        assert carried_out(made.create(CLAIM, DEADLINE)) == Found(OTHER)
        assert calls.operations == ["put_item", "get_item"]

    @pytest.mark.parametrize("audit", [None, AUDIT], ids=["without", "with an audit log"])
    def test_that_met_what_is_gone_is_written_again(self, audit: AuditLog | None) -> None:
        """The sweeper came in between."""
        met = UNTOLD if audit is None else ConditionFailed(None, (VANISHED, NONE))
        made, calls = register(met, NOTHING, NOTHING, audit=audit)
        assert carried_out(made.create(CLAIM, DEADLINE)) is WRITTEN
        write = "put_item" if audit is None else "transact_write_items"
        assert calls.operations == [write, "get_item", write]

    def test_that_meets_what_is_gone_again_and_again_is_given_up(self) -> None:
        """Once is the sweeper; more often something is wrong."""
        made, calls = register(*(UNTOLD, NOTHING) * 3)
        with pytest.raises(StoreUnavailable, match="stopped a write 3 times"):
            carried_out(made.create(CLAIM, DEADLINE))
        assert calls.operations == ["put_item", "get_item"] * 3

    def test_of_a_key_that_the_audit_log_knows_finds_what_it_knows(self) -> None:
        """As if the record stood there."""
        made, _ = register(ConditionFailed(None, (NONE, KNOWN)), audit=AUDIT)
        found = carried_out(made.create(CLAIM, DEADLINE))
        assert isinstance(found, Found)
        assert (found.record.audited, found.record.owner, found.record.response) == (True, OTHER.owner, None)
        assert found.record.bound_until == DONE.bound_until + AUDIT.seconds


class TestSwap:
    """A write from what is known to stand there."""

    def test_that_came_too_late_brings_along_what_stands_there(self) -> None:
        """The fence held."""
        made, calls = register(REFUSED)
        assert carried_out(made.swap(CLAIM, after(CLAIM), DEADLINE)) == Found(OTHER)
        assert calls.operations == ["update_item"]

    def test_that_met_nothing_finds_it_gone(self) -> None:
        """A read tells it from an old emulator's silence."""
        made, calls = register(UNTOLD, NOTHING)
        assert carried_out(made.swap(CLAIM, after(CLAIM), DEADLINE)) is GONE
        assert calls.operations == ["update_item", "get_item"]

    @pytest.mark.parametrize(("outcome", "result"), [(NOTHING, WRITTEN), (REFUSED, Found(OTHER))])
    def test_of_what_only_the_audit_log_knew_puts_a_new_record(self, outcome: Outcome, result: object) -> None:
        """Unless somebody was quicker."""
        made, calls = register(outcome, audit=AUDIT)
        known = replace(DONE, audited=True, response=None)
        assert carried_out(made.swap(known, after(CLAIM), DEADLINE)) == result
        assert calls.operations == ["put_item"]


class TestTransact:
    """The record together with other items."""

    @pytest.mark.parametrize("old", [None, CLAIM], ids=["claim", "lease"])
    def test_that_met_another_record_finds_it(self, old: Any) -> None:
        """Whatever else stood against it: who does not own the key has no use for that."""
        made, _ = register(ConditionFailed(None, (STOOD_THERE, THEIRS)))
        assert carried_out(made.transact(old, after(CLAIM), transaction(), DEADLINE)) == Found(OTHER)

    def test_that_a_user_s_condition_stopped_says_why_of_each_action(self) -> None:
        """Of the user's; the record's own and the audit log's are none of them."""
        made, _ = register(ConditionFailed(None, (NONE, THEIRS, NONE)), audit=AUDIT)
        assert carried_out(made.transact(None, CLAIM, transaction(), DEADLINE)) == Cancelled((THEIRS,))

    def test_that_met_another_transaction_for_good_is_an_outage(self) -> None:
        """Nothing stood against it that would stand there again."""
        made, _ = register(ConditionFailed(None, (CONFLICT, NONE)))
        with pytest.raises(StoreUnavailable, match="own part: TransactionConflict") as raised:
            carried_out(made.transact(CLAIM, after(CLAIM), transaction(), DEADLINE))
        assert raised.value.code == "TransactionConflict"

    def test_of_which_nobody_says_why_is_an_outage(self) -> None:
        """It must not be taken for a refusal, nor for a lost lease."""
        made, _ = register(ConditionFailed(None))
        with pytest.raises(StoreUnavailable, match="did not say why"):
            carried_out(made.transact(CLAIM, after(CLAIM), transaction(), DEADLINE))

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("ValidationException", TransactionInvalid),
            ("SerializationException", TransactionInvalid),
            ("InternalServerError", StoreUnavailable),
        ],
    )
    def test_that_dynamodb_does_not_take_is_the_user_s_mistake(self, code: str, kind: type[Exception]) -> None:
        """What we add to it is known to be well-formed. An outage stays one."""
        made, _ = register(StoreUnavailable("no", code=code))
        with pytest.raises(kind, match="no"):
            carried_out(made.transact(CLAIM, after(CLAIM), transaction(), DEADLINE))
