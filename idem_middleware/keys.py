"""The idempotency key: read from its header, checked, and turned into what the store knows it by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import unquote_to_bytes
from uuid import UUID

from idem_middleware.errors import IdempotencyError

__all__ = [
    "MAX_KEY_LENGTH",
    "PLACE",
    "KeyInvalid",
    "caller_partition",
    "derived_key",
    "parse_key",
    "placed",
    "record_pk",
    "short_digest",
    "validate_key",
]

MAX_KEY_LENGTH = 255

PLACE = "@"
"""Stands in a record's name before the partition that it lies in, where the store has partitions."""

# A key may take twice its length, with every character escaped, and have parameters. Servers let in 16 times this.
_MAX_LINE_LENGTH = 4096

_MAX_INTEGER_BITS = 848  # more bits can't be written in 255 decimal digits

_OPTIONAL_WHITE_SPACE = " \t"
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_BARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:/+=@|-]*")

# RFC 9651, section 4.2.5: only \" and \\ are escapes.
_STRING = re.compile(r'"([\x20\x21\x23-\x5b\x5d-\x7e]*(?:\\["\\][\x20\x21\x23-\x5b\x5d-\x7e]*)*)"')
_ESCAPE = re.compile(r'\\(["\\])')

# RFC 9651, section 4.2.3.2. Base64 padding may be left out, as section 4.2.7 wants parsers to allow.
_PARAMETER = re.compile(
    r"""
    ; [ ]* [a-z*] [a-z0-9_.*-]*
    (?: =
        (?: -? (?: [0-9]{1,12} \. [0-9]{1,3} | [0-9]{1,15} )                            # decimal, integer
          | "[\x20\x21\x23-\x5b\x5d-\x7e]* (?: \\["\\] [\x20\x21\x23-\x5b\x5d-\x7e]* )*"    # string
          | [A-Za-z*] [A-Za-z0-9!\#$%&'*+.^_`|~:/-]*                                    # token
          | : (?: [A-Za-z0-9+/]{4} )* (?: [A-Za-z0-9+/]{2} (?:==)? | [A-Za-z0-9+/]{3} =? )? :   # byte sequence
          | \? [01]                                                                     # boolean
          | @ -? [0-9]{1,15}                                                            # date
          | %" (?P<display> (?: [\x20\x21\x23\x24\x26-\x7e] | % [0-9a-f]{2} )* ) "      # display string
        )
    )?
    """,
    re.VERBOSE,
)


class KeyInvalid(IdempotencyError, ValueError):
    """The key can't be used; `reason` is a sentence for the client and never holds the key."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def parse_key(values: Sequence[str], *, strict: bool = False, pattern: re.Pattern[str] | None = None) -> str | None:
    """Read the key from the header's field lines; None if there is no line at all.

    Quoted (a string of RFC 9651, which the IETF draft asks for) and bare are the same key: a client that
    mends its quoting between two tries must not run the work twice. `strict` takes the quoted form only.
    Lines are Latin-1 text. A server that joins two lines by a comma gives a value that is invalid here, too.

    Raises:
        KeyInvalid: a line is there, but no usable key; an empty value is invalid, not missing.
    """
    if not values:
        return None
    if len(values) > 1:
        raise KeyInvalid("The request has more than one idempotency key; send exactly one.")
    if len(values[0]) > _MAX_LINE_LENGTH:
        raise KeyInvalid(_TOO_LONG)
    value = values[0].strip(_OPTIONAL_WHITE_SPACE)
    if not value:
        raise KeyInvalid("The idempotency key is empty.")
    if value[0] == '"':
        key = _quoted(value)
    elif strict:
        raise KeyInvalid('The idempotency key must be a string in double quotes, such as "8e03978e-40d5-43e8".')
    elif _BARE.fullmatch(value):
        key = value
    else:
        raise KeyInvalid(
            "An idempotency key without quotes begins with a letter or digit, "
            "and holds only letters, digits and the characters . _ ~ : / + = @ | -"
        )
    return _checked(key, pattern)


def validate_key(key: object, *, pattern: re.Pattern[str] | None = None) -> str:
    """Check a key that a request's body or a function gave: a string, or an integer, which counts as its digits.

    Raises:
        KeyInvalid: it is something else, or no key as the header could carry it.
    """
    if isinstance(key, int) and not isinstance(key, bool):
        if key.bit_length() > _MAX_INTEGER_BITS:
            raise KeyInvalid(_TOO_LONG)
        key = int.__repr__(key)
    if not isinstance(key, str):
        raise KeyInvalid("The idempotency key must be a string or an integer.")
    return _checked(str(key), pattern)


def record_pk(namespace: str, caller: str | None, key: str) -> str:
    """Name the record of this key: 64 hex digits that say nothing about the key.

    Every field has its length in front, so that no separator inside one of them can imitate another split.
    No caller is not the same as any caller, the empty one included.
    """
    return _digest(b"idem-middleware record 1\0", namespace, caller, key)


def caller_partition(namespace: str, caller: str | None) -> str:
    """Name what belongs to one caller in one namespace: 32 hex digits that say nothing about who that is.

    Half of the digest is enough: records are told apart by their own name, in which the caller is, too.
    """
    return _digest(b"idem-middleware partition 1\0", namespace, caller)[:32]


def placed(pk: str, partition: str) -> str:
    """Name a record together with the partition that it lies in."""
    return f"{pk}{PLACE}{partition}"


def derived_key(pk: str, label: str) -> str:
    """A key for a call to the next service: a UUID, the same for every attempt, another for each label."""
    digest = sha256(f"idem-middleware derived key:{pk}:{label}".encode()).digest()
    # A version 8 UUID (RFC 9562 §5.8: the rest is ours to define); uuid knows that version from Python 3.14 on.
    number = int.from_bytes(digest[:16]) & ~(0xF << 76) & ~(0x3 << 62) | 0x8 << 76 | 0x2 << 62
    return str(UUID(int=number))


def short_digest(pk: str) -> str:
    """Give what logs, events and metrics may show of a record's name."""
    return pk[:12]


def _digest(label: bytes, namespace: str, caller: str | None, *more: str) -> str:
    callers = () if caller is None else (caller,)
    digested = label
    for field in (namespace, *callers, *more):
        encoded = field.encode("utf-8", "surrogatepass")
        digested += len(encoded).to_bytes(8, "big") + encoded
    return sha256(digested + bytes([len(callers)])).hexdigest()


_TOO_LONG = f"The idempotency key is longer than {MAX_KEY_LENGTH} characters."


def _checked(key: str, pattern: re.Pattern[str] | None) -> str:
    if len(key) > MAX_KEY_LENGTH:
        raise KeyInvalid(_TOO_LONG)
    if not key or key.isspace():
        raise KeyInvalid("The idempotency key is empty.")
    if not _PRINTABLE.fullmatch(key):
        raise KeyInvalid("The idempotency key holds a character that is not printable ASCII.")
    if pattern is not None and not pattern.fullmatch(key):
        raise KeyInvalid("The idempotency key does not have the form that this service asks for.")
    return key


def _quoted(value: str) -> str:
    """Decode a structured-field item that is a string; its parameters are checked and have no meaning."""
    string = _STRING.match(value)
    if not string:
        raise KeyInvalid(
            "The idempotency key is not a valid string: it must end with a double quote, hold printable ASCII only, "
            'and \\" and \\\\ are its only escapes.'
        )
    if string.end() < len(value) and not _are_parameters(value, string.end()):
        raise KeyInvalid("The idempotency key is followed by something that is no valid parameter.")
    key = string[1]
    return _ESCAPE.sub(r"\1", key) if "\\" in key else key


def _are_parameters(value: str, start: int) -> bool:
    while start < len(value):
        parameter = _PARAMETER.match(value, start)
        if not parameter or not _is_utf8(unquote_to_bytes(parameter["display"] or "")):
            return False
        start = parameter.end()
    return True


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
