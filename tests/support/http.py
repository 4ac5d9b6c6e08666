"""HTTP as bytes over a connection of one's own, for clients that no HTTP library would be."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.ports import LOOPBACK

_TIMEOUT_SECONDS = 20

# SO_LINGER with no time left: close() sends a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class RawResponse:
    """One response, with its headers in order, repeated ones too, their names in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def all(self, name: str) -> list[str]:
        """Give all values of a header."""
        return [value for header, value in self.headers if header == name.lower()]


class RawConnection:
    """One connection to a server on loopback."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self._socket.sendall(data)

    def read_response(self, *, method: str = "POST") -> RawResponse:
        """Read one whole response; the method tells whether it can have a body."""
        response = http.client.HTTPResponse(self._socket, method=method)
        response.begin()
        body = response.read()
        headers = tuple((name.lower(), value) for name, value in response.getheaders())
        return RawResponse(response.status, headers, body)

    def close(self) -> None:
        """Leave, as a client does that has all it wants or has lost patience."""
        self._socket.close()

    def reset(self) -> None:
        """Leave with a reset, as a client does whose network breaks."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._socket.close()


def request_head(method: str, path: str, *lines: str | bytes, length: int | None = None) -> bytes:
    """Make the bytes of a request's head; `lines` are whole header lines."""
    every: list[str | bytes] = [f"{method} {path} HTTP/1.1", f"Host: {LOOPBACK}", *lines]
    if length is not None:
        every.append(f"Content-Length: {length}")
    return b"\r\n".join(_as_bytes(every)) + b"\r\n\r\n"


def chunked(pieces: Iterable[bytes]) -> bytes:
    """Make a chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


def _as_bytes(lines: Iterable[str | bytes]) -> list[bytes]:
    return [line.encode("latin-1") if isinstance(line, str) else line for line in lines]
