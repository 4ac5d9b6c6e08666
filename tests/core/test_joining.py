"""Claims that are made together with items of the user's; by the driver of threads and by that of event loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from idem_middleware import (
    ConfigurationError,
    Engine,
    MemoryStore,
    Options,
    Request,
    Response,
    TransactionInvalid,
    TransactionRefused,
)
from idem_middleware.outcomes import Refused
from idem_middleware.testing import Fault, ManualClock
from idem_middleware.transactions import Item, Put, Update
from tests.core.support.stores import LedgerStore
from tests.core.support.worlds import CREATED, AsyncWorld, SyncWorld, World, request


@pytest.fixture(params=[SyncWorld, AsyncWorld], ids=["threads", "loop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A process with two pieces in stock."""
    made: World = request.param(LedgerStore(clock=ManualClock(margin_seconds=2.0)))
    ledger(made).tables["stock"]["a"] = {"id": {"S": "a"}, "n": {"N": "2"}}
    yield made
    made.close()


def ledger(world: World) -> LedgerStore:
    """The store of a world of this module."""
    assert isinstance(world.memory, LedgerStore)
    return world.memory


def stock(world: World) -> int:
    """How much is left."""
    return ledger(world).number("stock", "a", "n")


def reserve(_: Request) -> list[Item]:
    """Take one from the stock."""
    return [Update("stock", {"id": "a"}, "SET n = n - :n", condition="n >= :n", values={":n": 1})]


JOINED: dict[str, Any] = {"claim_items": reserve}


def test_a_claim_and_its_items_are_one(world: World) -> None:
    """Written by one call; and the retry writes nothing."""
    lease = world.lease(**JOINED)
    assert (stock(world), lease.checkpoint) == (1, None)
    assert world.problem(**JOINED) == "in-progress"
    world.settle(lease)
    assert world.replay(**JOINED) == CREATED
    assert stock(world) == 1
    assert world.calls() == ["transact", "transact", "swap", "transact"]


def test_stock_that_is_short_leaves_no_claim(world: World) -> None:
    """It is rolled back with the item: the next request with that key is a first one."""
    ledger(world).tables["stock"]["a"]["n"] = {"N": "0"}
    assert world.problem(**JOINED) == "claim-refused"
    assert len(world.memory) == 0
    ledger(world).tables["stock"]["a"]["n"] = {"N": "1"}
    lease = world.lease(request(b"not even the same body"), **JOINED)
    assert lease.attempt == 1
    assert stock(world) == 0
    assert world.kinds() == ["refused", "claimed"]


def test_the_user_words_the_refusal(world: World) -> None:
    """From what stands there."""
    ledger(world).tables["stock"]["a"]["n"] = {"N": "0"}

    def sold_out(sent: Request, error: TransactionRefused) -> Response:
        assert error.old_item is not None
        return Response(409, (), f"{sent.path}: {error.old_item['n']['N']} left".encode())

    outcome = world.acquire(on_claim_refused=sold_out, **JOINED)
    assert isinstance(outcome, Refused)
    assert outcome.response == Response(409, (), b"/orders: 0 left")


def test_the_items_are_made_from_the_request(world: World) -> None:
    """The function sees what was sent."""

    def place(sent: Request) -> list[Item]:
        order: Any = sent.json()
        return [Put("orders", {"id": order["id"]}, condition="attribute_not_exists(id)")]

    world.lease(request(b'{"id": "o-1"}'), claim_items=place)
    assert list(ledger(world).tables["orders"]) == ["o-1"]


def test_the_attempt_after_a_crash_does_not_carry_the_items_out_again(world: World) -> None:
    """They were, with the first claim."""
    world.lease(**JOINED)
    world.freeze(100)
    other = world.another()
    assert other.lease(**JOINED).attempt == 2
    assert stock(world) == 1


def test_the_attempt_after_a_failure_does_not_carry_the_items_out_again(world: World) -> None:
    """However it failed."""
    for number, end in enumerate((Response(503), Response(429), None), start=1):
        lease = world.lease(**JOINED)
        assert lease.attempt == number
        if end is None:
            world.do(lease, "settle_exception")
        else:
            world.settle(lease, end, from_view=end.status != 429)
    assert stock(world) == 1


def test_a_key_that_is_bound_anew_carries_the_items_out_again(world: World) -> None:
    """It is another piece of work."""
    world.settle(world.lease(retention_seconds=100, **JOINED))
    world.freeze(200)
    world.lease(retention_seconds=100, **JOINED)
    assert stock(world) == 0


@pytest.mark.parametrize("landed", [True, False])
def test_an_uncertain_claim_keeps_its_items(world: World, landed: bool) -> None:  # noqa: FBT001
    """It is undone as a claim, but what was written with it is known: the next attempt writes nothing twice."""
    world.store.fail(Fault.LOST_REPLY if landed else Fault.LOST_REQUEST, on="transact")
    assert world.problem(**JOINED) == "store-unavailable"
    world.pass_by(10)
    lease = world.lease(**JOINED)
    assert lease.attempt == 1
    assert stock(world) == 1


def test_no_items_make_a_plain_claim(world: World) -> None:
    """The user decides by the request."""
    world.lease(claim_items=lambda _: None)
    assert world.calls() == ["create"]
    assert world.record().transaction is None


def test_the_user_is_asked_once_for_each_attempt(world: World) -> None:
    """However often the store is."""
    asked: list[Request] = []

    def count(sent: Request) -> list[Item]:
        asked.append(sent)
        return reserve(sent)

    world.settle(world.lease(retention_seconds=100, claim_items=count))
    world.freeze(200)
    world.lease(retention_seconds=100, claim_items=count)  # a failed create, then a swap
    assert len(asked) == 2


def test_what_the_function_raises_comes_out_and_nothing_is_claimed(world: World) -> None:
    """It is a handler's error."""

    def broken(_: Request) -> list[Item]:
        raise LookupError("no such sku")

    with pytest.raises(LookupError):
        world.acquire(claim_items=broken)
    with pytest.raises(TransactionInvalid):
        world.acquire(claim_items=lambda _: ["no action"])
    assert world.calls() == []
    assert len(world.upkeep) == 0


def test_a_coroutine_function_needs_a_loop(world: World) -> None:
    """And has one there."""

    async def later(sent: Request) -> list[Item]:
        return reserve(sent)

    if isinstance(world, AsyncWorld):
        world.lease(claim_items=later)
        assert stock(world) == 1
    else:
        with pytest.raises(ConfigurationError, match="coroutine function"):
            world.acquire(claim_items=later)


def test_a_function_that_runs_once_can_be_claimed_with_items(world: World) -> None:
    """Its payload is the request."""
    seen: list[Any] = []

    def note(sent: Request) -> list[Item]:
        seen.append((sent.native, sent.json()))
        return reserve(sent)

    assert world.run_once(lambda lease: "done", payload={"n": 1}, claim_items=note) == "done"
    assert seen == [({"n": 1}, {"n": 1})]
    assert stock(world) == 1


# --- at the start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"claim_items": []}, "claim_items must be a function"),
        ({"on_claim_refused": lambda *_: None}, "on_claim_refused needs claim_items"),
        ({"mode": "observe", **JOINED}, "mode='observe'"),
        ({"on_store_error": "bypass", **JOINED}, "on_store_error='bypass'"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], complaint: str) -> None:
    """By name."""
    with pytest.raises(ConfigurationError, match=complaint):
        Options(**options)


def test_a_store_without_transactions_is_told_at_the_start() -> None:
    """Not by the first request."""
    with pytest.raises(ConfigurationError, match="MemoryStore has no transactions"):
        Engine("memory://", Options(claim_items=reserve))
    engine = Engine(MemoryStore(), Options())
    with pytest.raises(ConfigurationError, match="MemoryStore has no transactions"):
        engine.check(Options(claim_items=reserve))


def test_a_wrong_refusal_is_a_bug(world: World) -> None:
    """Told as one."""
    ledger(world).tables["stock"]["a"]["n"] = {"N": "0"}
    wrong: Callable[..., Any] = lambda *_: "sold out"  # noqa: E731
    with pytest.raises(TypeError, match="on_claim_refused must give"):
        world.acquire(on_claim_refused=wrong, **JOINED)
