"""HTTP messages as the engine sees them: plain, immutable, without a framework."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from idem_middleware.body import RequestBody
from idem_middleware.canonical.json import load_json_lossless

__all__ = ["HeaderPairs", "Request", "Response", "header_values"]

HeaderPairs = tuple[tuple[str, str], ...]
"""Header lines in order, repeated names kept. Text is Latin-1, as WSGI and the bytes of ASGI give it."""


def header_values(headers: Iterable[tuple[str, str]], name: str) -> list[str]:
    """All values of one header, in order; `name` in any case."""
    wanted = name.lower()
    return [value for key, value in headers if key.lower() == wanted]


def _first(headers: HeaderPairs, name: str) -> str | None:
    wanted = name.lower()
    for key, value in headers:
        if key.lower() == wanted:
            return value
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `path` and `query` are percent-encoded as sent, where the server tells it.

    `native` is the framework's own request object, for functions that need more than is here.
    """

    method: str
    path: str
    query: str = ""
    headers: HeaderPairs = ()
    body: RequestBody = field(default_factory=RequestBody)
    native: Any = None

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return _first(self.headers, name)

    def json(self) -> object:
        """The body as JSON, number literals kept apart (1 is not 1.0).

        Raises:
            ValueError: the body is not JSON, has duplicate members, or is larger than 1 MiB.
        """
        document = self.body.in_memory()
        if document is None:
            raise ValueError("the body is too large to be read as JSON")
        return load_json_lossless(document)


@dataclass(frozen=True, slots=True)
class Response:
    """One whole answer: status, header lines in order, body bytes."""

    status: int
    headers: HeaderPairs = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return _first(self.headers, name)
