"""What each kind of request costs at DynamoDB: calls, and capacity units as DynamoDB itself reports them.

A write whose condition failed reports none; for it the units are computed from the size of the item, and called so.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from idem_middleware import DynamoDBStore, Engine, Lease, Options, Request, Response
from idem_middleware.body import RequestBody
from idem_middleware.keys import record_pk
from idem_middleware.outcomes import Refused, Replayed, Unprotected
from tests.servers.client import B, Service, is_fresh, is_problem, is_replay, plan
from tests.servers.metering import Cost, Meter, computed, operations, reported
from tests.servers.table import REGION, Table
from tests.support.polling import eventually

pytestmark = [pytest.mark.dynamodb_local]

A_LEASE_AND_MORE = 70
KB = 1024
CHUNK_BYTES = 350 * KB

Handler = Callable[[Lease | None], Response]


def noise(size: int) -> bytes:
    """Bytes that nothing can make smaller."""
    return random.Random(size).randbytes(size)  # noqa: S311  # the same in every run


CREATED = Response(201, (("content-type", "application/json"),), b'{"id": 7}')
BROKEN = Response(500, (), b"it broke")


class Metered:
    """An engine whose calls are metered, and a key that nobody else uses."""

    def __init__(self, table: Table, endpoint: str, key: str, **options: Any) -> None:
        self._table = table
        self.key = key
        self._meter = Meter()
        store = DynamoDBStore(table.name, region=REGION, endpoint=endpoint, session=self._meter.session)
        self.engine = Engine(store, Options(caller="shared", **options))

    def request(self, *, body: bytes = b"{}", method: str = "POST", key: str | None = "") -> Request:
        """Make a request; its key is the given header value, by default this engine's own, None for none."""
        headers = () if key is None else (("idempotency-key", key or self.key),)
        return Request(method=method, path="/orders", headers=headers, body=RequestBody.from_bytes(body))

    def send(self, answer: Response | Handler, **request: Any) -> Response:
        """Run what gives this answer, or get the one that was given before."""
        handler = answer if callable(answer) else lambda lease: answer
        return self.engine.run(self.request(**request), handler)

    def begin(self) -> Lease | Replayed | Refused | Unprotected:
        """Claim the key, and leave the work to the test."""
        request = self.request()
        admitted = self.engine.admit_request(request)
        assert not isinstance(admitted, Refused)
        return self.engine.acquire(request, admitted)  # type: ignore[arg-type]

    def costs(self) -> list[Cost]:
        """Give the calls since the last look."""
        return list(self._meter.taken())

    def let_pass(self, seconds: float) -> None:
        """Let so much time pass for the record of the key."""
        self._table.let_pass(record_pk("", None, self.key), seconds)


@pytest.fixture(scope="module")
def table(dynamodb_local: str) -> Iterator[Table]:
    """A table of this module's own."""
    table = Table(f"cost-{uuid4().hex}", dynamodb_local)
    DynamoDBStore(table.name, region=REGION, endpoint=dynamodb_local).create_table()
    yield table
    table.close()


@pytest.fixture
def metered(table: Table, dynamodb_local: str) -> Metered:
    """An engine with the default options."""
    return Metered(table, dynamodb_local, str(uuid4()))


# --- the engine -------------------------------------------------------------------------------------------------------


def test_a_new_request_with_a_small_answer_costs_two_writes(metered: Metered) -> None:
    """The claim and its completion, a unit each."""
    assert metered.send(CREATED) == CREATED
    costs = metered.costs()
    assert operations(costs) == ["PutItem", "UpdateItem"]
    assert reported(costs) == (2, 0)


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_large_answer_costs_its_chunks_in_addition(metered: Metered, size: int) -> None:
    """A unit for each KB, written before the completion points at them."""
    metered.send(Response(200, (), noise(size)))
    costs = metered.costs()
    chunks = math.ceil(size / CHUNK_BYTES)
    assert operations(costs) == ["PutItem", *["PutItem"] * chunks, "UpdateItem"]
    write, read = reported(costs)
    # What a chunk has besides its bytes may begin one more KB.
    assert 2 + size / KB <= write <= 2 + size / KB + 2 * chunks
    assert read == 0


def test_a_large_answer_costs_what_it_is_compressed(metered: Metered) -> None:
    """JSON of 100 KB is a fraction of that."""
    document = json.dumps([{"id": n, "state": "paid", "amount": n * 17 % 1000} for n in range(2500)]).encode()
    assert len(document) > 100_000
    metered.send(Response(200, (), document))
    costs = metered.costs()
    assert operations(costs) == ["PutItem", "PutItem", "UpdateItem"]
    assert reported(costs)[0] < 2 + 0.4 * len(document) / KB


@pytest.mark.parametrize("failure", ["answer", "exception"])
def test_a_failed_run_costs_two_writes(metered: Metered, failure: str) -> None:
    """As any: what has failed is recorded, too."""

    def fail(lease: Lease | None) -> Response:
        if failure == "exception":
            raise RuntimeError("planned")
        return BROKEN

    try:
        assert metered.send(fail) == BROKEN
    except RuntimeError:
        assert failure == "exception"
    costs = metered.costs()
    assert operations(costs) == ["PutItem", "UpdateItem"]
    assert reported(costs) == (2, 0)


@pytest.mark.parametrize(("size", "units"), [(0, 1), (100, 1), (1000, 2), (2000, 3), (3000, 4)])
def test_a_replay_of_a_small_answer_costs_the_claims_size(metered: Metered, size: int, units: int) -> None:
    """One write that fails and brings the answer with it; nothing is reported, the size makes 1 to 4 units."""
    metered.send(Response(200, (), noise(size)))
    metered.costs()
    assert metered.send(BROKEN).body == noise(size)
    costs = metered.costs()
    assert operations(costs) == ["failed PutItem"]
    assert computed(costs) == units
    assert reported(costs) == (0, 0)


@pytest.mark.parametrize("size", range(2900, 3900, 100))
def test_no_answer_makes_a_replay_cost_more_than_four_units(metered: Metered, size: int) -> None:
    """Where it no longer fits, it is beside the claim, which is small again."""
    metered.send(Response(200, (), noise(size)))
    metered.costs()
    assert metered.send(BROKEN).body == noise(size)
    costs = metered.costs()
    assert computed(costs) <= 4
    if len(costs) > 1:
        assert (operations(costs), computed(costs), reported(costs)) == (["failed PutItem", "GetItem"], 1, (0, 1))


@pytest.mark.parametrize(("size", "read"), [(100_000, "GetItem"), (1_000_000, "BatchGetItem")])
def test_a_replay_of_a_large_answer_costs_one_read(metered: Metered, size: int, read: str) -> None:
    """A quarter of a unit for each KB, and one for the claim: a storm of retries throttles nobody."""
    metered.send(Response(200, (), noise(size)))
    metered.costs()
    assert metered.send(BROKEN).body == noise(size)
    costs = metered.costs()
    assert operations(costs) == ["failed PutItem", read]
    assert computed(costs) == 1
    write, units = reported(costs)
    assert write == 0
    assert size / KB / 4 <= units <= size / KB / 4 + 3


def test_a_reused_key_costs_one_failed_write(metered: Metered) -> None:
    """As much as a replay of what stands there."""
    metered.send(CREATED)
    metered.costs()
    assert metered.send(BROKEN, body=b"[]").status == 422
    costs = metered.costs()
    assert operations(costs) == ["failed PutItem"]
    assert computed(costs) == 1


def test_a_request_in_progress_costs_one_failed_write(metered: Metered) -> None:
    """The claim of the one that runs is small."""
    lease = metered.begin()
    assert isinstance(lease, Lease)
    metered.costs()
    assert metered.send(BROKEN).status == 409
    costs = metered.costs()
    assert operations(costs) == ["failed PutItem"]
    assert computed(costs) == 1
    lease.abandon()


@pytest.mark.parametrize("before", ["crashed", "failed"])
def test_a_second_run_costs_a_failed_write_and_two_more(metered: Metered, before: str) -> None:
    """Whether the first one was abandoned or has failed: three units."""
    if before == "crashed":
        lease = metered.begin()
        assert isinstance(lease, Lease)
        lease.abandon()
        metered.let_pass(A_LEASE_AND_MORE)
    else:
        metered.send(BROKEN)
    metered.costs()

    assert metered.send(CREATED) == CREATED
    costs = metered.costs()
    assert operations(costs) == ["failed PutItem", "UpdateItem", "UpdateItem"]
    assert computed(costs) == 1
    assert reported(costs) == (2, 0)


def test_a_renewal_costs_one_write(table: Table, dynamodb_local: str) -> None:
    """A unit for each third of the lease that the work takes."""
    metered = Metered(table, dynamodb_local, str(uuid4()), lease_seconds=1)
    costs: list[Cost] = []

    def work(lease: Lease | None) -> Response:
        def renewed() -> bool:
            costs.extend(metered.costs())
            return len(costs) >= 3

        eventually(renewed, what="two renewals")
        return CREATED

    metered.send(work)
    costs += metered.costs()
    renewals = len(costs) - 2
    assert renewals >= 2
    assert operations(costs) == ["PutItem", *["UpdateItem"] * renewals, "UpdateItem"]
    assert reported(costs) == (2 + renewals, 0)


def test_a_poll_costs_one_read(table: Table, dynamodb_local: str) -> None:
    """Whoever waits for another process's answer looks for it with strongly consistent reads."""
    key = str(uuid4())
    running, waiting = Metered(table, dynamodb_local, key), Metered(table, dynamodb_local, key, wait_seconds=30)
    lease = running.begin()
    assert isinstance(lease, Lease)
    costs: list[Cost] = []

    def polled() -> bool:
        costs.extend(waiting.costs())
        return len(costs) >= 3

    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(waiting.send, BROKEN)
        eventually(polled, what="two polls")
        lease.complete(CREATED)
        assert answer.result().status == CREATED.status
    costs += waiting.costs()
    polls = len(costs) - 1
    assert operations(costs) == ["failed PutItem", *["GetItem"] * polls]
    assert reported(costs) == (0, polls)


@pytest.mark.parametrize(
    "request_",
    [{"key": None}, {"key": '"'}, {"method": "GET"}, {"method": "OPTIONS", "key": None}],
    ids=["key missing", "key invalid", "method not covered", "preflight"],
)
def test_what_is_not_claimed_costs_nothing(metered: Metered, request_: dict[str, Any]) -> None:
    """Not one call."""
    metered.send(CREATED, **request_)
    assert metered.costs() == []


# --- through servers --------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_server_makes_the_same_calls(service: Service) -> None:
    """A failed run, a second one, a replay and a mismatch."""
    is_fresh(service.send(plan(status=500)), 500)
    assert service.operations == ["PutItem", "UpdateItem"]
    again = service.send()
    is_fresh(again)
    assert service.operations[2:] == ["PutItem", "UpdateItem", "UpdateItem"]
    is_replay(service.send(), again)
    assert service.operations[5:] == ["PutItem"]
    is_problem(service.send(body=B), "key-reused", 422)
    assert service.operations[6:] == ["PutItem"]
    assert [call.failed_condition for call in service.proxy.calls(service.pk())] == [
        *[False, False],
        *[True, False, False],
        True,
        True,
    ]


@pytest.mark.processes
def test_a_server_keeps_a_large_answer_beside_the_claim(single_service: Service) -> None:
    """And reads it from there."""
    # Its pattern repeats, and is a few KB when compressed.
    first = single_service.send(plan(size=2_000_000))
    is_fresh(first)
    assert single_service.operations == ["PutItem", "PutItem", "UpdateItem"]
    is_replay(single_service.send(), first)
    assert single_service.operations[3:] == ["PutItem", "GetItem"]


@pytest.mark.processes
def test_waiting_costs_a_server_reads_alone(demanding_service: Service) -> None:
    """One claim that fails, then one look after the other."""
    running = demanding_service.send_in_background(plan(delay=1))
    demanding_service.is_running()
    waiting = demanding_service.send_in_background()
    is_replay(waiting.result(), running.result())
    calls = [call.operation for call in demanding_service.proxy.calls(demanding_service.pk())]
    assert calls.count("PutItem") == 2
    assert calls.count("UpdateItem") == 1
    assert calls.count("GetItem") >= 1
    assert len(calls) == 3 + calls.count("GetItem")


@pytest.mark.processes
def test_a_server_calls_nobody_for_what_it_does_not_claim(service: Service) -> None:
    """Other methods, exempt views, missing keys."""
    service.send(method="GET", body=b"")
    service.send(route="exempt")
    service.send(key=None)
    assert service.operations == []
