"""What may be written together with a claim: actions, and why DynamoDB did not carry them out. No I/O.

An action is a dictionary in the shape of boto3's low-level client, or one of the builders here, which take plain
values:

    lease.transact([
        Update("stock", {"sku": "a"}, "SET available = available - :n", condition="available >= :n", values={":n": 2}),
        Put("orders", {"id": "o-1", "sku": "a"}, condition="attribute_not_exists(id)"),
    ])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from idem_middleware.errors import TransactionInvalid

__all__ = [
    "DEFAULT_CHECKPOINT",
    "KINDS",
    "MAX_CHECKPOINT_BYTES",
    "Action",
    "CancellationCode",
    "CancellationReason",
    "Check",
    "Delete",
    "Item",
    "Put",
    "Transaction",
    "Update",
    "actions_of",
    "checkpoint_of",
]

MAX_CHECKPOINT_BYTES = 1024
"""A checkpoint lies in the claim's item, and every failed write under that key is billed by the item's size."""

DEFAULT_CHECKPOINT = b"committed"

Action = Mapping[str, Any]
"""One member of boto3's `TransactItems`: {"Put": {"TableName": …, "Item": {"id": {"S": …}}, …}}."""

KINDS = ("Put", "Update", "Delete", "ConditionCheck")


class CancellationCode(StrEnum):
    """Why DynamoDB cancelled a transaction on account of one action."""

    NONE = "None"
    CONDITION_FAILED = "ConditionalCheckFailed"
    COLLECTION_TOO_LARGE = "ItemCollectionSizeLimitExceeded"
    CONFLICT = "TransactionConflict"
    THROUGHPUT_EXCEEDED = "ProvisionedThroughputExceeded"
    THROTTLED = "ThrottlingError"
    INVALID = "ValidationError"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, code: object) -> CancellationCode:
        """The code of an answer; one that we don't know is UNKNOWN, and a missing one is NONE."""
        if code is None:
            return cls.NONE
        return next((known for known in cls if known.value == code), cls.UNKNOWN)

    @property
    def passes(self) -> bool:
        """Whether the same transaction may succeed soon."""
        return self in (self.CONFLICT, self.THROUGHPUT_EXCEEDED, self.THROTTLED)


@dataclass(frozen=True, slots=True)
class CancellationReason:
    """What became of one action. `item` is what stands there, in the low-level format, if its condition failed."""

    code: CancellationCode
    item: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Transaction:
    """Actions to carry out together with the write of a record, or not at all. `token` names this one."""

    actions: tuple[Action, ...]
    token: str


@dataclass(frozen=True, kw_only=True)
class _Expressions:
    """What the expressions of an action refer to: names by "#name", values by ":value"."""

    condition: str | None = None
    names: Mapping[str, str] | None = None
    values: Mapping[str, Any] | None = None

    def _with_expressions(self, action: dict[str, Any]) -> dict[str, Any]:
        if self.condition is not None:
            action["ConditionExpression"] = self.condition
        if self.names:
            action["ExpressionAttributeNames"] = dict(self.names)
        if self.values:
            action["ExpressionAttributeValues"] = _typed(self.values)
        return action


@dataclass(frozen=True)
class Put(_Expressions):
    """Write a whole item."""

    table: str
    item: Mapping[str, Any]

    def to_action(self) -> Action:
        """In boto3's shape."""
        return {"Put": self._with_expressions({"TableName": self.table, "Item": _typed(self.item)})}


@dataclass(frozen=True)
class Update(_Expressions):
    """Change an item, or make it."""

    table: str
    key: Mapping[str, Any]
    update: str

    def to_action(self) -> Action:
        """In boto3's shape."""
        action = {"TableName": self.table, "Key": _typed(self.key), "UpdateExpression": self.update}
        return {"Update": self._with_expressions(action)}


@dataclass(frozen=True)
class Delete(_Expressions):
    """Delete an item."""

    table: str
    key: Mapping[str, Any]

    def to_action(self) -> Action:
        """In boto3's shape."""
        return {"Delete": self._with_expressions({"TableName": self.table, "Key": _typed(self.key)})}


@dataclass(frozen=True)
class Check(_Expressions):
    """Change nothing: only if the condition holds is the rest carried out."""

    table: str
    key: Mapping[str, Any]

    def to_action(self) -> Action:
        """In boto3's shape."""
        return {"ConditionCheck": self._with_expressions({"TableName": self.table, "Key": _typed(self.key)})}


Item = Action | Put | Update | Delete | Check


def actions_of(items: Iterable[Item]) -> tuple[Action, ...]:
    """All in boto3's shape.

    Raises:
        TransactionInvalid: one is none of those, or has a value that DynamoDB can't hold.
    """
    actions: list[Action] = []
    for index, item in enumerate(items):
        if isinstance(item, Mapping):
            actions.append(item)
            continue
        if not isinstance(item, (Put, Update, Delete, Check)):
            raise TransactionInvalid(
                f"action {index} must be a dictionary like boto3's, or a Put, Update, Delete or Check, "
                f"not {type(item).__name__}",
                index=index,
            )
        try:
            actions.append(item.to_action())
        except (TypeError, ValueError) as error:
            raise TransactionInvalid(f"action {index} has a value that DynamoDB can't hold: {error}", index) from error
    return tuple(actions)


def checkpoint_of(checkpoint: bytes | str) -> bytes:
    """A checkpoint that can be kept.

    Raises:
        TransactionInvalid: it is empty, or over 1 KB.
    """
    data = checkpoint.encode() if isinstance(checkpoint, str) else bytes(checkpoint)
    if not 1 <= len(data) <= MAX_CHECKPOINT_BYTES:
        raise TransactionInvalid(f"a checkpoint has 1 to {MAX_CHECKPOINT_BYTES} bytes, not {len(data)}")
    return data


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values in the low-level format, as boto3's tables would write them."""
    from boto3.dynamodb.types import TypeSerializer  # noqa: PLC0415 - only who builds actions needs it

    serialize = TypeSerializer().serialize
    return {name: serialize(value) for name, value in values.items()}
