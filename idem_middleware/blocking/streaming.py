"""A streamed body that is recorded before its end is seen, for callers that may block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Self
from weakref import finalize

from idem_middleware.blocking.lease import Lease
from idem_middleware.capture import DRAIN_SECONDS, Capture

__all__ = ["RecordedStream", "settle_capture"]


class RecordedStream(Iterator[bytes]):
    """The body of one answer on its way to the server.

    Recorded at its end, before the end is told. What the producer raises comes out unchanged. `close`, which servers
    call once whatever happens, finds out if the client left in the middle: then the rest is produced and recorded, if
    that does not take too long; else it is recorded that the answer is not kept.
    """

    def __init__(
        self, pieces: Iterable[bytes], capture: Capture, lease: Lease, *, on_close: Callable[[], None] | None = None
    ) -> None:
        self._pieces = iter(pieces)
        self._capture = capture
        self._lease = lease
        self._on_close = getattr(pieces, "close", None) if on_close is None else on_close
        self._ended = False
        # A server that neither reads nor closes it has thrown the answer away.
        self._dropped = finalize(self, lease.drop, capture.location)
        self._dropped.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        while not self._ended:
            try:
                piece = next(self._pieces)
            except StopIteration:
                self._ended = True
                settle_capture(self._lease, self._capture)
                last = self._capture.held_back()
                if last:
                    return last
                break
            except BaseException as error:
                self._fail(error)
                raise
            visible = self._capture.passing(piece)
            if visible or not piece:
                return visible
        raise StopIteration

    def close(self) -> None:
        """The server needs it no longer. Twice does no harm."""
        try:
            if not self._ended:
                self._drain()
        finally:
            on_close, self._on_close = self._on_close, None
            if on_close is not None:
                on_close()

    def _drain(self) -> None:
        self._ended = True
        give_up_at = monotonic() + DRAIN_SECONDS
        try:
            while self._capture.keeps_body and monotonic() < give_up_at:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._capture.passing(piece)
            else:
                self._capture.give_up()
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
            return  # there is nobody left to tell
        settle_capture(self._lease, self._capture)

    def _fail(self, error: BaseException) -> None:
        self._ended = True
        if isinstance(error, Exception):
            self._lease.settle_exception()
        else:
            self._lease.abandon()


def settle_capture(lease: Lease, capture: Capture) -> None:
    """Record a streamed answer; its head is out, so another attempt's answer can't take its place any more."""
    response = capture.outcome(lease._options)  # noqa: SLF001 - what the whole engine goes by
    capture.forget()
    if response is None:
        lease.omit(capture.location)
    else:
        lease.settle(response)
