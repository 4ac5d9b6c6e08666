"""What CI runs is what the README tells a user to run."""

from __future__ import annotations

import re

from tests.support.processes import ROOT


def test_ci_runs_the_readmes_test_command() -> None:
    """Word for word: the second command of the README is the one that CI proves."""
    ci = re.search(r"^test_command=\"(.+)\"$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert ci is not None
    readme = (ROOT / "README.md").read_text().splitlines()

    assert ci[1] in [line.strip() for line in readme]
