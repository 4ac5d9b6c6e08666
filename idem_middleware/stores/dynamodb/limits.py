"""What DynamoDB would refuse of a transaction, found before it is sent; no I/O.

Developer Guide, "Amazon DynamoDB transactions" and "Service, account, and table quotas".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from idem_middleware.errors import TransactionInvalid
from idem_middleware.stores.dynamodb.items import item_size
from idem_middleware.stores.dynamodb.layouts import item_key
from idem_middleware.transactions import KINDS, Action

__all__ = ["MAX_ACTIONS", "MAX_ITEM_BYTES", "MAX_TRANSACTION_BYTES", "check_actions"]

MAX_ACTIONS = 100
"""In one transaction, the claim's own among them (Amazon's limit)."""

MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
MAX_ITEM_BYTES = 400 * 1024

_TYPES = frozenset({"S", "N", "B", "SS", "NS", "BS", "M", "L", "BOOL", "NULL"})
_ARN = re.compile(r"arn:[a-z0-9-]+:dynamodb:([a-z0-9-]+):(\d{12}):table/([A-Za-z0-9_.-]+)")

_Place = tuple[str | None, str | None, str]
"""Region, account and name of a table; None where only the name is given."""


def check_actions(
    actions: Sequence[Action],
    *,
    table: str,
    pk: str,
    claim_bytes: int,
    region: str | None,
    own_actions: int = 1,
) -> None:
    """Check what can be known without asking.

    `table` and `pk` are the claim's own, `claim_bytes` is its size; `region` is where it lies, if that is known;
    `own_actions` are the claim's write and what else is asked in its transaction.

    Raises:
        TransactionInvalid: it says which limit, and which action.
    """
    most = MAX_ACTIONS - own_actions
    if not 1 <= len(actions) <= most:
        raise TransactionInvalid(f"a transaction has 1 to {most} actions beside the claim's, not {len(actions)}")
    parts = [_part(index, action) for index, action in enumerate(actions)]
    _check_places(parts, table, region)
    _check_targets(parts, table, pk)
    total = claim_bytes + sum(_size(index, part) for index, part in enumerate(parts))
    if total > MAX_TRANSACTION_BYTES:
        raise TransactionInvalid(
            f"a transaction has at most {MAX_TRANSACTION_BYTES} bytes in all its items, not {total}"
        )


def _part(index: int, action: Action) -> Mapping[str, Any]:
    """The one member of an action, once its shape is known to be right."""
    kind = next(iter(action), None)
    if len(action) != 1 or kind not in KINDS:
        shown = ", ".join(map(repr, action)) or "nothing"
        raise TransactionInvalid(f"action {index} must have exactly one of {', '.join(KINDS)}, not {shown}", index)
    part = action[kind]
    wanted = ("TableName", "Item" if kind == "Put" else "Key")
    missing = [name for name in wanted if not isinstance(part, Mapping) or not part.get(name)]
    if missing:
        raise TransactionInvalid(f"action {index}: {kind} needs {' and '.join(missing)}", index)
    for member in (wanted[1], "ExpressionAttributeValues"):
        _check_values(index, f"{kind}.{member}", part.get(member) or {})
    return dict(part)


def _check_values(index: int, where: str, values: object) -> None:
    if not isinstance(values, Mapping):
        raise TransactionInvalid(f"action {index}: {where} must be a dictionary", index)
    for name, value in values.items():
        if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _TYPES:
            raise TransactionInvalid(
                f"action {index}: {where}[{name!r}] must be a typed value like {{'S': …}}; "
                "the builders of idem_middleware.transactions take plain ones",
                index,
            )


def _check_places(parts: Sequence[Mapping[str, Any]], table: str, region: str | None) -> None:
    """A transaction stays in one region of one account."""
    home_region, home_account, _ = _place(table)
    home_region = home_region or region
    for index, part in enumerate(parts):
        at_region, at_account, name = _place(part["TableName"])
        if at_region and home_region and at_region != home_region:
            raise TransactionInvalid(
                f"action {index}: table {name!r} lies in {at_region}, the claim in {home_region}: "
                "a transaction stays in one region",
                index,
            )
        if at_account and home_account and at_account != home_account:
            raise TransactionInvalid(f"action {index}: table {name!r} is another account's", index)
        home_region, home_account = home_region or at_region, home_account or at_account


def _place(table: str) -> _Place:
    arn = _ARN.fullmatch(table)
    return (None, None, table) if arn is None else (arn[1], arn[2], arn[3])


def _check_targets(parts: Sequence[Mapping[str, Any]], table: str, pk: str) -> None:
    """One action an item. What the key of a Put is, only its table's other actions tell; DynamoDB knows it anyway."""
    name = _place(table)[2]
    keys: dict[str, list[Mapping[str, Any]]] = {name: [item_key(pk)]}
    for index, target, key in _keyed(parts):
        if key in keys.setdefault(target, []):
            is_claim = target == name and key == keys[name][0]
            whose = "the claim's own item" if is_claim else f"an item of {target!r} twice"
            raise TransactionInvalid(f"action {index} would write or check {whose}", index)
        keys[target].append(key)
    put: dict[str, list[Mapping[str, Any]]] = {}
    for index, part in enumerate(parts):
        if "Item" not in part:
            continue
        target, item = _place(part["TableName"])[2], part["Item"]
        known = keys.setdefault(target, [])
        if any(all(item.get(part) == value for part, value in key.items()) for key in known):
            raise TransactionInvalid(f"action {index} would write an item of {target!r} that another one uses", index)
        if item in put.setdefault(target, []):
            raise TransactionInvalid(f"action {index} would write an item of {target!r} twice", index)
        put[target].append(item)


def _keyed(parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    for index, part in enumerate(parts):
        if "Key" in part:
            yield index, _place(part["TableName"])[2], part["Key"]


def _size(index: int, part: Mapping[str, Any]) -> int:
    """The bytes of what is sent of one action; an update's item may be larger, which only DynamoDB knows."""
    try:
        item = item_size(part.get("Item") or part.get("Key") or {})
        values = item_size(part.get("ExpressionAttributeValues") or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise TransactionInvalid(f"action {index} has a value that DynamoDB can't hold: {error}", index) from error
    if item > MAX_ITEM_BYTES:
        raise TransactionInvalid(f"action {index}: an item has at most {MAX_ITEM_BYTES} bytes, not {item}", index)
    return item + values
