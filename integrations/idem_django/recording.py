"""The answer on its way out: recorded before its first byte, or, if it is streamed, before its last."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from idem_django.answers import from_view
from idem_django.exchange import Exchange
from idem_django.messages import header_pairs, replace_response
from idem_django.streaming import AsyncRecordedStream
from idem_middleware.blocking.lease import Lease
from idem_middleware.blocking.streaming import RecordedStream
from idem_middleware.capture import Capture
from idem_middleware.messages import Response
from idem_middleware.settling import Settled, Superseded

__all__ = ["record", "record_async"]


def record(exchange: Exchange, request: HttpRequest, response: Any) -> HttpResponseBase:
    """What to send: the answer, or a wrapper around its stream, or the answer of an attempt that took over."""
    _dress(exchange, response)
    lease = exchange.blocking_lease
    if lease is None:
        return response  # type: ignore[no-any-return]
    if not response.streaming:
        kept, by_view = _answer(request, response)
        return _after(lease.settle(kept, from_view=by_view), response)
    capture = _capture(exchange, response)
    if response.is_async:
        stream = _wrap_async(exchange, response, capture)
        if capture.complete_at_head:
            response.streaming_content = async_to_sync(_collected)(stream)
    else:
        recorded = _wrap(response, capture, lease)
        if capture.complete_at_head:
            response.streaming_content = _listed(recorded)
    return response  # type: ignore[no-any-return]


async def record_async(exchange: Exchange, request: HttpRequest, response: Any) -> HttpResponseBase:
    """As `record`, on an event loop."""
    _dress(exchange, response)
    lease = exchange.async_lease
    if lease is None:
        return response  # type: ignore[no-any-return]
    if not response.streaming:
        kept, by_view = _answer(request, response)
        return _after(await lease.settle(kept, from_view=by_view), response)
    capture = _capture(exchange, response)
    if response.is_async:
        stream = _wrap_async(exchange, response, capture)
        if exchange.client_gone:
            await stream.aclose()
            response.streaming_content = _given([])
        elif capture.complete_at_head:
            response.streaming_content = _given(await _collected(stream))
    else:
        recorded = _wrap(response, capture, lease.blocking)
        if exchange.client_gone:
            await sync_to_async(recorded.close)()
            response.streaming_content = _given([])
        elif capture.complete_at_head:
            response.streaming_content = await sync_to_async(_listed)(recorded)
    return response  # type: ignore[no-any-return]


def _dress(exchange: Exchange, response: Any) -> None:
    for name, value in exchange.headers:
        response[name] = value
    response._resource_closers.append(exchange.input.finish)  # noqa: SLF001 - no public way to be told the end


def _answer(request: HttpRequest, response: Any) -> tuple[Response, bool]:
    headers = header_pairs(response)
    return Response(response.status_code, headers, response.content), from_view(request, response, headers)


def _after(settled: Settled, response: HttpResponseBase) -> HttpResponseBase:
    if isinstance(settled, Superseded) and settled.response is not None:
        return replace_response(response, settled.response)
    return response


def _capture(exchange: Exchange, response: HttpResponseBase) -> Capture:
    return Capture(response.status_code, header_pairs(response), exchange.options.max_response_bytes)


def _wrap(response: Any, capture: Capture, lease: Lease) -> RecordedStream:
    recorded = RecordedStream(response.streaming_content, capture, lease)
    response.streaming_content = recorded
    # Its `close` was put last. It has to come first: a generator that was closed before would look like one that ended.
    closers = response._resource_closers  # noqa: SLF001
    closers.insert(0, closers.pop())
    return recorded


def _wrap_async(exchange: Exchange, response: Any, capture: Capture) -> AsyncRecordedStream:
    lease = exchange.async_lease
    assert lease is not None  # noqa: S101 - for the type checker
    closers = response._resource_closers  # noqa: SLF001
    stream = AsyncRecordedStream(response.streaming_content, capture, lease, closers)
    closers.clear()
    response.streaming_content = stream
    return stream


def _listed(stream: RecordedStream) -> list[bytes]:
    return list(stream)


async def _collected(stream: AsyncRecordedStream) -> list[bytes]:
    return [piece async for piece in stream]


async def _given(pieces: list[bytes]) -> Any:
    for piece in pieces:
        yield piece
