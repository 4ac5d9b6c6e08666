"""The plan: what a request asks the handler to do, in its header `X-Plan`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

ReadMode = Literal["body", "stream", "form", "none"]
_READ_MODES: tuple[str, ...] = get_args(ReadMode)

# bytes(i % 251 for i in range(size)), made fast. 251 is prime, so no power-of-two slice repeats.
_PATTERN = bytes(range(251))


class MalformedPlanError(ValueError):
    """The plan cannot be followed: a bug of the test that sent it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the handler does; the defaults are those of an absent header."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    cookies: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    chunks: int = 0
    chunk_delay: float = 0
    fail_after_chunk: int | None = None
    delay: float = 0
    raises: str | None = None
    abort: int | None = None
    exit: bool = False
    background: float | None = None
    background_raise: bool = False
    session: Mapping[str, Any] | None = None
    read: ReadMode = "body"
    echo: bool = False


def parse_plan(header: str | None) -> Plan:
    """Read the header's value; an absent header is the empty plan.

    Raises:
        MalformedPlanError: no JSON object, an unknown member, or a member of the wrong kind.

    """
    if header is None:
        return Plan()
    try:
        document = json.loads(header)
    except ValueError as error:
        raise MalformedPlanError(f"X-Plan is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise MalformedPlanError("X-Plan is no JSON object")
    members = _Members(document)
    plan = Plan(
        status=members.status("status", 200),
        headers=members.pairs("headers"),
        cookies=members.strings("cookies"),
        body=members.body(),
        content_type=members.content_type(),
        chunks=members.count("chunks", 0),
        chunk_delay=members.seconds("chunk_delay", 0),
        fail_after_chunk=members.optional_count("fail_after_chunk"),
        delay=members.seconds("delay", 0),
        raises=members.optional_text("raise"),
        abort=members.optional_status("abort"),
        exit=members.flag("exit"),
        background=members.background(),
        background_raise=members.flag("background_raise"),
        session=members.optional_object("session"),
        read=members.read_mode(),
        echo=members.flag("echo"),
    )
    members.refuse_the_rest()
    return plan


class _Members:
    """The members of a plan's JSON object, each taken once, with its kind checked."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._left = dict(document)
        self._raw_body = "body_b64" in document or "size" in document

    def _take(self, name: str, default: Any, kinds: type | tuple[type, ...], what: str) -> Any:
        value = self._left.pop(name, default)
        if value is default:
            return default
        # JSON's true is an int for Python; only where a flag is asked for is it one for us.
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise MalformedPlanError(f"X-Plan: {name} must be {what}, not {value!r}")
        return value

    def _number(self, name: str, default: float | None) -> Any:
        value = self._take(name, default, (int, float), "a number of seconds")
        if value is not None and value < 0:
            raise MalformedPlanError(f"X-Plan: {name} must not be negative")
        return value

    def flag(self, name: str) -> bool:
        value: bool = self._take(name, default=False, kinds=bool, what="true or false")
        return value

    def seconds(self, name: str, default: float) -> float:
        return float(self._number(name, default))

    def background(self) -> float | None:
        """Seconds that the background task waits; asking it to raise starts one, too."""
        value = self._number("background", None)
        if value is None and self._left.get("background_raise") is True:
            return 0.0
        return None if value is None else float(value)

    def optional_count(self, name: str) -> int | None:
        value: int | None = self._take(name, None, int, "a whole number")
        if value is not None and value < 0:
            raise MalformedPlanError(f"X-Plan: {name} must not be negative")
        return value

    def count(self, name: str, default: int) -> int:
        value = self.optional_count(name)
        return default if value is None else value

    def optional_status(self, name: str) -> int | None:
        value: int | None = self._take(name, None, int, "a status")
        if value is not None and not 200 <= value <= 599:
            raise MalformedPlanError(f"X-Plan: {name} must be a status from 200 to 599, not {value}")
        return value

    def status(self, name: str, default: int) -> int:
        value = self.optional_status(name)
        return default if value is None else value

    def optional_text(self, name: str) -> str | None:
        value: str | None = self._take(name, None, str, "a string")
        return value

    def optional_object(self, name: str) -> Mapping[str, Any] | None:
        value: dict[str, Any] | None = self._take(name, None, dict, "an object")
        return value

    def strings(self, name: str) -> Mapping[str, str]:
        value = self.optional_object(name) or {}
        if not all(isinstance(text, str) for text in value.values()):
            raise MalformedPlanError(f"X-Plan: {name} must be an object of strings")
        return value

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        value = self._take(name, [], list, "a list of [name, value]")
        for pair in value:
            if not (isinstance(pair, list) and [type(part) for part in pair] == [str, str]):
                raise MalformedPlanError(f"X-Plan: {name} must be a list of [name, value], not {pair!r}")
            try:
                "".join(pair).encode("latin-1")
            except UnicodeEncodeError:
                raise MalformedPlanError(f"X-Plan: {pair!r} does not fit into a header (latin-1)") from None
        return tuple((pair[0], pair[1]) for pair in value)

    def body(self) -> bytes | None:
        text = self.optional_text("body")
        encoded = self.optional_text("body_b64")
        size = self.optional_count("size")
        if sum(given is not None for given in (text, encoded, size)) > 1:
            raise MalformedPlanError("X-Plan: only one of body, body_b64 and size can be given")
        if text is not None:
            return text.encode("utf-8", "surrogatepass")
        if encoded is not None:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise MalformedPlanError(f"X-Plan: body_b64 is no base64: {error}") from None
        return None if size is None else deterministic_bytes(size)

    def content_type(self) -> str:
        given = self.optional_text("content_type")
        if given is not None:
            return given
        return "application/octet-stream" if self._raw_body else "application/json"

    def read_mode(self) -> ReadMode:
        value = self.optional_text("read") or "body"
        if value not in _READ_MODES:
            raise MalformedPlanError(f"X-Plan: read must be one of {', '.join(_READ_MODES)}, not {value!r}")
        return value  # type: ignore[return-value]  # just compared with the literal's own values

    def refuse_the_rest(self) -> None:
        if self._left:
            raise MalformedPlanError(f"X-Plan has unknown members: {', '.join(sorted(self._left))}")


def deterministic_bytes(size: int) -> bytes:
    """Give `bytes(i % 251 for i in range(size))`."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]
