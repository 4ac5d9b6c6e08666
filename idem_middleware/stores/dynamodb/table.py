"""The table: making it, and checking that it can be used before the first request finds out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores.dynamodb.admin import Admin
from idem_middleware.stores.dynamodb.describing import TableDescription, description_of
from idem_middleware.stores.dynamodb.layouts import (
    Layout,
    attribute_definitions,
    created_index,
    item_key,
    key_schema,
    probe_name,
)
from idem_middleware.stores.dynamodb.requests import Request

__all__ = [
    "ACTIONS",
    "DEFAULT_TABLE",
    "ProvisionedThroughput",
    "audit_problems",
    "check_table",
    "create_table",
    "permission_probes",
    "replication_problems",
    "table_name_problem",
]

DEFAULT_TABLE = "idempotency_keys"

ACTIONS = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:GetItem", "dynamodb:BatchGetItem")
"""All that a service needs to be allowed on its table. DeleteItem is not among them: nothing is ever deleted by us."""

_TTL = "ttl"
_POLL_SECONDS = 0.5
_USABLE = ("ACTIVE", "UPDATING")  # both take reads and writes
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")  # Developer Guide, "Naming rules"
_ARN = re.compile(r"arn:[a-z0-9-]+:dynamodb:[a-z0-9-]+:\d{12}:table/[A-Za-z0-9_.-]{3,255}")
_PROBE = "idem-middleware-check"


@dataclass(frozen=True, slots=True)
class ProvisionedThroughput:
    """Capacity that is paid by the hour, in DynamoDB's units per second."""

    read_units: int
    write_units: int


Billing = Literal["on-demand"] | ProvisionedThroughput


def table_name_problem(name: object) -> str | None:
    """Say what is wrong with the name (or ARN) of a table; None if nothing is."""
    if isinstance(name, str) and (_NAME.fullmatch(name) or _ARN.fullmatch(name)):
        return None
    return f"a DynamoDB table's name has 3 to 255 of A-Z a-z 0-9 _ . -, so {name!r} is none"


def create_table(
    client: Any,
    table: str = DEFAULT_TABLE,
    *,
    layout: Layout = "flat",
    index: bool = True,
    billing: Billing = "on-demand",
    ttl: bool = True,
    wait_seconds: float = 60.0,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Make the table if it is not there, wait until it is active, and switch its TTL on. Doing it twice is harmless.

    `client` is one of boto3's, or a `Transport`. `ttl` is False where DynamoDB has none: on strongly consistent global
    tables. `index` is for the layout `caller` alone: the local index of what a caller has used; it can't be made
    later, and is not to be had on strongly consistent global tables either.

    Raises:
        StoreMisconfigured: a table of this name has another key or another TTL attribute; or we are not allowed to.
        StoreUnavailable: not active within `wait_seconds`.

    """
    admin = _TableAdmin(client, table, sleep, layout)
    description = admin.description()
    if description is None:
        admin.create(billing, with_index=index and layout == "caller")
    description = admin.wait_until_active(description, wait_seconds)
    _raise(table, _key_problems(description_of(description), layout))
    if ttl:
        _raise(table, admin.enable_ttl())


def check_table(
    client: Any,
    table: str = DEFAULT_TABLE,
    *,
    layout: Layout = "flat",
    ttl: bool = True,
    homes: Sequence[str] | None = None,
    audit_table: str | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Check that the table is there, has our key and TTL, and that we are allowed all of ACTIONS. Writes nothing.

    An eventually consistent global table is refused, unless `homes` names the regions among which each key has its
    home: two regions could both claim one key. `audit_table` is checked with it, and that we may consult it.

    Raises:
        StoreMisconfigured: it can't be used like this; all that is wrong, and what to do, in one message.
        StoreUnavailable: no answer.

    """
    admin = _TableAdmin(client, table, sleep, layout)
    _raise(table, admin.problems(ttl=ttl, homes=homes, audit_table=audit_table))


class _TableAdmin(Admin):
    """What is done to a table, and asked of it."""

    def __init__(self, client: Any, table: str, sleep: Callable[[float], object], layout: Layout) -> None:
        super().__init__(client, table, sleep)
        self._layout: Layout = layout

    def create(self, billing: Billing, *, with_index: bool) -> None:
        """Make the table; it may be there already."""
        request: Request = {
            "TableName": self.table,
            "KeySchema": key_schema(self._layout),
            "AttributeDefinitions": attribute_definitions(self._layout, with_index=with_index),
            "BillingMode": "PAY_PER_REQUEST",
        }
        if with_index:
            request["LocalSecondaryIndexes"] = [created_index()]
        if isinstance(billing, ProvisionedThroughput):
            request["BillingMode"] = "PROVISIONED"
            request["ProvisionedThroughput"] = {
                "ReadCapacityUnits": billing.read_units,
                "WriteCapacityUnits": billing.write_units,
            }
        try:
            self.call("create_table", request)
        except StoreUnavailable as exc:
            if exc.code != "ResourceInUseException":  # somebody else was quicker, or our first try was applied
                raise

    def wait_until_active(self, description: Mapping[str, Any] | None, wait_seconds: float) -> Mapping[str, Any]:
        """Look again until the table is active; `description` is what was seen of it last."""
        for _ in range(ceil(wait_seconds / _POLL_SECONDS)):
            if description is not None and description.get("TableStatus") in _USABLE:
                return description
            self.sleep(_POLL_SECONDS)
            description = self.description()
        if description is not None and description.get("TableStatus") in _USABLE:
            return description
        status = "absent" if description is None else str(description.get("TableStatus"))
        raise StoreUnavailable(
            f"DynamoDB table {self.table!r} is {status} after {wait_seconds:g} s; it may need longer", code=status
        )

    def enable_ttl(self) -> Iterable[str]:
        """Switch TTL on, unless it is; say what stands against it."""
        status, attribute = self.ttl()
        if status in ("ENABLED", "ENABLING"):
            return _ttl_problems(status, attribute)
        try:
            self.call(
                "update_time_to_live",
                {"TableName": self.table, "TimeToLiveSpecification": {"Enabled": True, "AttributeName": _TTL}},
            )
        except StoreUnavailable:
            status, attribute = self.ttl()
            if status not in ("ENABLED", "ENABLING"):
                raise
            return _ttl_problems(status, attribute)  # somebody else was quicker, or our first try was applied
        return ()

    def problems(self, *, ttl: bool, homes: Sequence[str] | None, audit_table: str | None) -> Iterator[str]:
        """All that is wrong, one sentence each."""
        told: TableDescription | None = None
        try:
            description = self.description()
            told = None if description is None else description_of(description)
            wrong = list(self._shape_problems(told))
            if told is None or told.layout != self._layout:
                yield from wrong  # of another table, or of none; the rest would be about that one
                return
            yield from wrong
            yield from replication_problems(told, homes)
        except StoreMisconfigured as exc:
            yield str(exc)
            if exc.code not in _DENIALS:
                return
        is_strong = told is not None and told.consistency == "strong"
        yield from self._ttl_problems(ttl=ttl and not is_strong)  # there is none to be had
        for operation, request in permission_probes(self.table, self._layout):
            try:
                self.call(operation, request)
            except StoreMisconfigured as exc:
                yield str(exc)
        if audit_table is not None and is_strong:
            yield "it is a global table with strong consistency, which has no transactions: audit_table needs them"
        elif audit_table is not None:
            yield from self.audit_problems(audit_table, ttl=ttl)

    def _shape_problems(self, told: TableDescription | None) -> Iterator[str]:
        if told is None:
            yield "there is no such table in this account and region: create it, or correct its name"
            return
        yield from _key_problems(told, self._layout)
        if told.layout == self._layout and told.status not in _USABLE:
            yield f"it is {told.status}, not ACTIVE"

    def _ttl_problems(self, *, ttl: bool) -> Iterator[str]:
        if ttl:
            try:
                yield from _ttl_problems(*self.ttl())
            except StoreMisconfigured as exc:
                yield str(exc)

    def audit_problems(self, audit_table: str, *, ttl: bool) -> Iterator[str]:
        """What is wrong with the second table, or with using it. One part of the transaction can't hold."""
        other = _TableAdmin(self._transport, audit_table, self.sleep, self._layout)
        for problem in other.own_problems(ttl=ttl):
            yield f"its audit table {audit_table!r}: {problem}"
        key = item_key(probe_name(self._layout, _PROBE))
        never = {"TableName": self.table, "Key": key, "ConditionExpression": "attribute_exists(pk)"}
        check = {"TableName": audit_table, "Key": key, "ConditionExpression": "attribute_not_exists(pk)"}
        try:
            self.call("transact_write_items", {"TransactItems": [{"ConditionCheck": never}, {"ConditionCheck": check}]})
        except StoreMisconfigured as exc:
            yield str(exc)

    def own_problems(self, *, ttl: bool) -> Iterator[str]:
        """What is wrong with the table itself, whatever it is used for."""
        try:
            description = self.description()
            yield from self._shape_problems(None if description is None else description_of(description))
        except StoreMisconfigured as exc:
            yield str(exc)
            return
        if description is not None:
            yield from self._ttl_problems(ttl=ttl)


_DENIALS = frozenset({"AccessDeniedException", "AccessDenied"})


def permission_probes(table: str, layout: Layout) -> Iterator[tuple[str, Request]]:
    """One call for each of ACTIONS, the writes with a condition that can't hold."""
    key = item_key(probe_name(layout, _PROBE))
    never = {
        "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": "pk"},
    }
    yield "put_item", {"TableName": table, "Item": key, **never}
    yield "update_item", {"TableName": table, "Key": key, **never}
    yield "get_item", {"TableName": table, "Key": key, "ConsistentRead": True}
    yield "batch_get_item", {"RequestItems": {table: {"Keys": [key], "ConsistentRead": True}}}


def _key_problems(description: TableDescription, layout: Layout) -> Iterator[str]:
    if description.layout == layout:
        return
    wanted = {
        "flat": "its key must be the one attribute pk (HASH, S)",
        "caller": "its key must be pk (HASH, S) and sk (RANGE, S)",
    }[layout]
    other = f", or layout={description.layout!r}" if description.layout else ""
    yield f"{wanted}, not {description.key}: use another table{other}"


def audit_problems(
    client: Any,
    table: str,
    audit_table: str,
    *,
    layout: Layout = "flat",
    ttl: bool = True,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[str]:
    """What is wrong with an audit table, or with consulting it in the transactions of this table's claims."""
    yield from _TableAdmin(client, table, sleep, layout).audit_problems(audit_table, ttl=ttl)


def replication_problems(description: TableDescription, homes: Sequence[str] | None) -> Iterator[str]:
    """What is wrong with how the table is replicated, for keys that have their homes in these regions."""
    regions = [replica.region for replica in description.replicas]
    if homes is None:
        if description.consistency == "eventual":
            yield (
                f"it is a global table with eventual consistency (MREC), replicated to {', '.join(regions)}: two "
                "regions could both claim one key, and both run its request. Give each key a home with RegionalStore "
                "(regions=... in the store's URL; a single one sends all there), or use a table with strong "
                "consistency (MRSC)"
            )
        return
    missing = sorted(set(homes) - {description.region, *regions})
    if description.consistency != "one region" and missing:
        yield f"keys have their homes in {', '.join(homes)}, and the table is not replicated to {', '.join(missing)}"


def _ttl_problems(status: str, attribute: str | None) -> Iterator[str]:
    if status not in ("ENABLED", "ENABLING"):
        yield f"its TTL is off, so nothing is ever deleted: switch it on for the attribute {_TTL}"
    elif attribute != _TTL:
        yield f"its TTL is on the attribute {attribute}: it must be on {_TTL}"


def _raise(table: str, problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise StoreMisconfigured(f"DynamoDB table {table!r}: {'; '.join(found)}")
