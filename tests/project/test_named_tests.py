"""Pages of the documentation that name tests: they exist, and say what the page says of them."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.probes import NEEDED_PACKAGE

ROOT = Path(__file__).resolve().parents[2]
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_QUOTED = re.compile(r'"(.+?)" in `(docs/\w+\.md|README\.md)`')
_SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+")
NOT_THERE = "–"  # noqa: RUF001 - a dash, as in the page


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of all tables of a page, without their heads."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("| ")]
    heads = {line for line, after in pairwise(lines) if after.startswith("|---")}
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in tables if line not in heads]


@cache
def documented(path: str) -> dict[str, str]:
    """The tests of one file, and its classes of tests, with what they say of themselves."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)}


def named(cell: str) -> list[str]:
    """What the tests say of themselves that are named here; one that does not exist is missed."""
    found = []
    for path, name in _TEST.findall(cell):
        assert name in documented(path), f"{path} has no {name}"
        found.append(documented(path)[name])
    return found


@pytest.mark.parametrize("row", rows("reported.md"), ids=lambda row: row[0][:50])
def test_what_was_reported_is_tested(row: list[str]) -> None:
    """By tests that exist and name where it was reported, or it is said in the documentation."""
    _, where, here = row
    said = named(here)
    quotes = _QUOTED.findall(here)
    assert said or quotes
    for sentence, page in quotes:
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert sentence in text, f"{page} does not say: {sentence}"
    if not quotes:
        sources = _SOURCE.findall(where)
        missing = [source for source in sources if not any(re.search(rf"{source}\b", text) for text in said)]
        assert not missing, f"no test says that it is about {missing}"


_LEGEND = {row[0]: row[1] for row in rows("corners.md") if len(row) == 2}
_CORNERS = [row for row in rows("corners.md") if len(row) != 2]


@pytest.mark.parametrize("row", _CORNERS, ids=lambda row: row[0][:50])
def test_every_corner_is_tested_in_every_framework(row: list[str]) -> None:
    """Or there is no such thing in it, and the page says so beside the corner."""
    corner, *frameworks = row
    assert len(frameworks) == len(NEEDED_PACKAGE)
    for cell in frameworks:
        if cell == NOT_THERE:
            assert corner.endswith(")"), f"{corner}: why is there no such thing?"
        else:
            assert [code for code in cell.split(", ") if code not in _LEGEND] == []


@pytest.mark.parametrize("code", _LEGEND)
def test_a_named_test_exists_and_is_needed(code: str) -> None:
    """Under the name that the page gives."""
    assert len(named(_LEGEND[code])) == 1
    assert any(code in cell.split(", ") for row in _CORNERS for cell in row)
