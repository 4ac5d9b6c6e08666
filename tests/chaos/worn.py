"""A process that is warmed up, worn, and looked at twice.

`python -m tests.chaos.worn FRAMEWORK WARM-UP REQUESTS FOLDER`
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from idem_middleware.upkeep import process_upkeep
from tests.chaos.life import driver, sample
from tests.support.polling import eventually

# As short as leases can be: what is scheduled for their renewal goes within a third of it.
_OPTIONS = {"lease_seconds": 1, "max_execution_seconds": 60}
_STORE = "memory://?max_entries=200"


def main() -> int:
    """Print two samples."""
    framework, warm_up, requests = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    life = driver(framework, _STORE, Path(sys.argv[4]), _OPTIONS)
    done = 0
    for more in (warm_up, requests):
        life.send(range(done, done + more))
        done += more
        eventually(lambda: not process_upkeep()._due, what="an empty schedule")
        sys.stdout.write(f"sample {sample(done).told()}\n")
        sys.stdout.flush()
    life.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
