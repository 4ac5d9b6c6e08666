"""What a load costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idem_middleware import Engine, Options, Request, Response
from idem_middleware.body import RequestBody
from idem_middleware.cli.costs import Load, Prices, reckon
from idem_middleware.stores import DynamoDBStore
from idem_middleware.stores.dynamodb.items import item_size
from idem_middleware.stores.urls import store_from_url
from tests.cli.conftest import Run, RunJson

PLAIN = Load(requests_per_second=2000, duplicate_ratio=0.15)


def test_claim_writes_are_the_peak_and_its_duplicates(run_json: RunJson) -> None:
    """2,000 a second with 15 % duplicates: 2,300."""
    told = run_json("budget", "--rps", "2000", "--duplicates", "0.15")
    assert told["claim_writes_per_second"] == pytest.approx(2300)
    claims = [call for call in told["calls"] if "PutItem" in call["name"]]
    assert sum(call["calls_per_second"] * call["write_units"] for call in claims) == pytest.approx(2300)


def test_a_new_request_with_a_small_answer_takes_two_units() -> None:
    """A claim and a completion."""
    assert reckon(replace(PLAIN, duplicate_ratio=0)).write_units == pytest.approx(4000)


def test_a_transaction_of_two_items_takes_four_units() -> None:
    """The claim and one item of the user's, each prepared and committed."""
    budget = reckon(replace(PLAIN, transaction_items=2))
    (transaction,) = [flow for flow in budget.flows if "TransactWriteItems" in flow.name]
    assert transaction.write_units == 4
    assert not any("completion" in flow.name for flow in budget.flows), "complete_with is the completion"


def test_a_checkpoint_does_not_complete() -> None:
    """The completion is a write of its own then."""
    budget = reckon(replace(PLAIN, transaction_items=2, checkpoint=True))
    assert [flow.name for flow in budget.flows if "completion" in flow.name]


def test_a_large_answer_is_written_to_chunks_and_makes_no_duplicate_dearer() -> None:
    """A duplicate fails on a small item, and reads the chunks."""
    budget = reckon(replace(PLAIN, answer_bytes=100_000, compression_ratio=1.0))
    flows = {flow.name: flow for flow in budget.flows}
    assert flows["duplicate: failed PutItem"].write_units == 1
    assert flows["answer's chunks: PutItem"].write_units == pytest.approx(98)
    assert flows["duplicate: its answer's chunks"].read_units == pytest.approx(25)


def test_renewals_come_every_third_of_the_lease() -> None:
    """A handler of 65 s with a lease of 60 s is renewed three times."""
    budget = reckon(replace(PLAIN, handler_seconds=65))
    (renewals,) = [flow for flow in budget.flows if "renewal" in flow.name]
    assert renewals.calls_per_second == pytest.approx(3 * 2000)


def test_storage_is_held_for_the_retention_and_the_deletions_lag() -> None:
    """A day and two: three times what one day holds."""
    one = reckon(replace(PLAIN, deletion_lag_seconds=0))
    three = reckon(PLAIN)
    assert three.stored_gb == pytest.approx(3 * one.stored_gb)


def test_prices_are_the_average_loads() -> None:
    """The peak decides on units, the average on money."""
    prices = Prices(write_per_million=1.0, read_per_million=0, storage_per_gb_month=0, recovery_per_gb_month=0)
    load = Load(requests_per_second=100, average_requests_per_second=1)
    assert reckon(load, prices).monthly_total == pytest.approx(2 * 730 * 3600 / 1e6)


def test_a_replica_repeats_what_was_written_and_deleted() -> None:
    """A failed write is not replicated; a deletion by TTL is."""
    budget = reckon(replace(PLAIN, regions=2))
    assert budget.replicated_units == pytest.approx(2000 + 2000 + 2000)
    assert budget.monthly["replicated writes"] > 0


def test_one_partition_per_caller_has_its_limit() -> None:
    """1,000 units a second."""
    (note,) = reckon(replace(PLAIN, largest_caller_share=0.5)).notes
    assert "a partition takes 1,000" in note
    (note,) = reckon(replace(PLAIN, largest_caller_share=0.1)).notes
    assert "of the 1,000" in note


def test_the_layout_by_caller_writes_an_index() -> None:
    """A unit more for each claim."""
    assert reckon(replace(PLAIN, layout="caller")).write_units == reckon(PLAIN).write_units + 2000


def test_it_reads_well(run: Run) -> None:
    """The sum first, the prices with their source and date."""
    text = run("budget", "--rps", "2000", "--duplicates", "0.15", "--answer-bytes", "20000").output
    assert text.startswith("2,300 claim writes a second")
    assert "as of 2024-11-01" in text


def test_own_prices_are_called_so(run: Run) -> None:
    """Not AWS's."""
    assert "Prices: as given." in run("budget", "--rps", "1", "--write-price", "9").output


def test_a_checkpoint_without_a_transaction_is_wrong(run: Run) -> None:
    """There would be nothing to checkpoint. So is a caller's share where callers share partitions."""
    assert "--layout caller" in run("budget", "--rps", "1", "--largest-caller", "0.5", status=2).output
    assert "--transaction-items" in run("budget", "--rps", "1", "--checkpoint", status=2).output


@pytest.mark.dynamodb_local
@pytest.mark.parametrize("size_bytes", [300, 2_000, 60_000])
def test_the_items_are_as_large_as_the_stores_own(local_table: str, size_bytes: int) -> None:
    """Against a real record: within a unit, which is what is billed."""
    store = store_from_url(local_table)
    assert isinstance(store, DynamoDBStore)
    body = bytes(i * 7919 % 251 for i in range(size_bytes))
    answer = Response(201, (("content-type", "application/json"), ("location", "/orders/1")), body)
    engine = Engine(store, Options(caller="shared"))
    request = Request(
        method="POST", path="/orders", headers=(("Idempotency-Key", "order-1"),), body=RequestBody.from_bytes(b"{}")
    )
    engine.run(request, lambda lease: answer)
    engine.drain()

    scanned = store.admin().call("scan", {"TableName": store.table, "ReturnConsumedCapacity": "TOTAL"})
    (record,) = [item for item in scanned["Items"] if "status" in item]
    kept = record["response"]["M"]
    packed_bytes = int(kept["chunks"]["M"]["size"]["N"]) if "chunks" in kept else len(kept["body"]["B"])
    ratio = packed_bytes / size_bytes
    budget = reckon(
        Load(requests_per_second=1, answer_bytes=size_bytes, header_bytes=60, compression_ratio=min(1.0, ratio))
    )
    assert item_size(record) == pytest.approx(budget.completed_item_bytes, abs=100)
    chunks = [item_size(item) for item in scanned["Items"] if "status" not in item]
    assert sum(chunks) == pytest.approx(budget.chunk_bytes, abs=100)
