"""A model of one DynamoDB table: what it holds is a number, and what a call does to it is computed once.

It carries out the requests that the product makes, expressions included, so that a condition that is missing there is
missing here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from typing import Any

from botocore.exceptions import ClientError

__all__ = ["EMPTY", "Call", "Reply", "Standing", "Table", "pk_of"]

EMPTY = 0
"""The number of a table that holds nothing."""

_PIECES = "in {count} pieces"
_SPACE = re.compile(r"\s+")
_ABSENT = re.compile(r"attribute_not_exists\((#\w+)\)")
_EQUAL = re.compile(r"(#\w+) = (:\w+)")
_UPDATE = re.compile(r"SET (.+?)(?: REMOVE (.+))?")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of the low-level client. The table makes one object for each, so that they compare by identity."""

    operation: str
    request: Mapping[str, Any]
    pk: str

    def __repr__(self) -> str:
        return self.operation

    @property
    def owner(self) -> str:
        """Who writes; empty for a call that writes no record."""
        request: Mapping[str, Any] = self.request
        if "TransactItems" in request:
            (request,) = request["TransactItems"][0].values()
        values = request.get("Item", {}).get("owner") or request.get("ExpressionAttributeValues", {}).get(":owner")
        return str(values["S"]) if values else ""


@dataclass(frozen=True, slots=True)
class Reply:
    """How the table answers: it was done, the condition failed, or this was read. `item` is the number of an item."""

    kind: str
    item: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A record as it lies in the table, read by the model's own eyes rather than by the product's."""

    status: str
    version: int
    owner: str
    attempt: int
    created_at: float
    expires_at: float
    bound_until: float
    ttl: int
    answer: str | None
    has_checkpoint: bool = False

    @classmethod
    def of(cls, item: Mapping[str, Any] | None) -> Standing | None:
        """Read an item; None where there is none, or where it is no record but a piece of a body."""
        if item is None or "status" not in item:
            return None
        response = item.get("response", {}).get("M", {})
        answer = None
        if "body" in response:
            answer = bytes(response["body"]["B"]).decode()
        elif "chunks" in response:
            answer = _PIECES.format(count=response["chunks"]["M"]["count"]["N"])
        elif "omitted" in response:
            answer = response["omitted"]["M"]["reason"]["S"]
        return cls(
            status=item["status"]["S"],
            version=int(item["version"]["N"]),
            owner=item["owner"]["S"],
            attempt=int(item["attempt"]["N"]),
            created_at=float(item["created_at"]["N"]),
            expires_at=float(item["expires_at"]["N"]),
            bound_until=float(item["bound_until"]["N"]),
            ttl=int(item.get("ttl", {}).get("N", 0)),
            answer=answer,
            has_checkpoint="checkpoint" in item,
        )


def pk_of(request: Mapping[str, Any]) -> str:
    """The item that a request is about, the first of several; those of other tables have their names before them."""
    if "TransactItems" in request:
        (request,) = request["TransactItems"][0].values()
    key = request["Item"] if "Item" in request else request["Key"]
    return str(key["pk"]["S"] if "pk" in key else f"{request['TableName']}#{key['id']['S']}")


class Table:
    """All contents that were ever reached, by number, and all calls that were ever made."""

    def __init__(self) -> None:
        self._contents: list[dict[str, int]] = [{}]
        self._content_numbers: dict[object, int] = {frozenset(): EMPTY}
        self._items: list[Mapping[str, Any]] = []
        self._item_numbers: dict[object, int] = {}
        self._standing: list[Standing | None] = []
        self._calls: dict[object, Call] = {}
        self._effects: dict[tuple[int, Call], tuple[int, Reply]] = {}

    def call(self, operation: str, request: Mapping[str, Any]) -> Call:
        """The one object for this call."""
        frozen = f"{operation}{request}"
        call = self._calls.get(frozen)
        if call is None:
            call = self._calls[frozen] = Call(operation, request, pk_of(request))
        return call

    def apply(self, content: int, call: Call) -> tuple[int, Reply]:
        """What the table holds after a call, and what it answers."""
        effect = self._effects.get((content, call))
        if effect is None:
            effect = self._effects[content, call] = self._applied(content, call)
        return effect

    def standing(self, content: int, pk: str) -> Standing | None:
        """The record under a key, with its answer, wherever that lies."""
        number = self._contents[content].get(pk)
        return None if number is None else self._with_answer(content, pk, self._standing[number])

    def standing_in(self, content: int, pk: str, item: int | None) -> Standing | None:
        """The record that an item is."""
        return None if item is None else self._with_answer(content, pk, self._standing[item])

    def records(self, content: int) -> list[tuple[str, Standing]]:
        """All records, by key."""
        found = [(pk, self.standing(content, pk)) for pk in self._contents[content]]
        return [(pk, standing) for pk, standing in found if standing is not None]

    def entries(self, content: int, table: str) -> int:
        """How many items of another table there are."""
        return sum(pk.startswith(f"{table}#") for pk in self._contents[content])

    def without(self, content: int, pk: str) -> int:
        """What the table holds once the sweeper has taken an item."""
        return self._number({key: item for key, item in self._contents[content].items() if key != pk})

    def _with_answer(self, content: int, pk: str, standing: Standing | None) -> Standing | None:
        if standing is None or standing.answer is None or not standing.answer.endswith(" pieces"):
            return standing
        pieces = []
        for number in range(int(standing.answer.split()[1])):
            item = self._contents[content].get(f"{pk}#{standing.owner}#{number}")
            pieces.append("a missing piece" if item is None else bytes(self._items[item]["data"]["B"]).decode())
        return replace(standing, answer="".join(pieces))

    def response(self, reply: Reply, date: float | None) -> dict[str, Any]:
        """The answer as boto3 gives it; `date` is what the server's clock says.

        Raises:
            ClientError: the condition failed.

        """
        headers = {} if date is None else {"date": formatdate(date, usegmt=True)}
        metadata = {"HTTPStatusCode": 200, "HTTPHeaders": headers, "RetryAttempts": 0}
        item = {} if reply.item is None else {"Item": dict(self._items[reply.item])}
        if reply.kind == "stands":
            error = {"Code": "ConditionalCheckFailedException", "Message": "The conditional request failed"}
            refusal: Any = {"Error": error, "ResponseMetadata": {**metadata, "HTTPStatusCode": 400}, **item}
            raise ClientError(refusal, "Write")
        if reply.kind == "cancelled":
            reasons = [{"Code": "ConditionalCheckFailed", **item}, {"Code": "None"}]
            error = {"Code": "TransactionCanceledException", "Message": "Transaction cancelled"}
            cancelled: Any = {"Error": error, "ResponseMetadata": metadata, "CancellationReasons": reasons}
            raise ClientError(cancelled, "TransactWriteItems")
        return {"ResponseMetadata": metadata, **item}

    # --- the operations ---

    def _applied(self, content: int, call: Call) -> tuple[int, Reply]:
        operations: dict[str, Callable[[int, Call], tuple[int, Reply]]] = {
            "put_item": self._put,
            "update_item": self._update,
            "get_item": self._get,
            "transact_write_items": self._transact,
        }
        return operations[call.operation](content, call)

    def _get(self, content: int, call: Call) -> tuple[int, Reply]:
        if not call.request.get("ConsistentRead"):
            raise AssertionError("a record must be read consistently")
        return content, Reply("read", self._contents[content].get(call.pk))

    def _put(self, content: int, call: Call) -> tuple[int, Reply]:
        found = self._contents[content].get(call.pk)
        if not self._holds(call, found):
            return content, self._refusal(call, found)
        return self._with(content, call.pk, call.request["Item"]), Reply("done")

    def _update(self, content: int, call: Call) -> tuple[int, Reply]:
        found = self._contents[content].get(call.pk)
        if not self._holds(call, found):
            return content, self._refusal(call, found)
        parts = _UPDATE.fullmatch(call.request["UpdateExpression"])
        assert parts is not None, call.request["UpdateExpression"]
        names, values = call.request["ExpressionAttributeNames"], call.request["ExpressionAttributeValues"]
        item = dict(call.request["Key"] if found is None else self._items[found])
        for assignment in parts[1].split(", "):
            name, value = assignment.split(" = ")
            item[names[name]] = values[value]
        for name in (parts[2] or "").split(", "):
            if name:
                item.pop(names[name], None)
        return self._with(content, call.pk, item), Reply("done")

    def _transact(self, content: int, call: Call) -> tuple[int, Reply]:
        token = f"token#{call.request['ClientRequestToken']}"
        sent = {"sent": {"S": str(call.request["TransactItems"])}}
        if token in self._contents[content]:
            if self._items[self._contents[content][token]] != sent:
                raise AssertionError("a token stands for one transaction")
            return content, Reply("done")
        after = content
        for part in call.request["TransactItems"]:
            ((kind, request),) = part.items()
            after, reply = self.apply(after, self.call({"Put": "put_item", "Update": "update_item"}[kind], request))
            if reply.kind != "done":
                return content, Reply("cancelled", reply.item)
        return self._with(after, token, sent), Reply("done")

    def _holds(self, call: Call, found: int | None) -> bool:
        item = {} if found is None else self._items[found]
        condition = _SPACE.sub(" ", call.request.get("ConditionExpression", ""))
        names = call.request.get("ExpressionAttributeNames", {})
        for part in condition.split(" AND ") if condition else ():
            if absent := _ABSENT.fullmatch(part):
                if names[absent[1]] in item:
                    return False
            elif equal := _EQUAL.fullmatch(part):
                if item.get(names[equal[1]]) != call.request["ExpressionAttributeValues"][equal[2]]:
                    return False
            else:
                raise AssertionError(f"the model can't read the condition {part!r}")
        return True

    @staticmethod
    def _refusal(call: Call, found: int | None) -> Reply:
        tells = call.request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return Reply("stands", found if tells else None)

    def _with(self, content: int, pk: str, item: Mapping[str, Any]) -> int:
        return self._number({**self._contents[content], pk: self._item(item)})

    def _number(self, held: dict[str, int]) -> int:
        frozen = frozenset(held.items())
        number = self._content_numbers.get(frozen)
        if number is None:
            number = self._content_numbers[frozen] = len(self._contents)
            self._contents.append(held)
        return number

    def _item(self, item: Mapping[str, Any]) -> int:
        frozen = str(sorted(item.items()))
        number = self._item_numbers.get(frozen)
        if number is None:
            number = self._item_numbers[frozen] = len(self._items)
            self._items.append(item)
            self._standing.append(Standing.of(item))
        return number
