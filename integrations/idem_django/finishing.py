"""A client that leaves does not undo the work: Django cancels the view then, and here that cancellation ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import TypeVar

from idem_django.exchange import Exchange

__all__ = ["finished"]

T = TypeVar("T")


async def finished(exchange: Exchange, work: Callable[[], Awaitable[T]]) -> T:
    """What the work gives. Once it is claimed, a first cancellation only tells that the client is gone.

    A second one, or one before the claim, cancels it.
    """

    async def run() -> T:
        return await work()

    context = copy_context()
    task = asyncio.get_running_loop().create_task(run(), context=context)
    try:
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if not exchange.running:
                raise
            await asyncio.wait({task}, timeout=exchange.options.max_execution_seconds)
            if not task.done():
                raise
            exchange.client_gone = True
            _uncancel()
        return task.result()
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        raise
    finally:
        _carry_over(context)


def _uncancel() -> None:
    current = asyncio.current_task()
    if current is not None:
        current.uncancel()


def _carry_over(context: Context) -> None:
    """What the work has set (the language, for one) is seen outside, as if no task had been in between."""
    for variable, value in context.items():
        if variable.get(_NOTHING) is not value:
            variable.set(value)


_NOTHING = object()
