"""What stands around the code: workflows, the lock file, the changelog, templates."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import idem_middleware
from tests.support.processes import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_uses_pinned_actions_and_may_do_little(workflow: Path) -> None:
    """A tag can be moved, a commit can't."""
    for used in re.findall(r"uses: (.+)", workflow.read_text(encoding="utf-8")):
        assert _PINNED.fullmatch(used), used
    read = load(workflow)
    assert read["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in read["jobs"].values())


def test_workflows_run_environments_that_exist() -> None:
    """Of tox.ini, whose generative names are spelt out."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    known = {section.removeprefix("testenv:") for section in tox.sections()}
    known |= {
        "core",
        *(f"{f}-{age}" for f in ("starlette", "fastapi", "django", "flask") for age in ("oldest", "latest")),
    }
    for workflow in WORKFLOWS:
        for job in load(workflow)["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {})
            assert {*matrix.get("part", []), *matrix.get("check", [])} <= known


def test_templates_and_hooks_can_be_read() -> None:
    """By whoever reads them."""
    for path in [*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"), ROOT / ".github" / "dependabot.yml"]:
        assert isinstance(load(path), dict)
    hooks = load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert len({hook["id"] for hook in hooks}) == len(hooks)


def test_the_lock_file_pins_what_developers_install() -> None:
    """Every requirement of the package and its extras, by one version, and names no place to get it from."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    wanted = [name for extra in PROJECT["optional-dependencies"].values() for name in extra] + PROJECT["dependencies"]
    names = {re.split(r"[\[<>=; ]", name)[0].lower() for name in wanted} - {PROJECT["name"]}
    same = {name.replace("_", "-").replace(".", "-") for name in pinned}
    assert {name for name in names if name.replace("_", "-").replace(".", "-") not in same} == set(), "scripts/lock.py"
    assert all(re.fullmatch(r"[a-z0-9._-]+==[\w.+!]+|#.*", line) for line in lines)


def test_the_version_is_one() -> None:
    """In the metadata, in the package, in the changelog."""
    assert PROJECT["version"] == idem_middleware.__version__
    assert f"\n## {PROJECT['version']} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
