"""What real tables answer and DynamoDB Local never does, through both transports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from idem_middleware.errors import StoreUnavailable
from idem_middleware.events import Event, EventKind
from idem_middleware.stores.dynamodb import faults
from idem_middleware.stores.dynamodb.calls import _BASE_SECONDS, _CAP_SECONDS
from idem_middleware.stores.dynamodb.client import CONNECT_SECONDS, READ_SECONDS, Boto3Transport
from idem_middleware.stores.dynamodb.faults import Kind, classify
from idem_middleware.stores.dynamodb.store import DynamoDBStore
from idem_middleware.transactions import Put, Transaction, actions_of
from tests.stores.conftest import OpenStore
from tests.stores.doubles import error
from tests.stores.recorded import RECORDED, Recorded
from tests.stores.records import after, new_pk, pending
from tests.stores.servers import Reply, scripted_server

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=list(RECORDED))
def test_a_real_answer_is_taken_for_what_it_is(open_store: OpenStore, recorded: Recorded) -> None:
    """Tried again or not, with its code and its reasons in the events."""
    events: list[Event] = []
    with scripted_server(Reply(recorded.status, recorded.content), Reply()) as server:
        store = open_store(endpoint=server.url, random=lambda: 0.0)
        plain: Any = getattr(store, "_plain", store)
        plain.subscribe(events.append)
        claim = pending(new_pk())
        transaction = Transaction(actions_of([Put("orders", {"id": "1"})]), "t")
        deadline = store.clock.monotonic() + 30
        try:
            outcome: Any = store.transact(claim, after(claim), transaction, deadline)
        except StoreUnavailable as unavailable:
            outcome = unavailable
        assert len(server.seen) == 1 + recorded.is_retried
    assert not (recorded.is_retried and isinstance(outcome, StoreUnavailable))
    retried = [event for event in events if event.kind is EventKind.STORE_RETRIED]
    assert [event.dynamo_error_code for event in retried] == [recorded.code] * recorded.is_retried
    if isinstance(outcome, StoreUnavailable):
        assert outcome.code == recorded.code
        assert "123456789012" not in str(outcome)
    if recorded.reasons:
        [told] = [event for event in events if event.kind is EventKind.TRANSACTION_CANCELLED]
        assert told.cancellation_reasons == recorded.reasons
    if recorded.throttling:  # which older releases of boto3 do not tell of
        assert {event.throttling_reasons for event in retried} <= {recorded.throttling, ()}
        if not isinstance(plain._transport, Boto3Transport):
            assert {event.throttling_reasons for event in retried} == {recorded.throttling}


class TestTheTable:
    """In docs/errors.md: what is said there of each code, is what happens."""

    def rows(self) -> list[list[str]]:
        """Its cells."""
        text = DOCUMENT.read_text(encoding="utf-8").partition("<!-- codes")[2].partition("<!-- /codes -->")[0]
        lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    def test_every_code_is_there_and_nowhere_twice(self) -> None:
        """A new one needs its line."""
        named = [code for row in self.rows() for code in re.findall(r"`(\w+)`", row[0])]
        answered = {code for code in faults._ADVICE if faults._ADVICE[code] and not _is_botocores(code)}
        coded = {code for code in (*faults._RETRIED, *answered) if not code.isdigit()}  # a status is not one
        known = {*coded, "ConditionalCheckFailedException", "TransactionCanceledException"}
        assert known <= set(named)
        assert [code for code in known if named.count(code) > 1] == ["TransactionCanceledException"]

    def test_what_is_tried_again_is(self) -> None:
        """And nothing else."""
        for row in self.rows():
            if "TransactionCanceled" in row[0] or row[0].startswith(("no answer", "any other", "`Validation")):
                continue
            for code in re.findall(r"`(\w+)`", row[0]):
                fault = classify(error(code))
                assert fault is not None
                assert (fault.kind is Kind.RETRY) == row[2].startswith("until"), code

    def test_its_numbers_are_the_codes(self) -> None:
        """Pauses, time-outs, deadline."""
        text = DOCUMENT.read_text(encoding="utf-8")
        for number in (
            f"{_BASE_SECONDS * 1000:g} ms × 2ⁿ, at most {_CAP_SECONDS:g} s",
            f"{DynamoDBStore().deadline_seconds:g} s for one decision",
            f"{CONNECT_SECONDS:g} s to connect and {READ_SECONDS:g} s to be read",
        ):
            assert number in text


def _is_botocores(name: str) -> bool:
    """Whether this is the name of an exception for an answer that never came."""
    import botocore.exceptions  # noqa: PLC0415

    return hasattr(botocore.exceptions, name)
