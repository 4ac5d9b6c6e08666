"""What DynamoDB says of a table, in our words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from idem_middleware.errors import StoreMisconfigured
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.layouts import (
    CREATED_INDEX,
    LAYOUTS,
    Layout,
    attribute_definitions,
    key_schema,
)

__all__ = ["Consistency", "Replica", "TableDescription", "describe_table", "description_of", "layout_of"]

Consistency = Literal["one region", "eventual", "strong"]


@dataclass(frozen=True, slots=True)
class Replica:
    """The table in another region."""

    region: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """One table. Counts and sizes are DynamoDB's own, which it brings up to date about every six hours.

    `layout` is None where the key is not one of ours. `created_index`: whether `keys_of` can be asked. `stream` is
    the kind of view of the table's stream, None where it has none. `consistency` says what several regions see of each
    other's writes, and `replicas` are the regions besides this one, a witness (which holds no items) not among them.
    """

    name: str
    arn: str | None
    region: str | None
    status: str
    layout: Layout | None
    key: str
    created_index: bool
    billing: Literal["on-demand", "provisioned"]
    read_units: int | None
    write_units: int | None
    ttl_status: str | None
    ttl_attribute: str | None
    stream: str | None
    stream_arn: str | None
    items: int
    size_bytes: int
    deletion_protection: bool
    consistency: Consistency
    replicas: tuple[Replica, ...]
    witness: str | None


def describe_table(
    client: Any, table: str, *, ttl: bool = True, sleep: Callable[[float], object] = time.sleep
) -> TableDescription:
    """Ask DynamoDB what the table is like: DescribeTable, and (unless `ttl` is False) DescribeTimeToLive.

    Raises:
        StoreMisconfigured: there is no such table, or we are not allowed to look.
        StoreUnavailable: no answer.

    """
    admin = Admin(client, table, sleep)
    description = admin.description()
    if description is None:
        raise StoreMisconfigured(
            f"DynamoDB table {table!r}: there is no such table in this account and region: create it, or correct "
            "its name",
            code="ResourceNotFoundException",
        )
    return description_of(description, *(admin.ttl() if ttl else (None, None)))


def description_of(
    described: Mapping[str, Any], ttl_status: str | None = None, ttl_attribute: str | None = None
) -> TableDescription:
    """Read the answer of DescribeTable."""
    arn = described.get("TableArn")
    region = _region(arn)
    throughput = described.get("ProvisionedThroughput", {})
    on_demand = described.get("BillingModeSummary", {}).get("BillingMode") == "PAY_PER_REQUEST"
    stream = described.get("StreamSpecification", {})
    replicas = tuple(
        Replica(str(replica.get("RegionName")), str(replica.get("ReplicaStatus", "")))
        for replica in described.get("Replicas") or ()
        if replica.get("RegionName") != region
    )
    witnesses = described.get("GlobalTableWitnesses") or ()
    return TableDescription(
        name=str(described.get("TableName", "")),
        arn=arn,
        region=region,
        status=str(described.get("TableStatus")),
        layout=layout_of(described),
        key=_key_text(described),
        created_index=any(index.get("IndexName") == CREATED_INDEX for index in _indexes(described)),
        billing="on-demand" if on_demand else "provisioned",
        read_units=None if on_demand else throughput.get("ReadCapacityUnits"),
        write_units=None if on_demand else throughput.get("WriteCapacityUnits"),
        ttl_status=ttl_status,
        ttl_attribute=ttl_attribute,
        stream=stream.get("StreamViewType") if stream.get("StreamEnabled") else None,
        stream_arn=described.get("LatestStreamArn") if stream.get("StreamEnabled") else None,
        items=int(described.get("ItemCount") or 0),
        size_bytes=int(described.get("TableSizeBytes") or 0),
        deletion_protection=bool(described.get("DeletionProtectionEnabled")),
        consistency=_consistency(described, replicas, witnesses),
        replicas=replicas,
        witness=next((str(witness.get("RegionName")) for witness in witnesses), None),
    )


def layout_of(described: Mapping[str, Any]) -> Layout | None:
    """The layout whose key this table has."""
    schema = list(described.get("KeySchema", ()))
    types = {d.get("AttributeName"): d.get("AttributeType") for d in described.get("AttributeDefinitions", ())}
    for layout in LAYOUTS:
        wanted = {d["AttributeName"]: d["AttributeType"] for d in attribute_definitions(layout)}
        if schema == key_schema(layout) and all(types.get(name) == kind for name, kind in wanted.items()):
            return layout
    return None


def _consistency(described: Mapping[str, Any], replicas: Iterable[Replica], witnesses: Iterable[Any]) -> Consistency:
    """DescribeTable leaves the mode out of tables that are older than it: those are eventually consistent."""
    if not tuple(replicas) and not tuple(witnesses):
        return "one region"
    return "strong" if described.get("MultiRegionConsistency") == "STRONG" else "eventual"


def _region(arn: object) -> str | None:
    """arn:aws:dynamodb:REGION:ACCOUNT:table/NAME."""
    parts = arn.split(":") if isinstance(arn, str) else []
    return parts[3] if len(parts) > 3 and parts[3] else None  # noqa: PLR2004


def _key_text(described: Mapping[str, Any]) -> str:
    types = {d.get("AttributeName"): d.get("AttributeType") for d in described.get("AttributeDefinitions", ())}
    keys = [(key.get("AttributeName"), key.get("KeyType")) for key in described.get("KeySchema", ())]
    return ", ".join(f"{name} ({kind}, {types.get(name)})" for name, kind in keys)


def _indexes(described: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return described.get("LocalSecondaryIndexes") or ()
