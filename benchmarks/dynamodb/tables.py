"""Tables in memory that answer as DynamoDB does, and reckon what Amazon would bill; no network.

Only what the measured clients send is understood; anything else is refused loudly.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.dynamodb.expressions import Item, condition, update

__all__ = ["Tables", "item_bytes"]

Document = dict[str, Any]
KEYS = ("pk", "id", "effective_key")
"""What the tables of ours, of Powertools and of idemkit have for a key."""

_WRITE_UNIT_BYTES, _READ_UNIT_BYTES = 1024, 4096
_MOST_BYTES = 256 * 2**20


def _codec() -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    try:
        import orjson  # noqa: PLC0415  # it is quicker, and may be absent
    except ImportError:
        return lambda document: json.dumps(document).encode(), json.loads
    return orjson.dumps, orjson.loads


_dumps, _loads = _codec()


def item_bytes(item: Item) -> int:
    """How large Amazon reckons an item: names and values (Developer Guide, "DynamoDB item sizes and formats")."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Any) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(str(content).encode())
        case "N":
            return (len(content.lstrip("-0.").replace(".", "")) + 1) // 2 + 1
        case "B":
            return len(content) * 3 // 4 - int(content.endswith("=")) - int(content.endswith("=="))
        case "M":
            return 3 + len(content) + item_bytes(content)
        case "L":
            return 3 + len(content) + sum(map(_value_bytes, content))
        case _:
            return 1


def _units(size: int, unit: int) -> int:
    return max(1, -(-size // unit))


class _Failed(Exception):
    """A condition was not met; what stands there."""

    def __init__(self, item: Item | None, document: Document) -> None:
        super().__init__()
        self.item = item if document.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" else None


class Tables:
    """All tables of one endpoint; they need not be made. The oldest items go when there is too much."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._items: dict[tuple[str, str], tuple[Item, int]] = {}
        self._bytes = 0
        self._calls: Counter[str] = Counter()
        self._write_units = 0
        self._read_units = 0
        self._operations: dict[str, Callable[[Document], Document]] = {
            "putitem": self._put,
            "updateitem": self._update,
            "deleteitem": self._delete,
            "getitem": self._get,
            "batchgetitem": self._batch_get,
        }

    def answer(self, operation: str, body: bytes) -> tuple[str, bytes]:
        """Carry out a call: its HTTP status and what to answer. The operation is in lower case."""
        self._calls[operation] += 1
        try:
            return "200 OK", _dumps(self._operations[operation](_loads(body)))
        except _Failed as failed:
            name, message = "ConditionalCheckFailedException", "The conditional request failed"
            found: Document = {} if failed.item is None else {"Item": failed.item}
        except (KeyError, ValueError) as exc:
            name, message, found = "ValidationException", f"the stub does not understand this: {exc!r}", {}
        kind = f"com.amazonaws.dynamodb.v20120810#{name}"
        return "400 Bad Request", _dumps({"__type": kind, "message": message, **found})

    def counts(self) -> bytes:
        """What was asked so far, and its capacity units, as JSON.

        A write takes a unit for each KB begun of the larger item, before or after; one whose condition fails does too,
        of what stands there. A consistent read takes one for each 4 KB begun.
        """
        units = {"write_units": self._write_units, "read_units": self._read_units}
        return _dumps({"calls": self._calls.total(), "by_operation": dict(self._calls), **units})

    # --- the operations ---

    def _put(self, document: Document) -> Document:
        item: Item = document["Item"]
        place = self._place(document, item)
        self._write(place, document, lambda _: item)
        return {}

    def _update(self, document: Document) -> Document:
        key: Item = document["Key"]
        names, values = document.get("ExpressionAttributeNames", {}), document.get("ExpressionAttributeValues", {})
        change = update(document["UpdateExpression"])
        old = self._write(
            self._place(document, key), document, lambda item: change(key if item is None else item, names, values)
        )
        return {"Attributes": old} if old is not None and document.get("ReturnValues") == "ALL_OLD" else {}

    def _delete(self, document: Document) -> Document:
        self._write(self._place(document, document["Key"]), document, lambda _: None)
        return {}

    def _get(self, document: Document) -> Document:
        found = self._read(self._place(document, document["Key"]), consistent=document.get("ConsistentRead", False))
        return {} if found is None else {"Item": found}

    def _batch_get(self, document: Document) -> Document:
        responses: dict[str, list[Item]] = {}
        for table, asked in document["RequestItems"].items():
            found = [
                self._read(self._place({"TableName": table}, key), consistent=asked.get("ConsistentRead", False))
                for key in asked["Keys"]
            ]
            responses[table] = [item for item in found if item is not None]
        return {"Responses": responses, "UnprocessedKeys": {}}

    # --- the register ---

    @staticmethod
    def _place(document: Document, keyed: Item) -> tuple[str, str]:
        return document["TableName"], next(keyed[name]["S"] for name in KEYS if name in keyed)

    def _write(
        self, place: tuple[str, str], document: Document, change: Callable[[Item | None], Item | None]
    ) -> Item | None:
        """Change what stands there, if it may be; gives what stood there before."""
        old, old_bytes = self._items.get(place, (None, 0))
        text = document.get("ConditionExpression")
        if text is not None and not condition(text)(
            old or {}, document.get("ExpressionAttributeNames", {}), document.get("ExpressionAttributeValues", {})
        ):
            self._write_units += _units(old_bytes, _WRITE_UNIT_BYTES)
            raise _Failed(old, document)
        new = change(old)
        new_bytes = 0 if new is None else item_bytes(new)
        self._write_units += _units(max(old_bytes, new_bytes), _WRITE_UNIT_BYTES)
        self._bytes += new_bytes - old_bytes
        if new is None:
            self._items.pop(place, None)
        else:
            self._items[place] = (new, new_bytes)
        while self._bytes > self._most_bytes:
            _, forgotten = self._items.pop(next(iter(self._items)))
            self._bytes -= forgotten
        return old

    def _read(self, place: tuple[str, str], *, consistent: bool) -> Item | None:
        item, size = self._items.get(place, (None, 0))
        self._read_units += _units(size, _READ_UNIT_BYTES) if consistent else _units(size, 2 * _READ_UNIT_BYTES)
        return item
