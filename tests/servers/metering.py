"""A boto3 session whose clients write down what every call to DynamoDB cost."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3

from idem_middleware.stores.dynamodb.items import item_size

_READS = frozenset({"GetItem", "BatchGetItem"})
_WRITE_UNIT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """One call. Units are those that DynamoDB reported.

    For a write whose condition failed it reports none; AWS bills it by the size of the item that stands there. Then
    `computed_units` has what that makes, by our own reckoning of the size, and `reported_units` is None.
    """

    operation: str
    reported_units: float | None
    computed_units: int | None = None


class Meter:
    """What the clients of one session have cost so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._costs: list[Cost] = []
        self.session = boto3.Session()
        self.session.events.register("before-parameter-build.dynamodb.*", _ask_for_capacity)
        self.session.events.register("after-call.dynamodb.*", self._note)

    def taken(self) -> Sequence[Cost]:
        """Give the calls since the last look."""
        with self._lock:
            taken, self._costs = self._costs, []
        return taken

    def _note(self, model: Any, parsed: Mapping[str, Any], **_: Any) -> None:
        with self._lock:
            self._costs.append(_cost(model.name, parsed))


def operations(costs: Sequence[Cost]) -> list[str]:
    """Give the names of the calls; a put whose condition failed is called so."""
    return [cost.operation if cost.computed_units is None else f"failed {cost.operation}" for cost in costs]


def reported(costs: Sequence[Cost]) -> tuple[float, float]:
    """Give the write and the read units that DynamoDB reported."""
    read = sum(cost.reported_units or 0 for cost in costs if cost.operation in _READS)
    return sum(cost.reported_units or 0 for cost in costs if cost.operation not in _READS), read


def computed(costs: Sequence[Cost]) -> int:
    """Give the write units of failed writes, computed from the size of the items that made them fail."""
    return sum(cost.computed_units or 0 for cost in costs)


def _ask_for_capacity(params: dict[str, Any], model: Any, **_: Any) -> None:
    if "ReturnConsumedCapacity" in model.input_shape.members:
        params["ReturnConsumedCapacity"] = "TOTAL"


def _cost(operation: str, parsed: Mapping[str, Any]) -> Cost:
    if parsed.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
        size = item_size(parsed["Item"])
        return Cost(operation, None, math.ceil(size / _WRITE_UNIT_BYTES))
    capacity = parsed.get("ConsumedCapacity", {})
    parts = capacity if isinstance(capacity, list) else [capacity]
    return Cost(operation, sum(part.get("CapacityUnits", 0.0) for part in parts))
