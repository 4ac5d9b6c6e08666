"""Appends runs to a log, as one process among several: `python -m tests.probe_contract.append_runs LOG COUNT`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.probe.runs import RunLog

if __name__ == "__main__":
    log = RunLog(Path(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        log.append("a", method="POST", path="/probe/a", body_sha256="00")
