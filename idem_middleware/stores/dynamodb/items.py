"""Records as DynamoDB items, both ways; no I/O.

Writing is strict, reading is total: whatever stands in the table, `record_of` gives a record and never raises. What
can't be read for certain comes back with another schema version than ours, so that nothing is run on its account.

    attribute       type
    pk              S     the record's key, 64 hexadecimal digits; in the layout `caller` its partition, 32 digits,
    sk              S     and the record's key
    status          S     PENDING, COMPLETED or FAILED
    version         N     + 1 with every write
    owner           S     random per attempt
    attempt         N     1 for the first
    fingerprint     B     what the request was
    caller_digest   B     absent where a caller is configured
    created_at      N     unix seconds with a fraction, as the next two
    expires_at      N     end of what the status says
    bound_until     N     when the key is free
    ttl             N     whole unix seconds, for DynamoDB's sweeper alone
    response        M     absent, or {status N, headers L, encoding S, body B} where the body is in the item,
                          or {status N, headers L, encoding S, chunks M {count N, size N, sha256 B}} where it is not,
                          or {omitted M {reason S, location S}} where there is none,
                          or {sealed B} where a cipher is set: any of these, encrypted;
                          headers are a flat list: name, value, name, value, ...
    checkpoint      B     absent where there is none
    transaction     S     absent where nothing else was written with the record
    schema          N     the version of this table
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from math import inf, isfinite
from typing import Any

from idem_middleware.bodies import MAX_HEADER_LINES
from idem_middleware.messages import HeaderPairs
from idem_middleware.records import (
    SCHEMA_VERSION,
    Chunks,
    KeptResponse,
    OmittedResponse,
    Record,
    SealedResponse,
    Status,
)
from idem_middleware.stores.dynamodb.layouts import item_key, piece_name

__all__ = [
    "OPTIONAL",
    "UNREADABLE",
    "Item",
    "chunk_data",
    "chunk_item",
    "chunk_pk",
    "item_of",
    "item_size",
    "record_of",
]

Item = dict[str, dict[str, Any]]
"""Attribute name to value in the low-level format: {"pk": {"S": "..."}}."""

UNREADABLE = -1
"""The schema number of a record that is damaged. No version has it, so no worker runs or replays anything for it."""

OPTIONAL = frozenset({"caller_digest", "response", "checkpoint", "transaction"})
"""Attributes that are absent where the record has None."""

# Instants outside of these are damage: zero is what a broken writer leaves (and would set a key free), and milliseconds
# taken for seconds lie beyond the year 9999.
_EARLIEST, _LATEST = 1, 253_402_300_800
_MOST = 2**62
_LONGEST_NUMBER = 64  # DynamoDB has 38 digits; longer text did not come from there
_LONGEST_TEXT = 1024
_MOST_CHUNKS = 10_000  # 3.5 GB; more would only keep a reader busy
_SHA256_BYTES = 32
_STATUSES = (200, 599)

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2
_HEADER_VALUE = re.compile(r"[^\r\n\0]*")  # the three that end a header line for some server


class _Damaged(ValueError):
    """An attribute is missing, of the wrong type, or holds what we never write."""


# --- record to item ---------------------------------------------------------------------------------------------------


def item_of(record: Record) -> Item:
    """Write a record as an item.

    Raises:
        ValueError: a time is not finite. Such a record was never claimed by us.

    """
    item: Item = {
        **item_key(record.pk),
        "status": {"S": record.status.value},
        "version": _number(record.version),
        "owner": {"S": record.owner},
        "attempt": _number(record.attempt),
        "fingerprint": {"B": record.fingerprint},
        "created_at": _time(record.created_at),
        "expires_at": _time(record.expires_at),
        "bound_until": _time(record.bound_until),
        "ttl": _number(record.ttl),
        "schema": _number(record.schema),
    }
    if record.caller_digest is not None:
        item["caller_digest"] = {"B": record.caller_digest}
    if record.response is not None:
        item["response"] = {"M": _response_map(record.response)}
    if record.checkpoint is not None:
        item["checkpoint"] = {"B": record.checkpoint}
    if record.transaction is not None:
        item["transaction"] = {"S": record.transaction}
    return item


def _response_map(response: KeptResponse | OmittedResponse | SealedResponse) -> Item:
    if isinstance(response, SealedResponse):
        return {"sealed": {"B": response.data}}
    if isinstance(response, OmittedResponse):
        omitted: Item = {"reason": {"S": response.reason}}
        if response.location is not None:
            omitted["location"] = {"S": response.location}
        return {"omitted": {"M": omitted}}
    kept: Item = {
        "status": _number(response.status),
        # One flat list: two bytes a line of DynamoDB's overhead, where a list of pairs has six.
        "headers": {"L": [{"S": text} for pair in response.headers for text in pair]},
        "encoding": {"S": response.encoding},
    }
    if response.chunks is not None:
        chunks = response.chunks
        kept["chunks"] = {
            "M": {"count": _number(chunks.count), "size": _number(chunks.size_bytes), "sha256": {"B": chunks.sha256}}
        }
    elif response.body is not None:
        kept["body"] = {"B": response.body}
    return kept


def _number(value: int) -> dict[str, Any]:
    return {"N": str(int(value))}


def _time(instant: float) -> dict[str, Any]:
    if not isfinite(instant):
        raise ValueError(f"not a time that can be stored: {instant!r}")
    # Never an exponent. A double of 2004 or later (2**30 s) has steps of 2**-22 s or more: 7 digits are exact.
    return {"N": f"{instant:.7f}"}


# --- item to record ---------------------------------------------------------------------------------------------------


def record_of(item: object, pk: str) -> Record:
    """Read whatever stands under `pk`. Never raises.

    An older schema comes back as if it were written by ours. A newer one, or damage: the record has that schema number,
    or UNREADABLE, and of its fields only pk, status, owner, version and bound_until mean anything. Where one of these
    four is damaged itself, the key is bound for ever (that is, until the item is deleted): no write could be fenced by
    what is not known. A broken answer is None.
    """
    attributes: Mapping[object, object] = item if isinstance(item, Mapping) else {}
    read = _nothing_read(pk)
    try:
        read = _fence(attributes, read)
        read = replace(read, bound_until=_instant(attributes, "bound_until"))
        read = replace(read, schema=_whole(attributes, "schema", 0, _MOST))
        meaning = _MEANINGS.get(read.schema)
        if meaning is None:
            return read
        created_at = _instant(attributes, "created_at")
        if read.bound_until < created_at:  # no record ends before it began: this would set a key free that is bound
            return replace(read, bound_until=inf, schema=UNREADABLE)
        return meaning(attributes, replace(read, created_at=created_at, schema=SCHEMA_VERSION))
    except _Damaged:
        return replace(read, schema=UNREADABLE)


def _nothing_read(pk: str) -> Record:
    return Record(
        pk=pk,
        status=Status.PENDING,
        version=0,
        owner="",
        attempt=0,
        fingerprint=b"",
        caller_digest=None,
        created_at=0.0,
        expires_at=inf,
        bound_until=inf,
        schema=UNREADABLE,
    )


def _fence(attributes: Mapping[object, object], read: Record) -> Record:
    """Read what a swap is conditioned on."""
    for name, written in item_key(read.pk).items():
        if _text(attributes, name) != written["S"]:
            raise _Damaged(name)
    return replace(
        read,
        status=_status(attributes),
        version=_whole(attributes, "version", 0, _MOST),
        owner=_text(attributes, "owner"),
    )


def _meaning(attributes: Mapping[object, object], read: Record) -> Record:
    """Read the rest, which only this schema version (1) is known to mean."""
    expires_at = _instant(attributes, "expires_at")
    if expires_at < read.created_at:
        raise _Damaged("expires_at")
    return replace(
        read,
        attempt=_whole(attributes, "attempt", 0, _MOST),
        fingerprint=_bytes(attributes, "fingerprint"),
        caller_digest=_bytes(attributes, "caller_digest") if "caller_digest" in attributes else None,
        expires_at=expires_at,
        response=_response(attributes),
        # A checkpoint that can't be read is not "none": its work is done, and would be done again.
        checkpoint=_bytes(attributes, "checkpoint") if "checkpoint" in attributes else None,
        transaction=_text(attributes, "transaction") if "transaction" in attributes else None,
    )


_MEANINGS: dict[int, Callable[[Mapping[object, object], Record], Record]] = {1: _meaning}
"""Who reads the items of each schema version: ours, and each older one for as long as its records may live.

A new version gets a reader of its own beside the old ones. The next swap writes the item anew, in ours.
"""


def _response(attributes: Mapping[object, object]) -> KeptResponse | OmittedResponse | SealedResponse | None:
    """Read the answer; None where it is missing or damaged: the work is known to be done, its answer is not."""
    try:
        parts = _map(attributes, "response")
        if "sealed" in parts:
            return SealedResponse(_bytes(parts, "sealed"))
        return _omitted(_map(parts, "omitted")) if "omitted" in parts else _kept(parts)
    except _Damaged:
        return None


def _kept(parts: Mapping[object, object]) -> KeptResponse:
    has_body, has_chunks = ("body" in parts), ("chunks" in parts)
    if has_body == has_chunks:
        raise _Damaged("body")
    return KeptResponse(
        status=_whole(parts, "status", *_STATUSES),
        headers=_headers(parts),
        encoding=_text(parts, "encoding"),
        body=_bytes(parts, "body") if has_body else None,
        chunks=_chunks(_map(parts, "chunks")) if has_chunks else None,
    )


def _omitted(parts: Mapping[object, object]) -> OmittedResponse:
    location = None
    if "location" in parts:
        location = _header_value(_value(parts, "location", "S"))
    return OmittedResponse(reason=_text(parts, "reason"), location=location)


def _chunks(parts: Mapping[object, object]) -> Chunks:
    size_bytes = _whole(parts, "size", 1, _MOST)
    count = _whole(parts, "count", 1, min(size_bytes, _MOST_CHUNKS))
    sha256 = _bytes(parts, "sha256")
    if len(sha256) != _SHA256_BYTES:
        raise _Damaged("sha256")
    return Chunks(count=count, size_bytes=size_bytes, sha256=sha256)


def _headers(parts: Mapping[object, object]) -> HeaderPairs:
    """Read the header lines; one that could end its line early, or can't be sent at all, is damage."""
    flat = _value(parts, "headers", "L")
    if not isinstance(flat, list) or len(flat) % 2 or len(flat) > 2 * MAX_HEADER_LINES:
        raise _Damaged("headers")
    texts = [_value({"header": text}, "header", "S") for text in flat]
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return tuple((_header_name(name), _header_value(value)) for name, value in pairs)


def _header_name(name: object) -> str:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise _Damaged("headers")
    return name


def _header_value(value: object) -> str:
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise _Damaged("headers")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        raise _Damaged("headers") from None
    return value


# --- one attribute ----------------------------------------------------------------------------------------------------


def _value(attributes: Mapping[object, object], name: str, kind: str) -> object:
    typed = attributes.get(name)
    if not isinstance(typed, Mapping) or len(typed) != 1 or kind not in typed:
        raise _Damaged(name)
    return typed[kind]


def _text(attributes: Mapping[object, object], name: str) -> str:
    text = _value(attributes, name, "S")
    if not isinstance(text, str) or not text or len(text) > _LONGEST_TEXT or not text.isascii():
        raise _Damaged(name)
    return text


def _status(attributes: Mapping[object, object]) -> Status:
    try:
        return Status(_text(attributes, "status"))
    except ValueError:
        raise _Damaged("status") from None


def _bytes(attributes: Mapping[object, object], name: str) -> bytes:
    value = _value(attributes, name, "B")
    if not isinstance(value, (bytes, bytearray)):
        raise _Damaged(name)
    return bytes(value)


def _map(attributes: Mapping[object, object], name: str) -> Mapping[object, object]:
    value = _value(attributes, name, "M")
    if not isinstance(value, Mapping):
        raise _Damaged(name)
    return value


def _decimal(attributes: Mapping[object, object], name: str) -> Decimal:
    text = _value(attributes, name, "N")
    if not isinstance(text, str) or len(text) > _LONGEST_NUMBER:
        raise _Damaged(name)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _Damaged(name) from None
    if not number.is_finite():
        raise _Damaged(name)
    return number


def _whole(attributes: Mapping[object, object], name: str, least: int, most: int) -> int:
    number = _decimal(attributes, name)
    # The bounds first: int() of 1e1000000 would be a number of a million digits.
    if not least <= number <= most or number != int(number):
        raise _Damaged(name)
    return int(number)


def _instant(attributes: Mapping[object, object], name: str) -> float:
    number = _decimal(attributes, name)
    if not _EARLIEST <= number < _LATEST:
        raise _Damaged(name)
    return float(number)


# --- chunks -----------------------------------------------------------------------------------------------------------

_CHUNK_TTL_SLACK_SECONDS = 3600
"""A recording that is tried again in the background points at chunks written up to an attempt's length before it."""


def chunk_pk(owner: Record, number: int) -> str:
    """Name the piece `number` (from 0) of the body that this attempt produced."""
    return piece_name(owner.pk, f"{owner.owner}#{number}")


def chunk_item(owner: Record, number: int, data: bytes) -> Item:
    """Write one piece of a body; the sweeper takes it later than the record `owner`."""
    return {
        **item_key(chunk_pk(owner, number)),
        "data": {"B": data},
        "ttl": _number(owner.ttl + _CHUNK_TTL_SLACK_SECONDS),
    }


def chunk_data(item: object) -> bytes | None:
    """Read one piece; None where it is damaged. Never raises."""
    try:
        return _bytes(item if isinstance(item, Mapping) else {}, "data")
    except _Damaged:
        return None


# --- sizes ------------------------------------------------------------------------------------------------------------


def item_size(item: Item) -> int:
    """Reckon an item's size in bytes as DynamoDB does: Developer Guide, "DynamoDB item sizes and formats"."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(typed: Mapping[str, Any]) -> int:  # noqa: PLR0911 - one for each type
    ((kind, value),) = typed.items()
    match kind:
        case "S":
            return len(str(value).encode())
        case "B":
            return len(bytes(value))
        case "N":
            # "1 byte per two significant digits, + 1 byte"; zeros at either end are not significant.
            digits = str(value).lstrip("-").replace(".", "").strip("0")
            return (len(digits) + 1) // 2 + 1 + str(value).startswith("-")
        case "L":
            return 3 + sum(1 + _value_size(element) for element in value)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_size(element) for name, element in value.items())
        case "SS" | "NS" | "BS":
            return sum(_value_size({kind[0]: element}) for element in value)
        case "BOOL" | "NULL":
            return 1
        case _:
            raise ValueError(f"DynamoDB has no attributes of type {kind}")
