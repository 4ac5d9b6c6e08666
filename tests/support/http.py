"""HTTP as bytes over a connection of one's own, for clients that no HTTP library would be."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedReader
from types import TracebackType
from typing import Any, Self, cast

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


class _Shared:
    """What `http.client` takes for a socket: all that is read of it comes from one buffer, and stays open."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream

    def makefile(self, mode: str) -> Self:
        """Give what is read from."""
        return self

    def close(self) -> None:
        """Leave the buffer open: the next response is in it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
        return self._response(self._socket, method)

    @staticmethod
    def _response(source: socket.socket | _Shared, method: str) -> RawResponse:
        response = http.client.HTTPResponse(cast("socket.socket", source), method=method)
        response.begin()
        body = response.read()
        headers = tuple((name.lower(), value) for name, value in response.getheaders())
        return RawResponse(response.status, headers, body)

    def read_responses(self, count: int, *, method: str = "POST") -> list[RawResponse]:
        """Read so many responses that come one after the other, as to requests in one pipeline."""
        with self._socket.makefile("rb") as stream:
            return [self._response(_Shared(stream), method) for _ in range(count)]

    def read_interim(self) -> int:
        """Read one interim response, and nothing of what follows it; gives its status."""
        head = self.read_until(b"\r\n\r\n")
        return int(head.split(maxsplit=2)[1])

    def read_until(self, end: bytes) -> bytes:
        """Read up to this, and nothing of what follows it."""
        read = b""
        while not read.endswith(end):
            byte = self._socket.recv(1)
            if not byte:
                raise EOFError(f"the connection ended after {read!r}")
            read += byte
        return read

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
