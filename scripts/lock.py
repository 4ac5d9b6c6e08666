"""Write requirements.lock: the versions that everything here was last seen to work with, `python scripts/lock.py`.

Pins for developers and CI, to be used as constraints (`pip install -c requirements.lock -e '.[dev]'`). The package has
lower bounds only. pip resolves, for the Python and the platform that runs this; nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "requirements.lock"
EXTRAS = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def main() -> None:
    """Resolve, and write."""
    resolved = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"),
            *("--report", "-", f"{ROOT}[{','.join(EXTRAS)}]"),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    found = [entry["metadata"] for entry in json.loads(resolved.stdout)["install"]]
    pins = sorted(
        f"{entry['name'].lower()}=={entry['version']}" for entry in found if entry["name"] != "idem-middleware"
    )
    version = ".".join(map(str, sys.version_info[:2]))
    heading = (
        f"# Made by scripts/lock.py with Python {version} on {sys.platform}, for the extras {', '.join(EXTRAS)}.\n"
    )
    TARGET.write_text(heading + "\n".join(pins) + "\n", encoding="utf-8")
    print(f"{len(pins)} pins")


if __name__ == "__main__":
    main()
