"""One application in one process, which carries out what it is told and says what that cost.

    python -m benchmarks.peers.worker VARIANT URL

It runs in the environment of what it measures, which lacks everything else: it imports nothing of this project but
in the variants that are ours. Orders come as lines of JSON on its input, costs go out on its output.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers.driver import Driver
from benchmarks.peers.variants import VARIANTS


def main() -> None:
    """Carry out orders until there are no more."""
    logging.disable(logging.ERROR)
    variant = VARIANTS[sys.argv[1]]
    driver = Driver(variant.make(sys.argv[2]), on_a_loop=variant.on_a_loop, protected=variant.protection != "bare")
    say = partial(print, flush=True)
    say(json.dumps({"ready": variant.name}))
    parts: dict[str, Callable[..., dict[str, Any]]] = {
        "prepare": driver.prepare,
        "measure": driver.measure,
        "put_away": driver.put_away,
    }
    for line in sys.stdin:
        part, given = json.loads(line)
        say(json.dumps(parts[part](**given)))


if __name__ == "__main__":
    main()
