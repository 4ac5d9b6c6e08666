"""The explorer owns the product's threads while its tests run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.exploration.clients import driven


@pytest.fixture(autouse=True)
def _driven() -> Iterator[None]:
    with driven():
        yield
