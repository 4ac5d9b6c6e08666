"""Check that a wheel holds the packages, all of their files and nothing else.

The build backend obeys .gitignore, so one pattern too many there empties the wheel in silence.

    python scripts/check_wheel.py WHEEL
"""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Compare the wheel with the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {Path(package).name: ROOT / package for package in packages}
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in sorted(expected - packed):
        print(f"missing in the wheel: {name}")
    for name in sorted(packed - expected):
        print(f"not expected in the wheel: {name}")
    for package in folders:
        for needed in ("__init__.py", "py.typed"):
            if f"{package}/{needed}" not in packed:
                print(f"no {needed} in {package}")
                return 1
    return 0 if packed == expected else 1


if __name__ == "__main__":
    sys.exit(main())
