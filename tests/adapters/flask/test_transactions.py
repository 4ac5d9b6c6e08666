"""Views write other items with their claim, and keep whatever a view may return in the same transaction."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Response, g, jsonify
from flask.typing import ResponseReturnValue

from idem_middleware import ConfigurationError, MemoryStore, TransactionRefused
from idem_middleware.testing import ManualClock
from idem_middleware.transactions import Put
from tests.adapters.flask.shop import Shop, replayed
from tests.adapters.support.bench import Bench
from tests.core.support.stores import LedgerStore

ORDER = Put("orders", {"id": "o-1"}, condition="attribute_not_exists(id)")


@pytest.fixture
def bench() -> Bench:
    """One process whose store has tables beside its records."""
    made = Bench()
    made.store.store = LedgerStore(clock=ManualClock(margin_seconds=2.0))
    return made


@pytest.mark.parametrize(
    "answer",
    [
        lambda: ({"order": "o-1"}, 201, {"X-Order": "o-1"}),
        lambda: Response(b"o-1", 201, {"X-Order": "o-1"}),
        lambda: (jsonify(order="o-1"), 201, {"X-Order": "o-1"}),
    ],
    ids=["tuple", "response", "jsonify"],
)
def test_an_answer_of_flasks_is_kept_with_the_items(bench: Bench, answer: Any) -> None:
    def view() -> ResponseReturnValue:
        made: ResponseReturnValue = answer()
        g.idempotency.complete_with([ORDER], made)
        return made

    shop = Shop(bench, view)
    first, second = shop.post(), shop.post()
    assert (first.status_code, first.data) == (second.status_code, second.data)
    assert second.headers["X-Order"] == "o-1"
    assert (replayed(first), replayed(second), shop.runs) == (False, True, 1)
    assert bench.calls == ["create", "transact", "create"]


def test_a_refused_transaction_is_the_views_to_answer(bench: Bench) -> None:
    def view() -> ResponseReturnValue:
        try:
            g.idempotency.transact([ORDER])
        except TransactionRefused:
            return "sold out", 409
        return "done", 201

    shop = Shop(bench, view)
    assert [shop.post(key=key).status_code for key in ("a", "b", "b")] == [201, 409, 409]
    assert shop.runs == 2


def test_a_stream_is_no_answer_to_keep_in_a_transaction(bench: Bench) -> None:
    def view() -> ResponseReturnValue:
        g.idempotency.complete_with([ORDER], Response(iter([b"x"])))
        return "never"

    shop = Shop(bench, view)
    assert shop.post().status_code == 500
    assert bench.kinds == ["claimed", "failed"]


def test_items_of_a_claim_need_a_store_that_has_transactions() -> None:
    made = Bench()
    made.store.store = MemoryStore()
    with pytest.raises(ConfigurationError, match="MemoryStore has no transactions"):
        Shop(made, claim_items=lambda _: [ORDER])


def test_items_can_join_the_claim(bench: Bench) -> None:
    shop = Shop(bench, claim_items=lambda _: [ORDER])
    answers = [shop.post(key=key).status_code for key in ("a", "a", "b")]
    assert answers == [201, 201, 409]
    assert shop.runs == 1
