"""Fixtures for the tests of the Flask extension."""

from __future__ import annotations

import pytest

from tests.adapters.support.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """One process with an empty store and a journal."""
    return Bench()
