"""Play the demo, and keep what it shows as a picture: `python scripts/make_demo_picture.py`.

The picture has the times and ports of that run, so nothing compares it; make it again when the demo changes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "images" / "demo.svg"
_COLUMNS = 118
# rich's own template loads its font from elsewhere; every reader has a monospaced one.
_FOREIGN_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> int:
    """Play it on one framework; gives the demo's own status."""
    sys.path.insert(0, str(ROOT))
    from example_apps.demo import show  # noqa: PLC0415 - from the checkout, not from wherever this runs

    # Not a terminal: of the table that fills while it is played, only the end.
    screen = Console(record=True, width=_COLUMNS, force_terminal=False, color_system="truecolor")
    show.console = lambda: screen  # type: ignore[attr-defined]  # as it is imported there
    status = show.tell(["starlette"], None)
    picture = _FOREIGN_FONTS.sub("", screen.export_svg(title="python -m example_apps.demo --framework starlette"))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(picture, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
