"""An answer that passes by piece by piece: what of it is kept, and what must not be seen before it is recorded."""

from __future__ import annotations

from idem_middleware.keeping import Verdict, verdict
from idem_middleware.messages import HeaderPairs, Response
from idem_middleware.options import Options

__all__ = ["DRAIN_SECONDS", "Capture"]

DRAIN_SECONDS = 30.0
"""How long the rest of an answer whose client left is still produced, so that it can be recorded whole."""

_LENGTH_DIGITS = 18  # more bytes than any answer has; int() refuses thousands of digits
_NEVER_WITH_BODY = frozenset({204, 304})  # RFC 9110 §6.4.1


class Capture:
    """Keeps a copy of the body up to a limit, and holds back the byte that would make the answer complete.

    With a declared length that is the last byte; without one it is the end itself, which the caller holds back.
    An event stream tells what happens now: there is nothing to give again, and nothing of it is kept.
    """

    __slots__ = ("_held", "_length", "_max_bytes", "_parts", "_passed_bytes", "_size_bytes", "head", "keeps_body")

    def __init__(self, status: int, headers: HeaderPairs, max_bytes: int) -> None:
        self.head = Response(status, headers)
        self._length, is_event_stream = _announced(headers)
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._passed_bytes = 0
        self._held = b""
        self.keeps_body = not is_event_stream

    @property
    def complete_at_head(self) -> bool:
        """Whether the head alone is a complete answer, so that even it must wait for the record."""
        return self._length == 0 or self.head.status in _NEVER_WITH_BODY

    @property
    def is_whole(self) -> bool:
        """Whether all that was declared has come."""
        return self._length is not None and self._size_bytes >= self._length

    @property
    def location(self) -> str | None:
        """Where to look the result up, if the answer itself can't be kept."""
        return self.head.header("location")

    def passing(self, piece: bytes) -> bytes:
        """Take one piece; gives what of it may be seen now."""
        self._keep(piece)
        if self.head.status in _NEVER_WITH_BODY:
            return b""
        if self._length is None:
            return piece
        piece = self._held + piece
        room = max(0, self._length - 1 - self._passed_bytes)
        visible, self._held = piece[:room], piece[room:]
        self._passed_bytes += len(visible)
        return visible

    def ending(self, piece: bytes = b"") -> bytes:
        """Take the last piece; gives all that is still to be seen, once the answer is recorded."""
        self._keep(piece)
        return b"" if self.head.status in _NEVER_WITH_BODY else self.held_back() + piece

    def held_back(self) -> bytes:
        """What was held back, to be shown once the answer is recorded."""
        held, self._held = self._held, b""
        return held

    def response(self) -> Response | None:
        """The whole answer, or None if it was too much, is not as long as declared, or is not one to keep."""
        if self.head.status in _NEVER_WITH_BODY:
            return self.head
        if not self.keeps_body or self._length not in (None, self._size_bytes):
            return None
        return Response(self.head.status, self.head.headers, b"".join(self._parts))

    def outcome(self, options: Options, *, from_view: bool = True) -> Response | None:
        """What to settle with; None if the work is done and its answer can't be kept.

        An answer whose status is not kept anyway need not be whole; but `store_if` could want to see its body.
        """
        response = self.response()
        if response is None and (options.store_if is None or not from_view):
            kept = verdict(self.head, options, from_view=from_view) is Verdict.KEEP
            return None if kept else self.head
        return response

    def give_up(self) -> None:
        """It is cut off: keep nothing of it."""
        self.keeps_body = False
        self.forget()

    def forget(self) -> None:
        """Give the memory back."""
        self._parts.clear()

    def _keep(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._size_bytes > self._max_bytes:
            self.keeps_body = False
        if self.keeps_body:
            self._parts.append(piece)
        else:
            self._parts.clear()


def _announced(headers: HeaderPairs) -> tuple[int | None, bool]:
    """The declared length (what is no number says nothing), and whether it is an event stream."""
    length: int | None = None
    media_type: str | None = None
    for name, value in headers:
        match name.lower():
            case "content-length" if length is None and value.isascii() and value.isdigit():
                length = int(value) if len(value) <= _LENGTH_DIGITS else None
            case "content-type" if media_type is None:
                media_type = value.partition(";")[0].strip().lower()
    return length, media_type == "text/event-stream"
