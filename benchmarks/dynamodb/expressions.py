"""DynamoDB's condition and update expressions, as far as the clients that are measured write them.

Each text is read once, into a function; whatever is not understood is an error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any

__all__ = ["Item", "condition", "update"]

Item = dict[str, Any]
"""Attributes in DynamoDB's JSON: `{"pk": {"S": "…"}}`."""

Names = Mapping[str, str]
Condition = Callable[[Item, Names, Item], bool]
Update = Callable[[Item, Names, Item], Item]
Operand = Callable[[Item, Names, Item], Any]

_TOKEN = re.compile(r"\s*([#:]?[A-Za-z_]\w*|<>|<=|>=|[=<>(),])")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_CLAUSES = re.compile(r"\b(SET|REMOVE)\b")


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while match := _TOKEN.match(text, position):
        tokens.append(match[1])
        position = match.end()
    if text[position:].strip():
        raise ValueError(f"not understood: {text[position:]!r}")
    return tokens


def _operand(token: str) -> Operand:
    if not token:
        raise ValueError("not understood: it ends too early")
    if token[0] == ":":
        return lambda _item, _names, values: values[token]
    if token[0] == "#":
        return lambda item, names, _values: item.get(names[token])
    return lambda item, _names, _values: item.get(token)


def _plain(value: Any) -> Any:
    """What two values are compared by: numbers as numbers, everything else as it stands."""
    ((kind, content),) = value.items()
    return float(content) if kind == "N" else content


class _Parser:
    """Recursive descent: OR over AND over NOT over one test."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ""]
        self._next = 0

    def take(self, *expected: str) -> str:
        token = self._tokens[self._next]
        if expected and token not in expected:
            raise ValueError(f"{token!r} where {expected!r} should be")
        self._next += 1
        return token

    def whole(self) -> Condition:
        found = self._any()
        self.take("")
        return found

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._tokens[self._next] == "OR":
            self.take()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda *given: any(part(*given) for part in parts)

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._tokens[self._next] == "AND":
            self.take()
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda *given: all(part(*given) for part in parts)

    def _one(self) -> Condition:
        token = self.take()
        if token == "NOT":  # noqa: S105  # no password
            negated = self._one()
            return lambda *given: not negated(*given)
        if token == "(":  # noqa: S105
            inner = self._any()
            self.take(")")
            return inner
        if token in {"attribute_exists", "attribute_not_exists"}:
            self.take("(")
            attribute, wanted = _operand(self.take()), token == "attribute_exists"  # noqa: S105
            self.take(")")
            return lambda *given: (attribute(*given) is not None) is wanted
        return self._comparison(_operand(token))

    def _comparison(self, left: Operand) -> Condition:
        sign = self.take("=", "<>", *_ORDERS)
        right = _operand(self.take())

        def compared(item: Item, names: Names, values: Item) -> bool:
            first, second = left(item, names, values), right(item, names, values)
            if first is None or second is None or first.keys() != second.keys():
                return sign == "<>"
            if sign in _ORDERS:
                return _ORDERS[sign](_plain(first), _plain(second))
            return (_plain(first) == _plain(second)) is (sign == "=")

        return compared


@lru_cache(maxsize=256)
def condition(text: str) -> Condition:
    """Whether an item (an empty one, where there is none) is as the text says.

    Raises:
        ValueError: it is not understood.
    """
    return _Parser(text).whole()


@lru_cache(maxsize=256)
def update(text: str) -> Update:
    """What an item is after an update: a new one.

    Raises:
        ValueError: it is not understood.
    """
    before, *clauses = _CLAUSES.split(text)
    if before.strip() or not clauses:
        raise ValueError(f"not understood: {text!r}")
    written: list[tuple[str, Operand]] = []
    removed: list[str] = []
    for kind, listed in zip(clauses[::2], clauses[1::2], strict=True):
        for part in listed.split(","):
            tokens = _tokens(part)
            if kind == "SET" and len(tokens) == 3 and tokens[1] == "=":  # noqa: PLR2004  # name = value
                written.append((tokens[0], _operand(tokens[2])))
            elif kind == "REMOVE" and len(tokens) == 1:
                removed.append(tokens[0])
            else:
                raise ValueError(f"not understood: {part!r}")

    def updated(item: Item, names: Names, values: Item) -> Item:
        changed = dict(item)
        for target, operand in written:
            changed[names.get(target, target)] = operand(item, names, values)
        for target in removed:
            changed.pop(names.get(target, target), None)
        return changed

    return updated
