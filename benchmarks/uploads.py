"""The most memory that a large upload takes, protected and bare, on every framework and its real server.

    python -m benchmarks.uploads [--mebibytes N] [--framework NAME …] [--save]

Each upload goes to a process of its own, with one worker, that has answered one small upload before. The peak is the
resident size at its highest during the upload, less what it was before (`VmHWM` and `VmRSS` of `/proc/PID/status`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.measuring import hardware, load, save, today, versions
from tests.support.probes import INSTALLED_FRAMEWORKS, running_probe
from tests.support.uploads import MIB, Kind, peak_bytes, upload

KINDS: dict[str, Kind] = {"read as a stream": "raw", "a file in a form": "form"}


def measured(framework: str, kind: Kind, mebibytes: int, *, bare: bool) -> float:
    """The peak of one upload, in MiB above what the process held before."""
    with tempfile.TemporaryDirectory() as folder, running_probe(framework, Path(folder) / "log", bare=bare) as probe:
        upload(probe.port, "/probe/first", kind, mebibytes=2, key="first")
        return peak_bytes(probe.port, "/probe/second", kind, mebibytes=mebibytes, key="second") / MIB


def report(frameworks: list[str], mebibytes: int, raw: dict[str, list[float]]) -> list[str]:
    """Lines of Markdown; `raw` takes up the figures."""
    lines = [
        f"# Uploads of {mebibytes} MiB, {today()}",
        "",
        f"- {hardware()}; {load()}",
        f"- {versions('starlette', 'fastapi', 'django', 'flask', 'uvicorn', 'gunicorn')}",
        f"- `python -m benchmarks.uploads --mebibytes {mebibytes}`",
        "",
        "| framework | upload | bare, MiB | protected, MiB | above bare, MiB |",
        "|---|---|---:|---:|---:|",
    ]
    for framework in frameworks:
        for name, kind in KINDS.items():
            bare, protected = (measured(framework, kind, mebibytes, bare=bare) for bare in (True, False))
            raw[f"{framework}, bare, {name}"], raw[f"{framework}, ours, {name}"] = [bare], [protected]
            lines.append(f"| {framework} | {name} | {bare:.1f} | {protected:.1f} | {protected - bare:+.1f} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.uploads", description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=200)
    parser.add_argument("--framework", nargs="*", default=list(INSTALLED_FRAMEWORKS), choices=INSTALLED_FRAMEWORKS)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    raw: dict[str, list[float]] = {}
    lines = report(chosen.framework, chosen.mebibytes, raw)
    if chosen.save:
        save("uploads", lines, raw)


if __name__ == "__main__":
    main()
