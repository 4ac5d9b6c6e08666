"""`table`: create, adapt and describe it; print infrastructure code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from idem_middleware.cli.infrastructure import RENDERERS, AlarmSettings, TableSpecification
from idem_middleware.cli.tables import NOT_KNOWN_THERE, Change, TableState, changes, look, wait_until_active
from idem_middleware.cli.terminal import (
    Failure,
    examples,
    json_option,
    say,
    show_json,
    show_table,
    store_option,
)
from idem_middleware.cli.terms import size
from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.layouts import LAYOUTS
from idem_middleware.stores.dynamodb.table import DEFAULT_TABLE, ProvisionedThroughput, table_name_problem

__all__ = ["table"]

_MISSING = "ResourceNotFoundException"


def _tags(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    pairs = [tag.partition("=") for tag in given]
    for tag, (name, equals, _) in zip(given, pairs, strict=True):
        if not name or not equals:
            raise click.BadParameter(f"a tag is NAME=VALUE, not {tag!r}", ctx, param)
    return {name: value for name, _, value in pairs}


def _units(ctx: click.Context, param: click.Parameter, given: str | None) -> ProvisionedThroughput | None:
    if given is None:
        return None
    write, _, read = given.partition(":")
    if not (write.isdigit() and read.isdigit() and int(write) and int(read)):
        raise click.BadParameter(f"units are WRITE:READ, such as 500:50, not {given!r}", ctx, param)
    return ProvisionedThroughput(read_units=int(read), write_units=int(write))


_provisioned_option = click.option(
    "--provisioned", callback=_units, metavar="WRITE:READ", help="Units a second; on demand if not given."
)
_tag_option = click.option(
    "--tag", "tags", callback=_tags, multiple=True, metavar="NAME=VALUE", help="May be given several times."
)


@click.group(epilog=examples("table create", "table template --format terraform > idempotency.tf"))
def table() -> None:
    """Create, adapt or describe the table; print infrastructure code."""


# --- create -----------------------------------------------------------------------------------------------------------


@table.command(
    epilog=examples(
        "table create --store 'dynamodb://idempotency_keys?region=eu-central-1' --tag team=payments",
        "table create --dry-run",
    )
)
@store_option
@_provisioned_option
@click.option("--recovery/--no-recovery", default=True, show_default=True, help="Point-in-time recovery.")
@click.option("--deletion-protection/--no-deletion-protection", default=True, show_default=True)
@click.option("--kms/--no-kms", default=False, show_default=True, help="Encrypt with the account's key for DynamoDB.")
@click.option("--kms-key", metavar="ARN", help="Encrypt with this key.")
@click.option("--ttl/--no-ttl", default=True, show_default=True, help="No TTL: strongly consistent global tables.")
@_tag_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Don't ask before an existing table is changed.")
def create(
    *,
    store: DynamoDBStore,
    provisioned: ProvisionedThroughput | None,
    recovery: bool,
    deletion_protection: bool,
    kms: bool,
    kms_key: str | None,
    ttl: bool,
    tags: dict[str, str],
    dry_run: bool,
    yes: bool,
) -> None:
    """Create the table, or bring an existing one to what it should be. Doing it twice is harmless.

    What protects the table is switched on, never off: recovery, deletion protection, encryption, TTL, tags.
    """
    state = _existing(store)
    created = state is None
    if dry_run and created:
        say(f"{store.table} would be created, with TTL {'on' if ttl else 'off'}; and then adapted.")
        return
    if state is None:
        store.create_table(billing=provisioned or "on-demand", ttl=ttl)
        say(f"{store.table} is created and active{', its TTL is on' if ttl else ''}.")
        state = look(store)
    planned = list(
        changes(
            state,
            store.table,
            on_demand=provisioned is None,
            recovery=recovery,
            deletion_protection=deletion_protection,
            tags=tags,
            kms=kms_key or kms,
        )
    )
    if not created:
        for change in planned:
            if change.is_known_to_be_impossible(state):
                _say_impossible(change)
        planned = [change for change in planned if not change.is_known_to_be_impossible(state)]
        ttl_missing = ttl and state.table.ttl_status not in ("ENABLED", "ENABLING")
        todo = [change.what for change in planned] + (["switch its TTL on"] if ttl_missing else [])
        if not todo:
            store.create_table(billing=provisioned or "on-demand", ttl=ttl)  # its key and TTL are checked by this
            say(f"{store.table} is as it should be.")
            return
        say(f"{store.table} is there. To do: {'; '.join(todo)}.")
        if dry_run:
            return
        if not yes:
            click.confirm("Do it?", abort=True)
        store.create_table(billing=provisioned or "on-demand", ttl=ttl)
    _carry_out(store, planned)


def _existing(store: DynamoDBStore) -> TableState | None:
    try:
        return look(store)
    except StoreMisconfigured as error:
        if error.code == _MISSING:
            return None
        raise


def _say_impossible(change: Change) -> None:
    say(f"  -  {change.what}: this endpoint, an emulator, has no such thing", style="dim")


def _carry_out(store: DynamoDBStore, planned: Sequence[Change]) -> None:
    failed = 0
    for change in planned:
        wait_until_active(store, time.sleep)
        try:
            change.carry_out(store)
        except StoreUnavailable as error:
            if error.code == NOT_KNOWN_THERE:
                _say_impossible(change)
                continue
            say(f"  ✗  {change.what}: {error}", style="red")
            failed += 1
        else:
            say(f"  ✓  {change.what}", style="green")
    if failed:
        raise Failure(f"{failed} of {len(planned)} could not be done")


# --- describe ---------------------------------------------------------------------------------------------------------


@table.command(epilog=examples("table describe", "table describe --json"))
@store_option
@json_option
def describe(*, store: DynamoDBStore, as_json: bool) -> None:
    """Show what the table is like. It needs the operator's policy, and reads no item."""
    state = look(store)
    if as_json:
        told = asdict(state.table)
        show_json({**told, **{name: getattr(state, name) for name in ("encryption", "recovery", "tags", "untold")}})
        return
    show_table(("", store.table), list(_rows(state)))
    for what, why in state.untold.items():
        say(f"{what}: not told ({why})", style="dim")


def _rows(state: TableState) -> list[tuple[str, str]]:
    table = state.table
    units = f", {table.write_units} write and {table.read_units} read units" if table.billing == "provisioned" else ""
    replicas = ", ".join(f"{replica.region} ({replica.status})" for replica in table.replicas)
    return [
        ("status", table.status),
        ("key", f"{table.key}: layout {table.layout or 'of another'}"),
        ("TTL", _untold(state, "ttl", f"{table.ttl_status}, {table.ttl_attribute or 'no attribute'}")),
        ("billing", f"{table.billing}{units}"),
        ("recovery", _untold(state, "recovery", "on" if state.recovery else "off")),
        ("deletion protection", "on" if table.deletion_protection else "off"),
        ("encryption", state.encryption),
        ("replicas", f"{replicas}, {table.consistency}" if replicas else "none"),
        ("tags", _untold(state, "tags", _pairs(state.tags or {}) or "none")),
        ("items", f"about {table.items:,}, {size(table.size_bytes)} (counted every six hours)"),
        ("ARN", table.arn or ""),
    ]


def _untold(state: TableState, what: str, text: str) -> str:
    return "not told" if what in state.untold else text


def _pairs(tags: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in tags.items())


# --- template ---------------------------------------------------------------------------------------------------------


def _table_name(ctx: click.Context, param: click.Parameter, name: str) -> str:
    problem = table_name_problem(name)
    if problem is not None or ":" in name:
        raise click.BadParameter(problem or "a template makes a table: give its name, not an ARN", ctx, param)
    return name


@table.command(
    epilog=examples(
        "table template > idempotency.yaml",
        "table template --format terraform --tag team=payments",
        "table template --format cdk --region eu-central-1 --replica eu-west-1",
    )
)
@click.option("--format", "kind", type=click.Choice(list(RENDERERS)), default="cloudformation", show_default=True)
@click.option("--table", "name", default=DEFAULT_TABLE, show_default=True, callback=_table_name, help="Its name.")
@click.option("--layout", type=click.Choice(LAYOUTS), default="flat", show_default=True, help="See docs/tables.md.")
@_provisioned_option
@click.option("--recovery/--no-recovery", default=True, show_default=True, help="Point-in-time recovery.")
@click.option("--deletion-protection/--no-deletion-protection", default=True, show_default=True)
@click.option(
    "--encryption",
    type=click.Choice(["aws-owned", "aws-managed", "customer"]),
    default="aws-managed",
    show_default=True,
    help="Whose key: DynamoDB's, the account's, or one of yours.",
)
@click.option("--kms-key", metavar="ARN", help="The key, with --encryption customer.")
@_tag_option
@click.option("--region", help="The table's own region; needed with replicas.")
@click.option("--replica", "replicas", multiple=True, metavar="REGION", help="A global table's other region.")
@click.option(
    "--consistency",
    type=click.Choice(["eventual", "strong"]),
    default="eventual",
    show_default=True,
    help="Of a global table. Strong takes three regions and has no TTL.",
)
@click.option(
    "--retry-percent", type=float, default=50.0, show_default=True, help="Alarm: share of retries in all claims."
)
@click.option("--latency-ms", type=float, default=50.0, show_default=True, help="Alarm: the 99th percentile of writes.")
def template(
    *,
    kind: str,
    name: str,
    layout: str,
    provisioned: ProvisionedThroughput | None,
    recovery: bool,
    deletion_protection: bool,
    encryption: str,
    kms_key: str | None,
    tags: dict[str, str],
    region: str | None,
    replicas: Sequence[str],
    consistency: str,
    retry_percent: float,
    latency_ms: float,
) -> None:
    """Print the table, its alarms and two policies (the service's, an operator's) as infrastructure code."""
    specification = TableSpecification(
        name=name,
        layout=layout,  # type: ignore[arg-type]  # click has checked it
        billing=provisioned or "on-demand",
        recovery=recovery,
        deletion_protection=deletion_protection,
        encryption=encryption,  # type: ignore[arg-type]  # click has checked it
        kms_key_arn=kms_key,
        tags=tags,
        region=region,
        replicas=tuple(replicas),
        consistency=consistency,  # type: ignore[arg-type]  # click has checked it
        alarms=AlarmSettings(retry_percent=retry_percent, latency_ms=latency_ms),
    )
    problems = specification.problems()
    if problems:
        raise click.UsageError("; ".join(problems))
    click.echo(RENDERERS[kind](specification), nl=False)
