"""docs/command-line.md shows what the commands print."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from idem_middleware.cli.root import COMMANDS
from tests.cli.documented import DOCUMENT, comparable, filled

_OLD_CLICK = tuple(map(int, version("click").split(".")[:2])) < (8, 2)


@pytest.mark.skipif(_OLD_CLICK, reason="older releases of click word some sentences of their own differently")
def test_the_outputs_in_the_documentation_are_the_commands() -> None:
    """`python -m tests.cli.documented` writes them anew."""
    written = DOCUMENT.read_text(encoding="utf-8")
    assert comparable(filled(written)) == comparable(written)


def test_every_command_is_documented() -> None:
    """By an example, somewhere in docs/."""
    texts = "\n".join(page.read_text(encoding="utf-8") for page in DOCUMENT.parent.rglob("*.md"))
    shown = set(re.findall(r"\bidem-middleware ([a-z]+)", texts))
    assert set(COMMANDS) <= shown
