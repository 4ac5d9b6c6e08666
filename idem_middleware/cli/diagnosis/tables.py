"""The live table: what it is like, what we may do with it, and what lies in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from idem_middleware.cli.diagnosis.findings import Finding, Light
from idem_middleware.cli.inspection import Phase, phase
from idem_middleware.cli.tables import TableState, look
from idem_middleware.cli.terms import duration
from idem_middleware.errors import StoreUnavailable
from idem_middleware.stores.dynamodb import DynamoDBStore
from idem_middleware.stores.dynamodb.items import record_of
from idem_middleware.stores.dynamodb.layouts import item_name
from idem_middleware.stores.dynamodb.table import permission_probes, replication_problems

__all__ = ["Sample", "check_table_of", "sample"]

_HOUR = 3600
LATE_SECONDS = 48 * _HOUR
"""How late TTL usually is at most: Developer Guide, "Using time to live": within a few days; most say two."""
VERY_LATE_SECONDS = 7 * 24 * _HOUR
_PAGE = 500


def check_table_of(
    store: DynamoDBStore,
    *,
    homes: tuple[str, ...] | None = None,
    sample_items: int = 2000,
    on_step: Callable[[str], object] | None = None,
) -> Iterator[Finding]:
    """Every line of the checklist that the table decides. It writes nothing; it reads up to `sample_items` items."""
    tell = on_step or (lambda step: None)  # noqa: ARG005
    tell("describing the table")
    try:
        state = look(store)
    except StoreUnavailable as error:
        missing = error.code == "ResourceNotFoundException"
        mend = "create it (idem-middleware table create), or correct its name or region" if missing else None
        yield Finding("table", Light.RED, str(error), mend)
        return
    yield _status(state)
    yield _key_schema(store, state)
    yield _ttl(state)
    yield _billing(state)
    yield _recovery(state)
    yield _protection(state)
    yield Finding("encryption", Light.GREEN, state.encryption)
    yield _regions(store, state, homes)
    if state.table.layout != store.layout:
        return  # of another table; the rest would be about that one
    tell("trying the permissions")
    yield from _permissions(store)
    yield from _audit(store)
    yield _clock(store)
    tell("looking through the table")
    yield from _contents(store, state, sample_items)


def _status(state: TableState) -> Finding:
    status = state.table.status
    if status == "ACTIVE":
        return Finding("table", Light.GREEN, f"ACTIVE, {state.table.arn or state.table.name}")
    usable = status == "UPDATING"
    return Finding("table", Light.YELLOW if usable else Light.RED, status, "wait until it is ACTIVE")


def _key_schema(store: DynamoDBStore, state: TableState) -> Finding:
    table = state.table
    if table.layout == store.layout:
        return Finding("key schema", Light.GREEN, f"{table.key}: layout {table.layout}")
    mend = "use another table: a key can't be changed"
    if table.layout is not None:
        mend = f"say layout={table.layout} in the store's URL, or use another table"
    return Finding("key schema", Light.RED, f"{table.key}, which is not the layout {store.layout}", mend)


def _ttl(state: TableState) -> Finding:
    table = state.table
    if table.consistency == "strong":
        return Finding("TTL", Light.GREEN, "not to be had here: run idem-middleware sweep regularly")
    if "ttl" in state.untold:
        return Finding("TTL", Light.GREY, state.untold["ttl"], "allow dynamodb:DescribeTimeToLive to the operator")
    if table.ttl_status not in ("ENABLED", "ENABLING"):
        return Finding(
            "TTL", Light.RED, "off: nothing is ever deleted", "run idem-middleware table create, which switches it on"
        )
    if table.ttl_attribute != "ttl":
        return Finding(
            "TTL",
            Light.RED,
            f"on the attribute {table.ttl_attribute}, which no record has",
            "switch it off and on again for the attribute ttl; the change takes about an hour",
        )
    return Finding("TTL", Light.GREEN, f"{table.ttl_status} on ttl")


def _billing(state: TableState) -> Finding:
    table = state.table
    if table.billing == "on-demand":
        return Finding("billing", Light.GREEN, "on demand")
    return Finding(
        "billing",
        Light.YELLOW,
        f"provisioned: more than {table.write_units} write units a second are throttled, and answered with 503",
        "bill it on demand, or let auto scaling raise it; idem-middleware budget says how much is needed",
    )


def _recovery(state: TableState) -> Finding:
    if state.recovery is None:
        return Finding("recovery", Light.GREY, state.untold.get("recovery", "not told"))
    if state.recovery:
        return Finding("recovery", Light.GREEN, "point in time")
    return Finding(
        "recovery",
        Light.YELLOW,
        "off: a table that is lost has forgotten what was done, and everything can run again",
        "switch point-in-time recovery on: idem-middleware table create",
    )


def _protection(state: TableState) -> Finding:
    if state.table.deletion_protection:
        return Finding("deletion protection", Light.GREEN, "on")
    return Finding("deletion protection", Light.YELLOW, "off", "switch it on: idem-middleware table create")


def _regions(store: DynamoDBStore, state: TableState, homes: tuple[str, ...] | None) -> Finding:
    table = state.table
    problems = list(replication_problems(table, homes))
    if problems:
        return Finding("regions", Light.RED, "; ".join(problems), "send every key to one region: see docs/tables.md")
    if not table.replicas:
        return Finding("regions", Light.GREEN, f"{table.region or store.region or 'one'}, no replicas")
    others = ", ".join(replica.region for replica in table.replicas)
    return Finding("regions", Light.GREEN, f"{table.region} and {others}, consistency {table.consistency}")


def _permissions(store: DynamoDBStore) -> Iterator[Finding]:
    admin = store.admin()
    for operation, request in permission_probes(store.table, store.layout):
        action = operation.title().replace("_", "")
        try:
            admin.call(operation, request)
        except StoreUnavailable as error:
            mend = f"allow dynamodb:{action} on the table: idem-middleware table template prints the policy"
            yield Finding(f"may {action}", Light.RED, str(error), mend)
        else:
            yield Finding(f"may {action}", Light.GREEN, "tried, with no effect")


def _audit(store: DynamoDBStore) -> Iterator[Finding]:
    if store.audit is None:
        return
    try:
        problems = store.audit_problems()
    except StoreUnavailable as error:
        problems = [str(error)]
    if problems:
        yield Finding("audit table", Light.RED, "; ".join(problems), "see docs/tables.md, late duplicates")
    else:
        yield Finding("audit table", Light.GREEN, f"{store.audit.table}, can be consulted with each claim")


def _clock(store: DynamoDBStore) -> Finding:
    offset = store.clock.offset_seconds
    margin = store.clock.margin_seconds
    if abs(offset) <= margin:
        return Finding("clock", Light.GREEN, f"within {margin:g} s of DynamoDB's")
    return Finding(
        "clock",
        Light.RED,
        f"this machine's is {duration(offset)} {'behind' if offset > 0 else 'ahead'}; it is corrected by each answer",
        "set the clock (NTP); AWS takes no signature that is more than 5 minutes off",
    )


# --- what lies in it --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """What a scan of the first items has met."""

    seen: int
    whole: bool
    late: int
    latest_seconds: float
    abandoned: int


def sample(store: DynamoDBStore, most: int) -> Sample:
    """Read up to `most` items, half a read unit for 4 KB.

    Raises:
        StoreUnavailable: not allowed, or no answer.

    """
    admin = store.admin()
    request: dict[str, Any] = {"TableName": store.table}
    seen = late = abandoned = 0
    latest = 0.0
    whole = False
    while seen < most and not whole:
        page = admin.call("scan", {**request, "Limit": min(_PAGE, most - seen)})
        now = store.clock.now()
        for item in page.get("Items", ()):
            seen += 1
            over = now - float(item.get("ttl", {}).get("N", now))
            late += over > 0
            latest = max(latest, over)
            if "status" in item:
                record = record_of(item, item_name(item))
                abandoned += phase(record, now, store.clock.margin_seconds) is Phase.ABANDONED
        whole = "LastEvaluatedKey" not in page
        request["ExclusiveStartKey"] = page.get("LastEvaluatedKey")
    return Sample(seen, whole, late, latest, abandoned)


def _contents(store: DynamoDBStore, state: TableState, most: int) -> Iterator[Finding]:
    if most == 0:
        return
    try:
        met = sample(store, most)
    except StoreUnavailable as error:
        yield Finding("deletion lag", Light.GREY, str(error), "allow dynamodb:Scan to the operator")
        return
    of = f"of {'all' if met.whole else 'the first'} {met.seen:,} items"
    sweeps = (
        "run idem-middleware sweep" if state.table.consistency == "strong" else "see that TTL is on the attribute ttl"
    )
    if met.latest_seconds > LATE_SECONDS:
        light = Light.RED if met.latest_seconds > VERY_LATE_SECONDS else Light.YELLOW
        found = f"{met.late:,} {of} are over, for up to {duration(met.latest_seconds)}"
        yield Finding("deletion lag", light, found, f"{sweeps}; late items cost storage, and decide nothing")
    else:
        found = f"{met.late:,} {of} are over" + (f", for up to {duration(met.latest_seconds)}" if met.late else "")
        yield Finding("deletion lag", Light.GREEN, found)
    if met.abandoned:
        yield Finding(
            "abandoned claims",
            Light.YELLOW,
            f"{met.abandoned:,} {of}",
            "see what crashed or froze, and what it did before: idem-middleware list --state abandoned",
        )
    else:
        yield Finding("abandoned claims", Light.GREEN, f"none {of}")
