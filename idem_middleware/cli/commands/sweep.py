"""`sweep`: deletes what is over, where DynamoDB does not."""

from __future__ import annotations

from dataclasses import asdict

import click

from idem_middleware.cli.terminal import examples, json_option, progress, say, show_json, store_option
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.sweeping import Swept

__all__ = ["sweep"]


@click.command(
    epilog=examples("sweep --units 25", "sweep --max-seconds 600 --json", "sweep --resume-from 4f1d2a9c0b3e")
)
@store_option
@click.option(
    "--units",
    type=click.FloatRange(min=0.0, min_open=True),
    default=25.0,
    show_default=True,
    help="Read and write units a second, together.",
)
@click.option(
    "--max-seconds", type=click.FloatRange(min=0.0, min_open=True), help="End after this time, wherever it is."
)
@click.option("--resume-from", help="Where an earlier sweep ended.")
@json_option
def sweep(
    *, store: DynamoDBStore, units: float, max_seconds: float | None, resume_from: str | None, as_json: bool
) -> None:
    """Delete every item whose time is over, at a bounded rate.

    For tables that have no TTL: strongly consistent global tables. Elsewhere TTL does it for nothing. Rights that the
    service has not are needed: dynamodb:Scan and dynamodb:DeleteItem.
    """
    with progress() as bars:
        about = store.describe(ttl=False).items if not bars.disable else None
        task = bars.add_task("sweeping", total=about or None)

        def tell(so_far: Swept) -> None:
            bars.update(task, completed=so_far.seen, description=f"sweeping: {so_far.deleted:,} deleted")

        swept = store.sweep(units_per_second=units, max_seconds=max_seconds, resume_from=resume_from, on_progress=tell)
    if as_json:
        show_json(asdict(swept))
        return
    say(
        f"{swept.seen:,} items seen, {swept.deleted:,} deleted, {swept.kept:,} kept since they were bound anew. "
        f"{swept.read_units:,.1f} read and {swept.write_units:,.1f} write units."
    )
    if swept.resume_from is not None:
        say(f"Not at the end yet. Go on with: --resume-from {swept.resume_from}")
