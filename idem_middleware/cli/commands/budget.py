"""`budget`: what a load costs."""

from __future__ import annotations

from dataclasses import asdict

import click

from idem_middleware.cli.costs import DEFAULT_PRICES, Budget, Load, Prices, reckon
from idem_middleware.cli.terminal import examples, json_option, say, show_json, show_table
from idem_middleware.cli.terms import duration, size
from idem_middleware.stores.dynamodb.layouts import LAYOUTS

__all__ = ["budget"]

_RATE = click.FloatRange(min=0.0)
_POSITIVE = click.FloatRange(min=0.0, min_open=True)
_SHARE = click.FloatRange(min=0.0, max=1.0)
_BYTES = click.IntRange(min=0, max=32 * 1024 * 1024)


@click.command(
    epilog=examples(
        "budget --rps 2000 --duplicates 0.15",
        "budget --rps 50 --average-rps 12 --answer-bytes 20000 --retention 172800 --write-price 0.7",
    )
)
@click.option("--rps", type=_POSITIVE, required=True, help="New requests a second at the peak, duplicates not counted.")
@click.option(
    "--duplicates", type=_RATE, default=0.05, show_default=True, help="Duplicates per new request: 0.15 is 15 %."
)
@click.option("--average-rps", type=_RATE, help="New requests a second over a month; the peak's if not given.")
@click.option("--answer-bytes", type=_BYTES, default=1000, show_default=True, help="An answer's body.")
@click.option("--header-bytes", type=_BYTES, default=200, show_default=True, help="An answer's kept headers.")
@click.option(
    "--compression", type=_SHARE, default=0.3, show_default=True, help="What zlib leaves of a body; JSON: 0.3."
)
@click.option("--handler-seconds", type=_RATE, default=0.5, show_default=True, help="How long the work takes.")
@click.option(
    "--lease", type=_POSITIVE, default=60.0, show_default=True, help="lease_seconds; renewed every third of it."
)
@click.option("--failures", type=_SHARE, default=0.0, show_default=True, help="Share of runs that fail.")
@click.option("--retention", type=_POSITIVE, default=86400.0, show_default=True, help="retention_seconds.")
@click.option(
    "--deletion-lag", type=_RATE, default=172800.0, show_default=True, help="How late TTL deletes: plan with 48 hours."
)
@click.option(
    "--transaction-items",
    type=click.IntRange(min=2, max=100),
    help="Items in the transaction that does the work, the claim among them, each up to 1 KB.",
)
@click.option("--checkpoint", is_flag=True, help="The transaction is lease.transact, not lease.complete_with.")
@click.option("--regions", type=click.IntRange(min=1), default=1, show_default=True, help="Regions with a replica.")
@click.option("--recovery/--no-recovery", default=True, show_default=True, help="Point-in-time recovery.")
@click.option("--layout", type=click.Choice(LAYOUTS), default="flat", show_default=True, help="See docs/tables.md.")
@click.option("--largest-caller", type=_SHARE, help="The largest caller's share of the load, with --layout caller.")
@click.option(
    "--write-price",
    type=_RATE,
    default=DEFAULT_PRICES.write_per_million,
    show_default=True,
    help="A million write units.",
)
@click.option(
    "--read-price", type=_RATE, default=DEFAULT_PRICES.read_per_million, show_default=True, help="A million read units."
)
@click.option(
    "--storage-price", type=_RATE, default=DEFAULT_PRICES.storage_per_gb_month, show_default=True, help="A GB-month."
)
@click.option(
    "--recovery-price", type=_RATE, default=DEFAULT_PRICES.recovery_per_gb_month, show_default=True, help="A GB-month."
)
@json_option
def budget(
    *,
    rps: float,
    duplicates: float,
    average_rps: float | None,
    answer_bytes: int,
    header_bytes: int,
    compression: float,
    handler_seconds: float,
    lease: float,
    failures: float,
    retention: float,
    deletion_lag: float,
    transaction_items: int | None,
    checkpoint: bool,
    regions: int,
    recovery: bool,
    layout: str,
    largest_caller: float | None,
    write_price: float,
    read_price: float,
    storage_price: float,
    recovery_price: float,
    as_json: bool,
) -> None:
    """Reckon capacity units and the monthly price of a load.

    The claims' writes are the peak × (1 + duplicates). The rest follows from the calls that the engine makes and from
    the size of the items that it writes.
    """
    if checkpoint and transaction_items is None:
        raise click.UsageError("--checkpoint needs --transaction-items")
    if largest_caller is not None and layout != "caller":
        raise click.UsageError(
            "--largest-caller is for --layout caller: elsewhere a caller has no partition of its own"
        )
    load = Load(
        requests_per_second=rps,
        duplicate_ratio=duplicates,
        average_requests_per_second=average_rps,
        answer_bytes=answer_bytes,
        header_bytes=header_bytes,
        compression_ratio=compression,
        handler_seconds=handler_seconds,
        lease_seconds=lease,
        failure_ratio=failures,
        retention_seconds=retention,
        deletion_lag_seconds=deletion_lag,
        transaction_items=transaction_items or 0,
        checkpoint=checkpoint,
        regions=regions,
        recovery=recovery,
        layout=layout,  # type: ignore[arg-type]  # click has checked it
        largest_caller_share=largest_caller,
    )
    given = (write_price, read_price, storage_price, recovery_price)
    prices = Prices(
        write_per_million=write_price,
        read_per_million=read_price,
        storage_per_gb_month=storage_price,
        recovery_per_gb_month=recovery_price,
        source=DEFAULT_PRICES.source if given == _default_prices() else "as given",
    )
    reckoned = reckon(load, prices)
    if as_json:
        show_json(_as_json(reckoned))
    else:
        _show(reckoned)


def _default_prices() -> tuple[float, float, float, float]:
    prices = DEFAULT_PRICES
    return (
        prices.write_per_million,
        prices.read_per_million,
        prices.storage_per_gb_month,
        prices.recovery_per_gb_month,
    )


def _show(budget: Budget) -> None:
    load = budget.load
    say(
        f"{budget.claim_writes:,.0f} claim writes a second at the peak: "
        f"{load.requests_per_second:,g} × (1 + {load.duplicate_ratio:g})",
        style="bold",
    )
    show_table(
        ("call", "a second", "units each", "write units/s", "read units/s"),
        [
            (
                flow.name,
                f"{flow.calls_per_second:,.1f}",
                f"{flow.write_units or flow.read_units:,g}",
                f"{flow.writes:,.1f}",
                f"{flow.reads:,.1f}",
            )
            for flow in budget.flows
        ]
        + [("together", "", "", f"{budget.write_units:,.1f}", f"{budget.read_units:,.1f}")],
        right=("a second", "units each", "write units/s", "read units/s"),
    )
    say(
        f"Items: a claim {size(budget.claim_item_bytes)}, completed {size(budget.completed_item_bytes)}"
        + (f", its answer's chunks {size(budget.chunk_bytes)}" if budget.chunk_bytes else "")
        + f". Stored: {budget.stored_gb:,.2f} GB, kept {duration(load.retention_seconds)} and deleted up to "
        f"{duration(load.deletion_lag_seconds)} late."
    )
    currency = budget.prices.currency
    show_table(
        ("a month", currency),
        [(name, f"{price:,.2f}") for name, price in budget.monthly.items()]
        + [("together", f"{budget.monthly_total:,.2f}")],
        right=(currency,),
    )
    say(f"Prices: {budget.prices.source}.")
    for note in budget.notes:
        say(f"Note: {note}.")


def _as_json(budget: Budget) -> dict[str, object]:
    return {
        "load": asdict(budget.load),
        "claim_writes_per_second": budget.claim_writes,
        "write_units_per_second": budget.write_units,
        "read_units_per_second": budget.read_units,
        "calls": [asdict(flow) for flow in budget.flows],
        "claim_item_bytes": budget.claim_item_bytes,
        "completed_item_bytes": budget.completed_item_bytes,
        "chunk_bytes": budget.chunk_bytes,
        "stored_gb": budget.stored_gb,
        "monthly": {**budget.monthly, "total": budget.monthly_total},
        "prices": asdict(budget.prices),
        "notes": list(budget.notes),
    }
