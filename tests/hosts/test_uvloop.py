"""Duplicates that wait on uvloop, which many a uvicorn runs on: its timers are coarser, and other objects."""

from __future__ import annotations

import asyncio

import pytest

from idem_middleware import AsyncLease, MemoryStore, Options
from idem_middleware.aio.engine import AsyncEngine

pytestmark = pytest.mark.hosts

uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

_KEYS, _DUPLICATES = 40, 8


def test_all_who_wait_get_the_one_answer() -> None:
    """However many wait at once, and for however short a time the work goes on."""
    engine = AsyncEngine(MemoryStore(), Options(caller="shared", wait_seconds=20))
    runs: list[int] = []

    async def work(number: int) -> int:
        runs.append(number)
        await asyncio.sleep(number / 1000)
        return number

    async def once(number: int) -> int:
        async def handler(_: AsyncLease | None) -> int:
            return await work(number)

        return await engine.run_once(f"key-{number}", None, handler)

    async def main() -> list[int]:
        return await asyncio.gather(*[once(number) for _ in range(_DUPLICATES) for number in range(_KEYS)])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers = runner.run(main())
    assert answers == [*range(_KEYS)] * _DUPLICATES
    assert sorted(runs) == [*range(_KEYS)]
