"""Fetch Amazon's DynamoDB Local, which the tests of concurrency need: nothing else behaves like DynamoDB there.

It is not part of this project. Its own licence, the Amazon DynamoDB Local License Agreement, allows AWS account
holders to use it for development and testing and forbids its redistribution, so it is never kept in the repository:
this script fetches it, on your demand, from the npm package that carries it.

    python scripts/fetch_dynamodb_local.py [FOLDER]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

# `npm pack`, not `npm install`: the latter would pull in a whole command-line tool.
PACKAGE = "amplify-dynamodb-simulator@2.9.30"
DEFAULT_FOLDER = Path(__file__).resolve().parents[1] / ".dynamodb-local"

_INSIDE = PurePosixPath("package/emulator")
_JAR = "DynamoDBLocal.jar"
_NPM_SECONDS = 600

_LICENCE = (
    "DynamoDB Local is Amazon's, under the Amazon DynamoDB Local License Agreement: for development and testing by\n"
    "AWS account holders; it must not be redistributed. By using it you accept that licence."
)


class FetchError(Exception):
    """What is missing or went wrong, for the user."""


def main() -> int:
    """Fetch it unless it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="default: .dynamodb-local")
    folder: Path = parser.parse_args().folder
    print(_LICENCE)
    try:
        _check_tools()
        if (folder / _JAR).is_file():
            print(f"It is already in {folder}.")
            return 0
        _fetch(folder)
    except FetchError as error:
        print(f"fetch_dynamodb_local: {error}", file=sys.stderr)
        return 1
    print(f"It is in {folder} now.")
    return 0


def _check_tools() -> None:
    if shutil.which("java") is None:
        raise FetchError("java is not installed; DynamoDB Local needs version 17 or later")
    if shutil.which("npm") is None:
        raise FetchError("npm is not installed; it is what fetches the package")


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename: an interrupted run leaves no half-filled folder.
    with tempfile.TemporaryDirectory(prefix=".dynamodb-local-", dir=folder.parent) as name:
        work = Path(name)
        unpacked = work / "unpacked"
        _unpack(_download(work), unpacked)
        if not (unpacked / _JAR).is_file():
            raise FetchError(f"{PACKAGE} holds no {_JAR}")
        if folder.exists():
            raise FetchError(f"{folder} exists but holds no {_JAR}; remove it first")
        unpacked.rename(folder)


def _download(work: Path) -> Path:
    print(f"npm pack {PACKAGE} ...", flush=True)
    try:
        packed = subprocess.run(
            ["npm", "pack", PACKAGE, "--json"],
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_NPM_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"npm pack {PACKAGE} took longer than {_NPM_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        raise FetchError(f"npm pack {PACKAGE} failed:\n{error.stderr.strip()}") from None
    filename: str = json.loads(packed.stdout)[0]["filename"]
    return work / filename


def _unpack(archive: Path, target: Path) -> None:
    """Unpack the emulator's folder alone."""
    with tarfile.open(archive) as tar:
        members = []
        for member in tar.getmembers():
            path = PurePosixPath(member.name)
            if path.is_relative_to(_INSIDE) and path != _INSIDE:
                members.append(member.replace(name=str(path.relative_to(_INSIDE))))
        tar.extractall(target, members=members, filter="data")


if __name__ == "__main__":
    sys.exit(main())
