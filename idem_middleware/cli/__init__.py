"""The command `idem-middleware`: for the person who runs the service. Needs the extra `cli`.

Nothing of the package imports this; it imports the rest. Each command is a module in `commands`, listed in `root`.
What a command computes lies beside them, in modules that know of no terminal.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

__all__ = ["main"]

_NEEDED = ("click", "rich")


def main() -> None:
    """Run the command line of this process, and end the process with its exit status."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"idem-middleware: {' and '.join(missing)} can't be imported: install the extra 'cli', "
            "for example by: pip install 'idem-middleware[cli]'\n"
        )
        sys.exit(2)
    from idem_middleware.cli.root import root  # noqa: PLC0415  # only where the extra is there

    root(prog_name="idem-middleware")
