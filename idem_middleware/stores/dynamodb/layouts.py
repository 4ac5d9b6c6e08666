"""How a record's name becomes an item's key, in each of the two layouts of a table; no I/O.

    flat     partition key `pk`: the record's own 64 hexadecimal digits
    caller   partition key `pk`: 32 digits for the caller; sort key `sk`: the record's 64

A record's name says which of them it is for (`keys.placed`): HASH, or HASH@PARTITION. So whoever reads or writes items
needs to know nothing of layouts, and an item of the one is never taken for one of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from idem_middleware.keys import PLACE

__all__ = [
    "CREATED_INDEX",
    "LAYOUTS",
    "Layout",
    "attribute_definitions",
    "created_index",
    "item_key",
    "item_name",
    "key_schema",
    "piece_name",
    "probe_name",
]

Layout = Literal["flat", "caller"]
LAYOUTS: tuple[Layout, ...] = ("flat", "caller")

CREATED_INDEX = "created"
"""The local index of the layout `caller`: what a caller has used, by `created_at`. It holds the keys alone."""

_PARTITION, _SORT, _CREATED = "pk", "sk", "created_at"


def item_key(name: str) -> dict[str, dict[str, Any]]:
    """The key of the item that holds the record (or piece of a body) of this name."""
    own, place, partition = name.partition(PLACE)
    if not place:
        return {_PARTITION: {"S": own}}
    return {_PARTITION: {"S": partition}, _SORT: {"S": own}}


def item_name(key: Mapping[str, Any]) -> str:
    """The name that an item goes by; its key attributes are strings, as the table makes sure."""
    partition: str = key[_PARTITION]["S"]
    return f"{key[_SORT]['S']}{PLACE}{partition}" if _SORT in key else partition


def piece_name(name: str, suffix: str) -> str:
    """The name of something that lies beside a record, in the same partition."""
    own, place, partition = name.partition(PLACE)
    return f"{own}#{suffix}{place}{partition}"


def probe_name(layout: Layout, word: str) -> str:
    """A name that no record has."""
    return f"{word}{PLACE}{word}" if layout == "caller" else word


def key_schema(layout: Layout) -> list[dict[str, str]]:
    """The table's key, as CreateTable and DescribeTable write it."""
    schema = [{"AttributeName": _PARTITION, "KeyType": "HASH"}]
    return [*schema, {"AttributeName": _SORT, "KeyType": "RANGE"}] if layout == "caller" else schema


def attribute_definitions(layout: Layout, *, with_index: bool = False) -> list[dict[str, str]]:
    """The types of the attributes that are keys, of the table or of its index."""
    defined = [{"AttributeName": key["AttributeName"], "AttributeType": "S"} for key in key_schema(layout)]
    return [*defined, {"AttributeName": _CREATED, "AttributeType": "N"}] if with_index else defined


def created_index() -> dict[str, Any]:
    """The local index, as CreateTable takes it.

    It has the keys alone, so that only what changes `created_at` writes to it: completing a claim does not.
    """
    return {
        "IndexName": CREATED_INDEX,
        "KeySchema": [
            {"AttributeName": _PARTITION, "KeyType": "HASH"},
            {"AttributeName": _CREATED, "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
