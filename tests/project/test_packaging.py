"""The import packages come from one place, and the core stands alone."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(path).name for path in _PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
ADAPTERS = [package for package in PACKAGES if package != "idem_middleware"]
FRAMEWORKS = ("starlette", "fastapi", "django", "rest_framework", "flask", "werkzeug")


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


def test_all_packages_come_from_one_installation() -> None:
    """The core from a checkout and an adapter from site-packages would be two versions in one process."""
    beside_the_core = folder_of("idem_middleware").parent

    assert {folder_of(package).parent for package in ADAPTERS} <= {beside_the_core, beside_the_core / "integrations"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    """Type checkers look for the marker in each of them."""
    assert (folder_of(package) / "py.typed").is_file()


def test_importing_the_core_imports_no_framework() -> None:
    """Whoever uses one adapter pays for that one alone."""
    code = f"import sys, idem_middleware; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert imported.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ADAPTERS)
def test_an_adapter_without_its_framework_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel always carries all adapters, so the import is where a user learns what is missing."""
    framework = package.removeprefix("idem_")
    for module in [name for name in sys.modules if name.partition(".")[0] in (package, framework)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, framework, None)

    with pytest.raises(ImportError, match=rf"idem-middleware\[{framework}\]"):
        importlib.import_module(package)
