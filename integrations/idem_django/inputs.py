"""A request's body: left alone until a claim needs it, and readable in every way after that."""

# ruff: noqa: SLF001 - the stream of a request is private to Django, and there is no other way to it

from __future__ import annotations

import asyncio
import io
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from idem_middleware.body import SPOOL_BYTES, BodyTooLarge, RequestBody
from idem_middleware.tee import BodyIncomplete, TeeInput

__all__ = ["Input"]


class Input:
    """Stands between a request and its stream.

    Whoever reads before the claim (CSRF reads the form, REST framework's permissions may read the data) reads on; what
    passes by is kept, so that the whole body is known when it is asked for.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._request: Any = request
        self._stream: Any = None
        self._tee: TeeInput | None = None
        self._body: RequestBody | None = None

    def watch(self) -> None:
        """From now on nothing that is read is lost."""
        request = self._request
        if hasattr(request, "_body") or getattr(request, "_read_started", False):
            return
        self._stream = getattr(request, "_stream", None) or io.BytesIO()
        self._tee = TeeInput(self._stream, whole_length=self._length_to_check())
        request._stream = self._tee

    def complete(self, max_bytes: int | None) -> RequestBody:
        """The whole body. The application reads on from where it was.

        Raises:
            BodyTooLarge: by its declared or its real size.
            OSError: it is not whole: the client left.
            ImproperlyConfigured: somebody further outside has used it up.
        """
        size = self._size()
        if max_bytes is not None and size is not None and size > max_bytes:
            raise BodyTooLarge(max_bytes)
        if self._body is None:
            self._body = self._held() or self._read(max_bytes)
        return self._body

    async def complete_async(self, max_bytes: int | None) -> RequestBody:
        """As `complete`. Django has received it all by now; a large one lies in a file, and is read off the loop."""
        size = self._size()
        if size is not None and size <= SPOOL_BYTES:
            return self.complete(max_bytes)
        return await asyncio.to_thread(self.complete, max_bytes)

    def release(self) -> None:
        """The request is not protected: give it its own stream back."""
        if self._tee is None:
            return
        self._tee.stop()
        if self._untouched:
            self._request._stream = self._stream
        self._tee = None

    def finish(self) -> None:
        """The answer is out: give memory and file back."""
        if self._tee is not None:
            self._tee.close()
        if self._body is not None:
            self._body.close()

    def _held(self) -> RequestBody | None:
        """What Django holds in memory, since somebody has asked for `request.body`."""
        body = getattr(self._request, "_body", None)
        if body is None:
            return None
        whole_length = self._length_to_check()
        if whole_length is not None and len(body) < whole_length:
            raise BodyIncomplete("the request's body ended early")
        return RequestBody.from_bytes(body)

    def _read(self, max_bytes: int | None) -> RequestBody:
        if self._tee is None:
            self.watch()
        if self._tee is None:
            raise ImproperlyConfigured(
                "The request was read as a stream before idem_django could see it, so its body can't be compared "
                "with a retry's. A middleware that reads forms belongs behind idem_django.IdempotencyMiddleware, or "
                "has to read request.body first."
            )
        body = self._tee.complete(max_bytes)
        if self._untouched:
            self._request._stream = body.open()
        return body

    @property
    def _untouched(self) -> bool:
        return self._request._stream is self._tee and not self._request._read_started

    def _length_to_check(self) -> int | None:
        """What a client declared must come, or it has left. Under ASGI the server has seen to that."""
        return None if hasattr(self._request, "scope") else self._declared

    @property
    def _declared(self) -> int | None:
        declared = str(self._request.META.get("CONTENT_LENGTH") or "")
        return int(declared) if declared.isascii() and declared.isdigit() else None

    def _size(self) -> int | None:
        """How large the body is, as far as it can be known without reading it."""
        body = getattr(self._request, "_body", None)
        if body is not None:
            return len(body)
        stream = self._stream or getattr(self._request, "_stream", None)
        seekable = getattr(stream, "seekable", None)
        if stream is not None and seekable is not None and seekable():
            position = stream.tell()
            size: int = stream.seek(0, io.SEEK_END)
            stream.seek(position)
            return size
        limit = getattr(stream, "limit", None)  # Django's LimitedStream: nothing beyond is read
        return limit if isinstance(limit, int) else self._declared
