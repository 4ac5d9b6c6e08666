"""`python -m example_apps.demo`, from the checkout."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec

from example_apps.demo.errors import DemoError
from example_apps.demo.frameworks import FRAMEWORKS

_DEFAULT_PORT = 8000


def main(arguments: Sequence[str] | None = None) -> int:
    """0: everything came out as promised; 1: not; 2: the demo can't be played."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.port is not None and options.serve is None:
        parser.error("--port is for --serve; the story finds ports for itself")
    names = [options.serve] if options.serve else options.framework or list(FRAMEWORKS)
    # Stopped like this, it stops its children, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        _require_packages(names, embedded=options.store is None)
        from example_apps.demo.show import serve, tell  # noqa: PLC0415  # needs what was just looked for

        if options.serve:
            return serve(options.serve, options.store, options.port or _DEFAULT_PORT)
        return tell(names, options.store)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)  # noqa: T201  # a command speaks
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m example_apps.demo",
        description="Play a payments API through duplicates, lost answers, failures and a crash, over HTTP, and show "
        "how often a charge was really made. Needs nothing but the extra 'demo'; all of it runs on this machine.",
    )
    parser.add_argument(
        "--framework",
        action="append",
        choices=FRAMEWORKS,
        help="play it on this one; may be given several times (default: all of them)",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="use this store, dynamodb://TABLE?region=...&endpoint=..., instead of an embedded DynamoDB; "
        "the table is made if it is missing, and what the demo writes stays there",
    )
    parser.add_argument("--serve", choices=FRAMEWORKS, help="leave this app running and print curl lines to try")
    parser.add_argument("--port", type=_port, help=f"where --serve listens (default: {_DEFAULT_PORT})")
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:  # noqa: PLR2004
        raise ValueError
    return port


def _require_packages(names: Iterable[str], *, embedded: bool) -> None:
    """Check that everything can be imported.

    Raises:
        DemoError: something can't.

    """
    needed = {"httpx", "rich"}.union(*(FRAMEWORKS[name].needs for name in names))
    if embedded:
        needed |= {"moto", "flask", "flask_cors"}  # moto's server is a Flask application
    missing = sorted(package for package in needed if find_spec(package) is None)
    if missing:
        raise DemoError(
            f"{', '.join(missing)} can't be imported: install the extra 'demo', python -m pip install -e '.[demo]'"
        )


if __name__ == "__main__":
    sys.exit(main())
