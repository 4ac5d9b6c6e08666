"""What takes minutes is left out, unless it is asked for: `pytest -m explore`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.exploration.clients import driven


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the large worlds."""
    if "explore" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("explore")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _driven() -> Iterator[None]:
    with driven():
        yield
