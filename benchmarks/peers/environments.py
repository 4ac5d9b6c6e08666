"""A virtual environment for each of those that are compared, under `.benchmarks/`, made when it is first needed.

All get the same releases of the frameworks and servers: those of the interpreter that measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import venv
from functools import cache
from importlib.metadata import version
from pathlib import Path

__all__ = ["installed", "interpreter", "variables"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".benchmarks"
_WEB = ("starlette", "flask", "django", "uvicorn", "gunicorn")
_QUICK_SERVER = ("httptools", "uvloop")
"""What `uvicorn[standard]` brings, and most people run."""
_PEERS = {
    "ours": ("boto3", "jmespath", "python-multipart", "aiohttp", "orjson"),
    "idemkit": ("idemkit[dynamodb]==1.0.2",),
    "powertools": ("aws-lambda-powertools==3.37.0", "boto3", "jmespath"),
}


def _packages(name: str) -> list[str]:
    return [*(f"{package}=={version(package)}" for package in _WEB), *_QUICK_SERVER, *_PEERS[name]]


@cache
def interpreter(name: str) -> str:
    """The interpreter of an environment; our own code is found by `variables`, as it stands here."""
    folder, packages = FOLDER / name, _packages(name)
    python, complete = folder / "bin" / "python", folder / "complete.json"
    if not complete.exists() or json.loads(complete.read_text(encoding="utf-8")) != packages:
        print(f"making {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        complete.write_text(json.dumps(packages), encoding="utf-8")
    return str(python)


@cache
def installed(name: str) -> str:
    """The releases that matter in an environment, in one line."""
    listed = subprocess.run(
        [interpreter(name), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    releases = {entry["name"].lower(): entry["version"] for entry in json.loads(listed.stdout)}
    told = ("idemkit", "aws-lambda-powertools", "boto3", "aioboto3", "aiohttp", "orjson", *_WEB, *_QUICK_SERVER)
    return ", ".join(f"{package} {releases[package]}" for package in told if package in releases)


def variables() -> dict[str, str]:
    """The environment variables for a process of one: where our code is, and keys that open nothing."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "integrations"))),
        "PYTHONWARNINGS": "ignore",
        "PYTHONHASHSEED": "0",
        "AWS_ACCESS_KEY_ID": "stub",
        "AWS_SECRET_ACCESS_KEY": "stub",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
