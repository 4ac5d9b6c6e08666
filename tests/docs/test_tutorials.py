"""The files of tutorials and how-tos, written as a reader would write them, do what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.processes import ROOT

DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if 'title="try_it.py"' in page.read_text(encoding="utf-8")]
NEEDED = {"django-rest-framework": "rest_framework"}  # by a page's name, where it is not the package's
_FILE = re.compile(r'^```py title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_RUN = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_a_page_works_as_it_is_written(page: Path, tmp_path: Path) -> None:
    """Every file of it runs, the last of them makes the requests and checks the answers."""
    package = NEEDED.get(page.stem, page.stem)
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    files = dict(_FILE.findall(page.read_text(encoding="utf-8")))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        compile(text, name, "exec")
    tried = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _RUN, str(tmp_path), "try_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert tried.returncode == 0, tried.stderr


def test_there_is_one_for_each_framework() -> None:
    """None is missed."""
    assert [path.stem for path in TUTORIALS] == ["django", "fastapi", "flask", "starlette"]
    assert set(TUTORIALS) <= set(PAGES)
