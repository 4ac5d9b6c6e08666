"""Play every scene and show the table: `python -m tests.faults`; with `--write`, put it into the documentation."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.__main__ import set_environment
from tests.faults.scenes import DRIVERS, played, scenes
from tests.faults.table import TABLE, expected
from tests.faults.told import BEGINNING, END, markdown
from tests.support.dynamodb_local import DynamoDBLocal, locate

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Give 0 if every scene ends as the table says, 1 if one does not."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--driver", action="append", choices=DRIVERS, help="default: all")
    parser.add_argument(
        "--write", action="store_true", help="put the table of the tests into docs/faults.md; play nothing"
    )
    parsed = parser.parse_args(arguments)
    if parsed.write:
        before, _, rest = _DOCUMENT.read_text(encoding="utf-8").partition(BEGINNING)
        after = rest.partition(END)[2]
        _DOCUMENT.write_text(f"{before}{BEGINNING}\n{markdown(TABLE)}\n{END}{after}", encoding="utf-8")
        return 0
    set_environment()
    logging.disable(logging.CRITICAL)
    every = list(scenes())
    failed = False
    with DynamoDBLocal(locate()) as local:
        for driver in parsed.driver or DRIVERS:
            outcomes = played(local.url, driver, every)
            others = [scene for scene in every if outcomes[scene] != expected(scene, driver)]
            sys.stdout.write(f"{driver}: {len(every)} faults, {len(others)} end otherwise than the table says\n")
            for scene in others:
                failed = True
                sys.stdout.write(f"  {scene}\n    {outcomes[scene]}\n    {expected(scene, driver)}\n")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
