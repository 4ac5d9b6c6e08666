"""What a fuzzer has found to reach different code is sent through it again, with every run of the tests."""

from __future__ import annotations

import pytest

from tests.fuzz.guided.__main__ import CORPUS
from tests.fuzz.guided.targets import TARGETS, seeds


@pytest.mark.parametrize("target", TARGETS)
def test_every_parser_takes_what_was_found(target: str) -> None:
    """It parses or refuses."""
    kept = [path.read_bytes() for path in sorted((CORPUS / target).glob("*"))]
    for data in (*seeds(target), *kept):
        TARGETS[target](data)
