"""A request's input that is read once, by whoever comes first, and known whole when it is needed."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, Protocol

from idem_middleware.body import BodyTooLarge, RequestBody

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["BodyIncomplete", "Readable", "TeeInput"]

_CHUNK_BYTES = 64 * 1024


class Readable(Protocol):
    """What WSGI guarantees of `wsgi.input`, as far as it is needed here (PEP 3333)."""

    def read(self, size: int = ..., /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


class BodyIncomplete(OSError):
    """The client left while it was sending: nothing may be claimed on half a request."""


class TeeInput(io.RawIOBase):
    """Stands in for the server's input until it is known whether the request is protected.

    What is read before that is kept aside, too. Then either `complete` reads the rest, and readers go on where they
    were; or `stop` forgets what was kept, and the input is the server's own again. (Then, too, `complete` still works
    as long as nobody has read.)
    """

    def __init__(self, source: Readable, *, length: int | None = None, whole_length: int | None = None) -> None:
        """`length`: read no further than this, since servers may block there; None where the input has an end.

        `whole_length` is what the client declared; a shorter body is an incomplete one.
        """
        self._source = source
        self._left = length
        self._whole_length = whole_length
        self._kept: RequestBody | None = None
        self._stopped = False
        self._lost = False
        self._completed = False
        self._position = 0
        self._ahead: BinaryIO | None = None  # what `complete` has read before the readers

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        chunk = self._read_some(len(view))
        view[: len(chunk)] = chunk
        return len(chunk)

    # These two are the file's own, where there is one: no buffer as large as `size` says, no byte by byte.

    def read(self, size: int = -1, /) -> bytes:
        if self._completed and self._ahead is not None:
            return self._ahead.read(size)
        return super().read(size) or b""

    def readline(self, size: int | None = -1, /) -> bytes:
        if self._completed and self._ahead is not None:
            return self._ahead.readline(-1 if size is None else size)
        read_line = getattr(self._source, "readline", None)
        if self._ahead is not None or read_line is None:
            return super().readline(size)
        size = -1 if size is None else size
        if self._left is not None:
            size = min(size, self._left) if size >= 0 else self._left
        line: bytes = read_line(size) if size >= 0 else read_line()
        if self._left is not None:
            self._left -= len(line)
        return self._noted(line)

    def complete(self, max_bytes: int | None = None) -> RequestBody:
        """The whole body; readers go on where they were, even if this fails.

        Raises:
            BodyTooLarge: it is larger than `max_bytes`.
            BodyIncomplete: it is shorter than the client declared.
            OSError: the connection broke.
            RuntimeError: it was stopped before, and some of it has been read since.
        """
        if self._lost:
            raise RuntimeError("a part of the request's body was read when nobody had to keep it any more")
        body = self._body()
        if self._completed:
            return body
        try:
            self._read_rest(body, max_bytes)
        except Exception as error:
            self._stopped = True
            if isinstance(error, (OSError, BodyTooLarge)):
                raise
            raise BodyIncomplete("the server can't read the request's body") from error  # its own kind of error
        except BaseException:
            self._stopped = True  # what readers take from the source now need not be kept
            raise
        finally:
            self._ahead = body.open()
            self._ahead.seek(self._position)
        self._completed = True
        return body

    def rewind(self) -> None:
        """Let readers begin again, at the first byte."""
        if self._ahead is None:
            self._ahead = self._body().open()
        self._ahead.seek(0)

    def stop(self) -> None:
        """The request seems to be none of ours: keep nothing that its readers get from now on."""
        self._stopped = True
        if self._ahead is None:
            self._lost = self._position > 0
            self.forget()

    def close(self) -> None:
        """Give memory and file back; at the latest, whoever drops this last does it."""
        self.forget()
        super().close()

    def forget(self) -> None:
        """Give back what was kept, when nobody will ask for it any more."""
        kept, self._kept, self._ahead = self._kept, None, None
        if kept is not None:
            kept.close()

    def _body(self) -> RequestBody:
        if self._kept is None:
            self._kept = RequestBody()
        return self._kept

    def _read_rest(self, body: RequestBody, max_bytes: int | None) -> None:
        while True:
            if max_bytes is not None and body.size > max_bytes:
                raise BodyTooLarge(max_bytes)
            chunk = self._from_source(_CHUNK_BYTES)
            if not chunk:
                break
            body.write(chunk)
        if self._whole_length is not None and body.size < self._whole_length:
            raise BodyIncomplete("the request's body ended early")

    def _read_some(self, size: int) -> bytes:
        if self._ahead is not None:
            chunk = self._ahead.read(size)
            if chunk or self._completed:
                return chunk
        return self._noted(self._from_source(size))

    def _noted(self, chunk: bytes) -> bytes:
        """What a reader gets from the source."""
        if self._stopped:
            self._lost = self._lost or bool(chunk)
        elif chunk:
            self._body().write(chunk)
            self._position += len(chunk)
        return chunk

    def _from_source(self, size: int) -> bytes:
        if self._left is None:
            return self._source.read(size)
        chunk = self._source.read(min(size, self._left)) if self._left else b""
        self._left -= len(chunk)
        return chunk
