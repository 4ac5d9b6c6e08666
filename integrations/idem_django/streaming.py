"""A streamed body that is recorded before its end is seen, on an event loop, whoever is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from weakref import finalize

from idem_middleware.aio.lease import AsyncLease
from idem_middleware.aio.streaming import settle_capture
from idem_middleware.capture import DRAIN_SECONDS, Capture

__all__ = ["AsyncRecordedStream"]

_producers: set[asyncio.Task[None]] = set()  # the loop holds tasks weakly


class AsyncRecordedStream(AsyncIterator[bytes]):
    """The body of one answer on its way to the server.

    Django cancels whoever waits for the next piece when the client leaves, and that would end the view's generator
    half-way. So the generator runs in a task of its own, one piece for each one asked for; when nobody asks any more
    the rest is produced and recorded, if that does not take too long, or else it is recorded that the answer is not
    kept. `closers` are what the answer holds open; they are closed after the body, once.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        capture: Capture,
        lease: AsyncLease,
        closers: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._pieces = pieces
        self._capture = capture
        self._lease = lease
        self._closers = list(closers)
        self._wanted = asyncio.Event()
        self._given: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._producer: asyncio.Task[None] | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._gone = False
        self._ended = False
        # Django throws an answer away, unread and unclosed, when its client leaves just as the view has returned.
        self._dropped = finalize(self, lease.drop, capture.location)
        self._dropped.atexit = False
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> AsyncRecordedStream:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        producer = self._started()
        self._wanted.set()
        try:
            given = await self._given.get()
        except asyncio.CancelledError:
            self._leave()
            await asyncio.wait({producer})
            raise
        if isinstance(given, bytes):
            return given
        self._ended = True
        raise StopAsyncIteration if given is None else given

    async def aclose(self) -> None:
        """Nobody asks for more: what is left is produced and recorded within bounds."""
        producer = self._started()
        self._leave()
        await asyncio.wait({producer})
        self._ended = True

    def close(self) -> None:
        """The server needs it no longer: Django calls this once, on some thread."""
        loop, over = self._loop, self._producer is not None and self._producer.done()
        if not over and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._leave_unattended)
            return
        if not over and not self._lease.settled:  # its loop is gone, or there never was one
            self._lease.blocking.omit(self._capture.location)
        self._close_all()

    def _started(self) -> asyncio.Task[None]:
        if self._producer is None:
            self._loop = asyncio.get_running_loop()
            self._dropped.detach()  # from here on the producer sees to it
            self._producer = self._loop.create_task(self._produce())
            _producers.add(self._producer)
            self._producer.add_done_callback(_producers.discard)
        return self._producer

    def _leave_unattended(self) -> None:
        producer = self._started()
        self._leave()
        producer.add_done_callback(lambda _: asyncio.get_running_loop().run_in_executor(None, self._close_all))

    def _leave(self) -> None:
        """Nobody waits for pieces from here on."""
        if not self._gone and self._producer is not None:
            self._gone = True
            self._wanted.set()
            seconds = DRAIN_SECONDS if self._capture.keeps_body else 0.0
            self._limit = asyncio.get_running_loop().call_later(seconds, self._producer.cancel)

    async def _produce(self) -> None:
        try:
            await self._asked()
            async for piece in self._pieces:
                visible = self._capture.passing(piece)
                if self._gone and not self._capture.keeps_body:
                    await self._omit()
                    return
                if not self._gone and (visible or not piece):
                    self._given.put_nowait(visible)
                    await self._asked()
            self._unlimited()
            await settle_capture(self._lease, self._capture)
            last = self._capture.held_back()
            if last:
                self._given.put_nowait(last)
            self._given.put_nowait(None)
        except Exception as error:  # noqa: BLE001 - whoever asks for pieces gets it
            self._unlimited()
            if not self._lease.settled:
                await self._lease.settle_exception()
            self._given.put_nowait(error)
        except BaseException as error:
            if self._gone and not self._lease.settled:
                await self._omit()
                return
            self._lease.abandon()
            self._given.put_nowait(error)
            raise

    async def _asked(self) -> None:
        await self._wanted.wait()
        if not self._gone:
            self._wanted.clear()

    async def _omit(self) -> None:
        self._unlimited()
        self._capture.give_up()
        await settle_capture(self._lease, self._capture)
        aclose = getattr(self._pieces, "aclose", None)
        if aclose is not None:
            await aclose()

    def _unlimited(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _close_all(self) -> None:
        closers, self._closers = self._closers, []
        for close in closers:
            with suppress(Exception):  # as Django does
                close()
