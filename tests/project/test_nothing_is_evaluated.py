"""What comes from a client or the table is data: nothing of it is unpickled or run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("idem_middleware", "integrations") for path in (ROOT / folder).rglob("*.py"))
_READERS = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
_RUNNERS = {"eval", "exec", "compile", "__import__"}


@pytest.mark.parametrize("folder", ["idem_middleware", "integrations"])
def test_no_module_can_turn_data_into_code(folder: str) -> None:
    """Neither by a reader of objects nor by an evaluation."""
    found = []
    for path in SOURCES:
        if not path.is_relative_to(ROOT / folder):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names):
                    used = {alias.name.partition(".")[0] for alias in names} & _READERS
                case ast.ImportFrom(module=str(module)):
                    used = {module.partition(".")[0]} & _READERS
                case ast.Call(func=ast.Name(name)):
                    used = {name} & _RUNNERS
                case _:
                    continue
            found += [(str(path.relative_to(ROOT)), name) for name in used]
    assert found == []
