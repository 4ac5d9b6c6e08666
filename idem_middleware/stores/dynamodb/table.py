"""The table: making it, and checking that it can be used before the first request finds out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import StoreMisconfigured, StoreUnavailable
from idem_middleware.stores.dynamodb.calls import Answer, Calls, carry_out
from idem_middleware.stores.dynamodb.requests import Request
from idem_middleware.stores.dynamodb.transport import ClientTransport, Transport

__all__ = ["ACTIONS", "DEFAULT_TABLE", "ProvisionedThroughput", "check_table", "create_table", "table_name_problem"]

DEFAULT_TABLE = "idempotency_keys"

ACTIONS = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:GetItem", "dynamodb:BatchGetItem")
"""All that a service needs to be allowed on its table. DeleteItem is not among them: nothing is ever deleted by us."""

_KEY, _TTL = "pk", "ttl"
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0  # for one call of an operator's; nobody's request waits meanwhile
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
    billing: Billing = "on-demand",
    ttl: bool = True,
    wait_seconds: float = 60.0,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Make the table if it is not there, wait until it is active, and switch its TTL on. Doing it twice is harmless.

    `client` is one of boto3's, or a `Transport`. `ttl` is False where DynamoDB has none: on strongly consistent global
    tables.

    Raises:
        StoreMisconfigured: a table of this name has another key or another TTL attribute; or we are not allowed to.
        StoreUnavailable: not active within `wait_seconds`.

    """
    admin = _Admin(client, table, sleep)
    description = admin.description()
    if description is None:
        admin.create(billing)
    description = admin.wait_until_active(description, wait_seconds)
    _raise(table, _key_problems(description))
    if ttl:
        _raise(table, admin.enable_ttl())


def check_table(
    client: Any,
    table: str = DEFAULT_TABLE,
    *,
    ttl: bool = True,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Check that the table is there, has our key and TTL, and that we are allowed all of ACTIONS. Writes nothing.

    Raises:
        StoreMisconfigured: it can't be used like this; all that is wrong, and what to do, in one message.
        StoreUnavailable: no answer.

    """
    _raise(table, _Admin(client, table, sleep).problems(ttl=ttl))


class _Admin:
    """The calls of an operator on one table."""

    def __init__(self, client: Any, table: str, sleep: Callable[[float], object]) -> None:
        self._table = table
        self._sleep = sleep
        self._transport = _transport_of(client)
        self._calls = Calls(table, clock=CorrectedClock())

    def _call(self, operation: str, request: Request) -> Mapping[str, Any]:
        steps = self._calls.call(operation, request, self._calls.clock.monotonic() + _PATIENCE_SECONDS)
        outcome = carry_out(steps, self._transport, self._sleep)
        return outcome.response if isinstance(outcome, Answer) else {}

    def description(self) -> Mapping[str, Any] | None:
        """What DynamoDB says of the table; None if there is none."""
        try:
            described: Mapping[str, Any] = self._call("describe_table", {"TableName": self._table})["Table"]
        except StoreMisconfigured as exc:
            if exc.code == "ResourceNotFoundException":
                return None
            raise
        return described

    def create(self, billing: Billing) -> None:
        """Make the table; it may be there already."""
        request: Request = {
            "TableName": self._table,
            "KeySchema": [{"AttributeName": _KEY, "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": _KEY, "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        }
        if isinstance(billing, ProvisionedThroughput):
            request["BillingMode"] = "PROVISIONED"
            request["ProvisionedThroughput"] = {
                "ReadCapacityUnits": billing.read_units,
                "WriteCapacityUnits": billing.write_units,
            }
        try:
            self._call("create_table", request)
        except StoreUnavailable as exc:
            if exc.code != "ResourceInUseException":  # somebody else was quicker, or our first try was applied
                raise

    def wait_until_active(self, description: Mapping[str, Any] | None, wait_seconds: float) -> Mapping[str, Any]:
        """Look again until the table is active; `description` is what was seen of it last."""
        for _ in range(ceil(wait_seconds / _POLL_SECONDS)):
            if description is not None and description.get("TableStatus") in _USABLE:
                return description
            self._sleep(_POLL_SECONDS)
            description = self.description()
        if description is not None and description.get("TableStatus") in _USABLE:
            return description
        status = "absent" if description is None else str(description.get("TableStatus"))
        raise StoreUnavailable(
            f"DynamoDB table {self._table!r} is {status} after {wait_seconds:g} s; it may need longer", code=status
        )

    def ttl(self) -> tuple[str, str | None]:
        """The state of the table's TTL, and its attribute."""
        answer = self._call("describe_time_to_live", {"TableName": self._table})
        found = answer.get("TimeToLiveDescription", {})
        return found.get("TimeToLiveStatus", "DISABLED"), found.get("AttributeName")

    def enable_ttl(self) -> Iterable[str]:
        """Switch TTL on, unless it is; say what stands against it."""
        status, attribute = self.ttl()
        if status in ("ENABLED", "ENABLING"):
            return _ttl_problems(status, attribute)
        try:
            self._call(
                "update_time_to_live",
                {"TableName": self._table, "TimeToLiveSpecification": {"Enabled": True, "AttributeName": _TTL}},
            )
        except StoreUnavailable:
            status, attribute = self.ttl()
            if status not in ("ENABLED", "ENABLING"):
                raise
            return _ttl_problems(status, attribute)  # somebody else was quicker, or our first try was applied
        return ()

    def problems(self, *, ttl: bool) -> Iterator[str]:
        """All that is wrong, one sentence each."""
        try:
            description = self.description()
            if description is None:
                yield "there is no such table in this account and region: create it, or correct its name"
                return
            wrong_key = list(_key_problems(description))
            if wrong_key:
                yield from wrong_key  # of another table; the rest would be about that one
                return
            if description.get("TableStatus") not in _USABLE:
                yield f"it is {description.get('TableStatus')}, not ACTIVE"
        except StoreMisconfigured as exc:
            yield str(exc)
            if exc.code not in _DENIALS:
                return
        if ttl:
            try:
                yield from _ttl_problems(*self.ttl())
            except StoreMisconfigured as exc:
                yield str(exc)
        for operation, request in _probes(self._table):
            try:
                self._call(operation, request)
            except StoreMisconfigured as exc:
                yield str(exc)


def _transport_of(client: Any) -> Transport:
    """Clients of boto3 can't be called; a transport can."""
    transport: Transport = client
    return transport if callable(client) else ClientTransport(client)


_DENIALS = frozenset({"AccessDeniedException", "AccessDenied"})


def _probes(table: str) -> Iterator[tuple[str, Request]]:
    """One call for each of ACTIONS, the writes with a condition that can't hold."""
    key = {_KEY: {"S": _PROBE}}
    never = {
        "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": _KEY},
    }
    yield "put_item", {"TableName": table, "Item": key, **never}
    yield "update_item", {"TableName": table, "Key": key, **never}
    yield "get_item", {"TableName": table, "Key": key, "ConsistentRead": True}
    yield "batch_get_item", {"RequestItems": {table: {"Keys": [key], "ConsistentRead": True}}}


def _key_problems(description: Mapping[str, Any]) -> Iterator[str]:
    schema = [(key.get("AttributeName"), key.get("KeyType")) for key in description.get("KeySchema", ())]
    types = {d.get("AttributeName"): d.get("AttributeType") for d in description.get("AttributeDefinitions", ())}
    if schema != [(_KEY, "HASH")] or types.get(_KEY) != "S":
        shown = ", ".join(f"{name} ({kind}, {types.get(name)})" for name, kind in schema)
        yield f"its key must be the one attribute {_KEY} (HASH, S), not {shown}: use another table"


def _ttl_problems(status: str, attribute: str | None) -> Iterator[str]:
    if status not in ("ENABLED", "ENABLING"):
        yield f"its TTL is off, so nothing is ever deleted: switch it on for the attribute {_TTL}"
    elif attribute != _TTL:
        yield f"its TTL is on the attribute {attribute}: it must be on {_TTL}"


def _raise(table: str, problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise StoreMisconfigured(f"DynamoDB table {table!r}: {'; '.join(found)}")
