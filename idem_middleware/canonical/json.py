"""JSON without loss: what a document says in every detail that a reader could see, and nothing about its layout.

The order of members, white space and the spelling of strings do not count. Number literals do, as written:
readers tell 1 from 1.0, and round 0.1 and 12345678901234567890 each in its own way.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import NoReturn, Self

__all__ = ["MAX_JSON_BYTES", "MAX_JSON_DEPTH", "NumberLiteral", "canonical_json", "load_json_lossless"]

MAX_JSON_BYTES = 1024 * 1024
MAX_JSON_DEPTH = 200
"""Fixed, and far below what Python's stack allows: whether a document has a canonical form depends on it alone."""

# int() of more digits takes quadratic time, or is refused by sys.set_int_max_str_digits.
_MAX_INTEGER_DIGITS = 300


class NumberLiteral(float):
    """A number that is no plain integer: a float that remembers its literal, so that 1.0 and 1e0 can be told apart."""

    literal: str

    def __new__(cls, literal: str) -> Self:
        """Take the literal as it stands in the document."""
        number = super().__new__(cls, literal)
        number.literal = literal
        return number


NumberLiteral.__name__ = "float"  # jmespath's functions, such as sum() and max_by(), go by the name of the type


def canonical_json(document: bytes) -> bytes | None:
    """Write the document in its one canonical way, or give None: it must be compared as it was written.

    There is no canonical form of what is no JSON text in UTF-8 (BOM, NaN), of a document with duplicate members
    or a NUL in a string, of one nested deeper than `MAX_JSON_DEPTH` or larger than `MAX_JSON_BYTES`.
    """
    # A number becomes a string that begins with NUL. No other string can, because NUL has one spelling only
    # (JSON forbids it unescaped), and a document that has it is given back here.
    if len(document) > MAX_JSON_BYTES or b"\\u0000" in document or _too_deep(document):
        return None
    try:
        return _encode(_decode_canonical(document.decode())).encode("ascii")
    except ValueError:
        return None


def load_json_lossless(document: bytes) -> object:
    """Read a document for a JMESPath or a function; `canonical_value` still tells its number literals apart.

    An integer is an int; every other literal (also -0, and integers of more than 300 digits) is a `NumberLiteral`.

    Raises:
        ValueError: as for `canonical_json`, but of any size, and with NUL in strings.
    """
    if _too_deep(document):
        raise ValueError(f"the document is nested deeper than {MAX_JSON_DEPTH}")
    return _decode_values(document.decode())


def _object(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member occurs twice")
    return found


def _constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


def _number(literal: str) -> int | NumberLiteral:
    if literal == "-0" or len(literal) > _MAX_INTEGER_DIGITS:
        return NumberLiteral(literal)
    return int(literal)


_marked_number = "\0".__add__

_decode_canonical = json.JSONDecoder(
    parse_int=_marked_number, parse_float=_marked_number, parse_constant=_constant, object_pairs_hook=_object
).decode
_decode_values = json.JSONDecoder(
    parse_int=_number, parse_float=NumberLiteral, parse_constant=_constant, object_pairs_hook=_object
).decode
# ASCII: a lone surrogate has no encoding of its own, and comes out as the escape that it was.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # possessive: linear on every input
_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(octet for octet in range(256) if octet not in b"[{]}")


def _too_deep(document: bytes) -> bool:
    """Whether brackets nest deeper than the limit, in a document that may be broken: known without parsing it."""
    if document.count(b"[") + document.count(b"{") <= MAX_JSON_DEPTH:
        return False
    steps = _STRING.sub(b"", document).translate(_BRACKETS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_JSON_DEPTH
