"""The script that fetches DynamoDB Local, without fetching it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.processes import ROOT

SCRIPT = ROOT / "scripts" / "fetch_dynamodb_local.py"

_FAKE_NPM = """#!{python}
import shutil, sys
assert sys.argv[1:] == ["pack", "amplify-dynamodb-simulator@2.9.30", "--json"], sys.argv
shutil.copy({archive!r}, "simulator.tgz")
print('[{{"filename": "simulator.tgz"}}]')
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a java and an npm that hands out a small archive; it is all that the PATH has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    archive = tmp_path / "simulator.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("index.js", "emulator/DynamoDBLocal.jar", "emulator/DynamoDBLocal_lib/a.so"):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(name)
            tar.addfile(member, io.BytesIO(name.encode()))
    executable(folder / "java", "#!/bin/sh\n")
    executable(folder / "npm", _FAKE_NPM.format(python=sys.executable, archive=str(archive)))
    return folder


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def run(tools: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(target)],
        env={**os.environ, "PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_unpacks_the_emulator_alone(tools: Path, tmp_path: Path) -> None:
    """And says whose it is and under which licence."""
    target = tmp_path / "a" / "local"
    fetched = run(tools, target)

    assert fetched.returncode == 0, fetched.stderr
    assert "Amazon DynamoDB Local License" in fetched.stdout
    assert {str(path.relative_to(target)) for path in target.rglob("*")} == {
        "DynamoDBLocal.jar",
        "DynamoDBLocal_lib",
        "DynamoDBLocal_lib/a.so",
    }
    assert [path.name for path in target.parent.iterdir()] == ["local"], "nothing half-done is left beside it"


def test_it_fetches_once(tools: Path, tmp_path: Path) -> None:
    """A second run finds it there."""
    run(tools, tmp_path / "local")
    executable(tools / "npm", "#!/bin/sh\nexit 1\n")

    again = run(tools, tmp_path / "local")
    assert (again.returncode, "already in" in again.stdout) == (0, True)


@pytest.mark.parametrize("tool", ["java", "npm"])
def test_it_names_the_tool_that_is_missing(tools: Path, tmp_path: Path, tool: str) -> None:
    """Before it fetches anything."""
    (tools / tool).unlink()
    failed = run(tools, tmp_path / "local")

    assert failed.returncode == 1
    assert f"{tool} is not installed" in failed.stderr


def test_it_shows_what_npm_says(tools: Path, tmp_path: Path) -> None:
    """And leaves nothing behind."""
    executable(tools / "npm", "#!/bin/sh\necho 'no network' >&2\nexit 1\n")
    failed = run(tools, tmp_path / "local")

    assert (failed.returncode, "no network" in failed.stderr) == (1, True)
    assert not (tmp_path / "local").exists()
