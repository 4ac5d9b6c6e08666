"""Every dependency is listed, with its licence and the oldest release that is tested."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_OF_USERS = {"demo", "test-base", "test-servers", "test", "dev", "docs"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9-]+)(?:\[[a-z,]+\])?>=([0-9.]+)")
_WORDS = {
    "Apache": ("apache",),
    "MIT": ("mit",),
    "BSD": ("bsd",),
    "PSF": ("python software", "psf"),
    "MPL": ("mozilla", "mpl"),
}


def requirements() -> dict[str, str]:
    """Name to lower bound of all that users may get."""
    lines = list(PROJECT["dependencies"])
    for extra, more in PROJECT["optional-dependencies"].items():
        lines += [] if extra in NOT_OF_USERS else more
    found = {}
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        assert match, f"{line}: a lower bound, and nothing else"
        found[match[1].lower()] = match[2]
    return found


def rows() -> dict[str, list[str]]:
    """The tables of the document, by the package's name."""
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0]: row for row in cells if row[0] != "package"}


def test_the_list_is_complete() -> None:
    """With the bounds that are declared, and nothing that is not."""
    assert {name: row[1] for name, row in rows().items()} == requirements()


@pytest.mark.parametrize("name", sorted(requirements()))
def test_the_licence_is_the_one_that_the_package_states(name: str) -> None:
    """Where it is installed."""
    try:
        stated = metadata(name)
    except PackageNotFoundError:
        pytest.skip("not installed")
    licences = [*(stated.get_all("License-Expression") or ()), *(stated.get_all("License") or ())]
    classifiers = [text for text in stated.get_all("Classifier") or () if text.startswith("License")]
    found = " ".join(text[:100] for text in (*licences, *classifiers)).lower()
    listed = " ".join(rows()[name][2:4])
    words = [word for word in _WORDS if word in listed]
    assert words
    assert any(mark in found for word in words for mark in _WORDS[word]), (listed, found)


def test_the_oldest_releases_are_tested() -> None:
    """By an environment that pins each bound."""
    ini = (ROOT / "tox.ini").read_text(encoding="utf-8")
    by_matrix = {"starlette", "fastapi", "django", "djangorestframework", "flask"}
    for name, bound in requirements().items():
        pinned = re.search(
            rf"oldest\S*: {re.escape(name)}==([0-9.*]+)|^    {re.escape(name)}==([0-9.*]+)", ini, re.MULTILINE
        )
        assert pinned, name
        version = (pinned[1] or pinned[2]).removesuffix(".*")
        assert version == bound or version.startswith(f"{bound}."), name
        assert name in by_matrix or pinned[2], name
