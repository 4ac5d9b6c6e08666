"""Starts one probe; `--help` tells how."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.probe.server import serve
from tests.probe.settings import Settings, parse_arguments


def main() -> int:
    """Check everything that can be checked before the first request, then serve."""
    with _state_folder() as state_folder:
        settings = parse_arguments(sys.argv[1:], state_folder)
        if not settings.bare and not _product_is_ready(settings):
            return 2
        serve(settings)
    return 0


def _product_is_ready(settings: Settings) -> bool:
    # A bare probe runs without the product, so nothing of it is imported until here.
    from idem_middleware.errors import IdempotencyError  # noqa: PLC0415
    from tests.probe.product import prepare  # noqa: PLC0415

    try:
        prepare(settings)
    except IdempotencyError as error:
        print(f"the probe cannot start: {error}", file=sys.stderr)  # noqa: T201
        return False
    return True


@contextmanager
def _state_folder() -> Iterator[str]:
    """Make a folder that the workers share; only the process that made it removes it.

    gunicorn's workers are forks that leave through here, too, while the others still need it.
    """
    folder, owner = tempfile.mkdtemp(prefix="idem-probe-"), os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
