"""Multipart bodies, apart from their boundary, which clients draw anew for every try."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

__all__ = ["multipart_digest"]

_MAX_PARTS = 2000  # as many as Starlette takes: 1000 fields and 1000 files
# No more than python-multipart's own defaults since 0.0.27, so that its version decides nothing.
_MAX_HEADERS = 8
_MAX_HEADER_BYTES = 4096

_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")  # RFC 2046, section 5.1.1

# The parser warns of a broken body, with bytes of it. We know already: it is compared as it was sent.
_SILENCE = logging.Logger("idem_middleware.multipart", level=logging.CRITICAL + 1)  # noqa: LOG001 - its own, not shared


def multipart_digest(chunks: Iterable[bytes], boundary: bytes) -> bytes | None:
    """Digest the parts in their order: each one's header lines (names in lower case) and its content.

    None if the body is to be compared as sent: it isn't complete, is over a limit, or has something before, after or
    among its parts that one parser takes for a boundary and another doesn't. Memory is bounded, work is linear.
    """
    if not _BOUNDARY.fullmatch(boundary):
        return None
    parts = _Parts()
    parser = MultipartParser(boundary, parts.callbacks())
    parser.logger = _SILENCE
    frame = _Frame(boundary)
    try:
        for chunk in chunks:
            parser.write(chunk)
            frame.add(chunk)
            if frame.delimiters > parts.count + 1:
                return None  # now, because the parser is slow on what almost looks like a boundary
    except FormParserError:
        return None
    return parts.digest() if parts.ended and frame.holds_only(parts.count) else None


class _Frame:
    """Counts what looks like a boundary, because parsers differ in what they take for one."""

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._line = self._delimiter + b"\r\n"
        self.delimiters = self._lines = 0
        self._begins_with = b""
        # Not empty, so that the first delimiter, which has no line break before it, looks like all others.
        self._tail = b"\r\n"

    def add(self, chunk: bytes) -> None:
        self._begins_with = self._begins_with or chunk[:1]
        window = self._tail + chunk
        self.delimiters += window.count(self._delimiter) - self._tail.count(self._delimiter)
        self._lines += window.count(self._line) - self._tail.count(self._line)
        self._tail = window[-len(self._line) - len(b"--") :]

    def holds_only(self, parts: int) -> bool:
        """One line before each part and one delimiter at the very end: no preamble, padding, epilogue or look-alike."""
        return (
            self._begins_with == b"-"
            and self._lines == parts > 0
            and self.delimiters == parts + 1
            and self._tail.endswith((self._delimiter + b"--", self._delimiter + b"--\r\n"))
        )


class _Parts:
    """Takes the parser's events; keeps digests, and the headers of the part at hand."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = False
        self._all = sha256()
        self._start_part()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._on_part_begin,
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_part_data": self._on_part_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }

    def digest(self) -> bytes:
        return self._all.digest()

    def _start_part(self) -> None:
        self._name = self._value = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._content = sha256()
        self._content_bytes = 0

    def _on_part_begin(self) -> None:
        self.count += 1
        if self.count > _MAX_PARTS:
            raise FormParserError("too many parts")
        self._start_part()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]
        self._check_header()

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_header()

    def _check_header(self) -> None:
        if len(self._name) + len(self._value) > _MAX_HEADER_BYTES:
            raise FormParserError("a header is too large")

    def _on_header_end(self) -> None:
        self._headers.append((self._name.lower(), self._value))
        self._name = self._value = b""
        if len(self._headers) > _MAX_HEADERS:
            raise FormParserError("too many headers")  # pragma: no cover - newer parsers say so themselves

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._content.update(memoryview(data)[start:end])
        self._content_bytes += end - start

    def _on_part_end(self) -> None:
        self._all.update(_number(len(self._headers)))
        for name, value in self._headers:
            self._all.update(_number(len(name)) + name + _number(len(value)) + value)
        self._all.update(_number(self._content_bytes) + self._content.digest())

    def _on_end(self) -> None:
        self.ended = True


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")
