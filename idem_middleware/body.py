"""A request's body, read once and given out as often as it is needed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from hashlib import sha256
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO, Self

from idem_middleware.errors import IdempotencyError

if TYPE_CHECKING:
    from hashlib import _Hash as Hash
    from types import TracebackType

    from _typeshed import WriteableBuffer

__all__ = ["SPOOL_BYTES", "BodyTooLarge", "RequestBody"]

SPOOL_BYTES = 1024 * 1024
"""A body larger than this goes to a temporary file, and is compared as written."""

_CHUNK_BYTES = 64 * 1024


class BodyTooLarge(IdempotencyError):
    """The body is larger than `max_bytes`, the most that was allowed."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        super().__init__(f"the request's body is larger than {max_bytes} bytes")


class RequestBody:
    """The bytes of one body: in memory up to 1 MiB, beyond that in a temporary file.

    Written by one, then read by any number: every reader starts at the first byte and none moves another.
    """

    __slots__ = ("_closed", "_digest", "_file", "_held", "_max_bytes", "_size")

    def __init__(self, *, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        # Most bodies come as one chunk: that one is kept as it is, and only a second one makes a bytearray of it.
        self._held: bytes | bytearray = b""
        self._file: BinaryIO | None = None
        self._digest: Hash | None = None  # fed while writing to the file: what is in memory is hashed when asked for
        self._closed = False

    @classmethod
    def from_bytes(cls, body: bytes) -> Self:
        """Hold bytes that are in memory anyway: they stay there, whatever their size."""
        held = cls()
        held._held = bytes(body)
        held._size = len(body)
        return held

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self._size

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add to the end.

        Raises:
            BodyTooLarge: with this chunk it would be over `max_bytes`; nothing of the chunk was taken.
        """
        self._check_open()
        size = self._size + len(chunk)
        if self._max_bytes is not None and size > self._max_bytes:
            raise BodyTooLarge(self._max_bytes)
        if self._file is None and size > SPOOL_BYTES:
            self._file = TemporaryFile()  # noqa: SIM115 - close() closes it
            self._digest = sha256()
            self._to_file(self._held)
            self._held = b""
        if self._file is not None:
            self._to_file(chunk)
        elif not self._held:
            self._held = bytes(chunk)
        else:
            if isinstance(self._held, bytes):
                self._held = bytearray(self._held)
            self._held += chunk
        self._size = size

    def in_memory(self) -> bytes | None:
        """Give the whole body, or None if it is larger than `SPOOL_BYTES`."""
        self._check_open()
        return self._frozen() if self._size <= SPOOL_BYTES else None

    def chunks(self, size: int = _CHUNK_BYTES) -> Iterator[bytes]:
        """Give the body from its first byte, in pieces of `size` (the last may be shorter)."""
        self._check_open()
        position = 0
        while piece := self._read_at(position, size):
            yield piece
            position += len(piece)

    def open(self) -> BinaryIO:
        """Give a file of its own position, at the first byte, such as `wsgi.input`."""
        self._check_open()
        if self._file is None:
            return io.BytesIO(self._frozen())  # shares the bytes until somebody writes
        return io.BufferedReader(_Reader(self), _CHUNK_BYTES)

    def sha256(self) -> bytes:
        """Digest the body."""
        self._check_open()
        return sha256(self._held).digest() if self._digest is None else self._digest.digest()

    def close(self) -> None:
        """Give memory and file back; only `size` can be asked after that."""
        self._closed = True
        self._held = b""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._size} bytes>"

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the request's body is closed")

    def _frozen(self) -> bytes:
        if isinstance(self._held, bytearray):
            self._held = bytes(self._held)
        return self._held

    def _to_file(self, chunk: bytes | bytearray | memoryview) -> None:
        if self._file is not None and self._digest is not None:  # pragma: no branch - for type checkers
            self._file.write(chunk)
            self._digest.update(chunk)

    def _read_at(self, position: int, size: int) -> bytes:
        self._check_open()
        if self._file is None:
            return self._frozen()[position : position + size]
        self._file.flush()
        if hasattr(os, "pread"):  # one call, so that readers in several threads do not move each other
            return os.pread(self._file.fileno(), size, position)
        self._file.seek(position)  # pragma: no cover - Windows
        piece = self._file.read(size)  # pragma: no cover - Windows
        self._file.seek(0, os.SEEK_END)  # pragma: no cover - Windows
        return piece  # pragma: no cover - Windows


class _Reader(io.RawIOBase):
    """A view of a body in a file, with a position of its own. Closing it leaves the body open."""

    def __init__(self, body: RequestBody) -> None:
        self._body = body
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._body.size}[whence]
        if start + offset < 0:
            raise ValueError("negative seek position")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        wanted = memoryview(buffer).cast("B")
        piece = self._body._read_at(self._position, len(wanted))  # noqa: SLF001 - two halves of one thing
        wanted[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
