"""Fixtures for the tests of all adapters."""

from __future__ import annotations

import pytest

from tests.adapters.support.worlds import World


@pytest.fixture
def anyio_backend() -> str:
    """Coroutines among the tests run on asyncio."""
    return "asyncio"


@pytest.fixture
def world() -> World:
    """One process with an empty store."""
    return World()
