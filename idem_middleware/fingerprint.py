"""What a request was, in 33 bytes: two requests under one key are the same if their fingerprints are."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from hashlib import sha256
from types import NoneType
from typing import Any
from uuid import UUID

from python_multipart.multipart import parse_options_header

from idem_middleware.body import RequestBody
from idem_middleware.canonical.json import NumberLiteral, canonical_json
from idem_middleware.canonical.multipart import multipart_digest
from idem_middleware.canonical.query import canonical_query

__all__ = ["FINGERPRINT_VERSION", "canonical_value", "fingerprints"]

FINGERPRINT_VERSION = 1
"""The first byte of every fingerprint. It grows with every change that makes any request's fingerprint another."""

_VERSION = bytes([FINGERPRINT_VERSION])
_MAX_DEPTH = 250  # more than a JSON document may have
# A path may select parts of a document several times over; what is compared need not be larger than any document.
_MAX_WRITTEN_BYTES = 16 * 1024 * 1024


def fingerprints(
    secrets: Sequence[bytes | None],
    *,
    method: str,
    path: str,
    query: str,
    content_type: str | None,
    body: RequestBody,
    headers: Sequence[tuple[str, str]] = (),
    payload: bytes | None = None,
) -> tuple[bytes, ...]:
    """Digest a request under each of several secrets, reading it once: the version's byte, then SHA-256 or its HMAC.

    `path` and `query` are as sent, percent-encoded. `headers` are the chosen ones that the request has, names in
    lower case; their order counts within one name. `payload`, from `canonical_value`, stands for the body if given.

    A secret keeps somebody who can read the table from guessing a body with little in it, such as a card number; None
    is no secret.
    """
    media_type = (content_type or "").partition(";")[0].strip(" \t").lower()
    written = [_text(method), _text(path), canonical_query(query), _text(media_type)]
    written += (b"payload", payload) if payload is not None else _identity(body, media_type, content_type or "")
    for name, value in sorted(headers, key=lambda header: header[0]):
        written += (_text(name), _text(value))
    return tuple([_digested(written, secret) for secret in secrets])


def _digested(written: Sequence[bytes], secret: bytes | None) -> bytes:
    parts = [b"idem-middleware request\0"]
    for field in written:
        parts += (len(field).to_bytes(8, "big"), field)
    digested = b"".join(parts)
    digest = sha256(digested) if secret is None else hmac.new(secret, digested, sha256)
    return _VERSION + digest.digest()


def canonical_value(value: object) -> bytes:
    """Write a value that a JMESPath or a function selected, so that different values are written differently.

    Every type has a tag: 1, 1.0, "1", True and Decimal(1) are five values, and so are a naive and an aware time.
    A list and a tuple are one, as in JSON; a dataclass or a model (with `model_dump`) is its class's name and fields.

    Raises:
        TypeError: a value of another type is in it. The message names the type only.
        ValueError: it is nested too deep, too large, or holds itself.
    """
    written = bytearray()
    # No recursion, so that no depth of the stack decides. The values yet to come, the next one last.
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise ValueError(f"the value is nested deeper than {_MAX_DEPTH}")
        if len(written) > _MAX_WRITTEN_BYTES:
            raise ValueError(f"the value is larger than {_MAX_WRITTEN_BYTES} bytes")
        tag, text, members = _taken_apart(item)
        written += tag + b"%d:%d:" % (len(text), len(members)) + text
        waiting.extend((member, depth + 1) for member in reversed(members))
    return bytes(written)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _identity(body: RequestBody, media_type: str, content_type: str) -> tuple[bytes, bytes]:
    """Say what stands for the body, under the name of its form, so that no form imitates another."""
    if _is_json(media_type):
        document = body.in_memory()
        canonical = None if document is None else canonical_json(document)
        if canonical is not None:
            return b"json", canonical
    elif media_type.startswith("multipart/"):
        parts = multipart_digest(body.chunks(), _boundary(content_type))
        if parts is not None:
            return b"multipart", parts
    return b"as sent", body.sha256()


def _is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def _boundary(content_type: str) -> bytes:
    try:
        return parse_options_header(content_type)[1].get(b"boundary", b"")
    except UnicodeEncodeError:
        return b""


def _taken_apart(value: object) -> tuple[bytes, bytes, Sequence[object]]:
    """Give a value's tag, its text, and the values that it holds."""
    for kind, tag, write in _SCALARS:
        if isinstance(value, kind):
            return tag, write(value), ()
    if isinstance(value, (list, tuple)):
        return b"list", b"", value
    if isinstance(value, Mapping):
        return b"object", b"", _members(value)
    name = _text(type(value).__qualname__)
    if is_dataclass(value) and not isinstance(value, type):
        return b"dataclass", name, [(field.name, getattr(value, field.name)) for field in fields(value)]
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return b"model", name, (dump(),)
    raise TypeError(f"a value of type {type(value).__name__} has no canonical form")


# A kind before the kinds that it is one of: bool is an int, NumberLiteral a float, datetime a date.
_SCALARS: tuple[tuple[type, bytes, Callable[[Any], bytes]], ...] = (
    (NoneType, b"null", lambda _: b""),
    (bool, b"bool", lambda value: b"1" if value else b"0"),
    (int, b"int", lambda value: b"%x" % value),  # decimal takes quadratic time
    (NumberLiteral, b"literal", lambda value: value.literal.encode()),
    (float, b"float", lambda value: float.__repr__(value).encode()),
    (Decimal, b"decimal", lambda value: str(value).encode()),
    (str, b"str", lambda value: _text(str.__str__(value))),
    (bytes, b"bytes", bytes),
    (bytearray, b"bytes", bytes),
    (memoryview, b"bytes", bytes),
    (UUID, b"uuid", lambda value: value.bytes),
    (datetime, b"datetime", lambda value: value.isoformat().encode()),
    (date, b"date", lambda value: value.isoformat().encode()),
)


def _members(mapping: Mapping[object, object]) -> list[object]:
    named: list[tuple[str, object]] = []
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise TypeError(f"a member's name of type {type(name).__name__} has no canonical form")
        named.append((name, value))
    named.sort(key=lambda member: member[0])
    return [part for member in named for part in member]
