"""Run atheris on each target for a bounded time.

    python -m tests.fuzz.guided [TARGET …] [--seconds 60] [--keep]

Each target runs in a process of its own, over the kept corpus; `--keep` adds what reached new code to it, the smallest
first. What fails is written to `crashes/` and said; the exit status says whether anything did.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
CRASHES = Path("crashes")
_MOST_KEPT = 120  # small files: the default tests read them all
_CHILD = "--child"
_LONGEST_BYTES = 4096
_GRACE_SECONDS = 120  # to start and to stop: instrumenting takes some seconds


def main() -> int:
    """Say how each target went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    chosen = parser.parse_args()
    targets = import_module("tests.fuzz.guided.targets").TARGETS
    failed = [name for name in chosen.targets or targets if not run(name, chosen.seconds, keep=chosen.keep)]
    print(f"{len(chosen.targets or targets)} targets, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def run(target: str, seconds: int, *, keep: bool) -> bool:
    """One target; whether nothing was found."""
    kept = CORPUS / target
    kept.mkdir(parents=True, exist_ok=True)
    CRASHES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as found:
        write_seeds(target, Path(found))
        limits = [f"-max_total_time={seconds}", f"-max_len={_LONGEST_BYTES}", f"-artifact_prefix={CRASHES}/{target}-"]
        print(f"--- {target}: {seconds} s", flush=True)
        finished = _child(target, [found, str(kept), "-timeout=10", "-print_final_stats=1", *limits], seconds)
        if keep and finished:
            keep_smallest(Path(found), kept)
    return finished


def keep_smallest(found: Path, kept: Path) -> None:
    """Add what reached new code to the corpus; each file is named by what is in it."""
    room = _MOST_KEPT - len(list(kept.iterdir()))
    for path in sorted(found.iterdir(), key=lambda path: path.stat().st_size)[: max(0, room)]:
        data = path.read_bytes()
        (kept / sha256(data).hexdigest()[:16]).write_bytes(data)


def _child(target: str, arguments: list[str], seconds: int) -> bool:
    command = [sys.executable, "-m", "tests.fuzz.guided", _CHILD, target, *arguments]
    try:
        ended = subprocess.run(
            command, timeout=seconds + _GRACE_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except subprocess.TimeoutExpired:
        print("it did not end by itself")
        return False
    lines = ended.stdout.decode(errors="replace").splitlines()
    shown = lines[-60:] if ended.returncode else [line for line in lines if line.startswith(("stat::", "Done"))]
    print("\n".join(shown), flush=True)
    return ended.returncode == 0


def write_seeds(target: str, folder: Path) -> None:
    """Where the fuzzer begins."""
    for number, seed in enumerate(import_module("tests.fuzz.guided.targets").seeds(target)):
        (folder / f"seed-{number}").write_bytes(seed)


def fuzz(target: str, arguments: list[str]) -> None:
    """In the child: never returns."""
    atheris: Any = import_module("atheris")  # not among the tests' own needs

    with atheris.instrument_imports(include=["idem_middleware", "python_multipart"]):
        targets = import_module("tests.fuzz.guided.targets").TARGETS
    atheris.Setup([sys.argv[0], *arguments], targets[target])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == [_CHILD]:
        fuzz(sys.argv[2], sys.argv[3:])
    sys.exit(main())
