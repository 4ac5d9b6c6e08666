"""What the documentation says of the code is what the code says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from idem_middleware import EventKind, Options, ProblemType
from idem_middleware.records import TRANSITIONS

ROOT = Path(__file__).resolve().parents[2]


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_state_diagram_is_the_table_in_the_code() -> None:
    """The drawing in docs/promise.md has an edge for each transition, and no other."""
    edges = [
        f"{'[*]' if t.before is None else t.before.value} --> {t.after.value}: {t.name} ({t.when})" for t in TRANSITIONS
    ]
    drawn = _read("docs/promise.md").partition("stateDiagram-v2\n")[2].partition("```")[0]
    assert [line.strip() for line in drawn.splitlines() if line.strip()] == edges


def test_the_readme_lists_every_option() -> None:
    """A new option without a line in the table is not documented."""
    readme = _read("README.md")
    assert [name for name in Options.names() if f"`{name}`" not in readme] == []


def test_the_readme_tells_clients_about_every_refusal() -> None:
    """A client's developer finds every problem type."""
    readme = _read("README.md")
    assert [kind.slug for kind in ProblemType if f"`{kind.slug}`" not in readme] == []


def test_the_documentation_lists_every_event() -> None:
    """An operator finds every event."""
    operating = _read("docs/operating.md")
    assert [kind.value for kind in EventKind if f"`{kind.value}`" not in operating] == []


def test_every_link_between_pages_leads_somewhere() -> None:
    """To a file, and to a heading where it names one, as a forge makes their anchors."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert [f"{page.relative_to(ROOT)}: {link}" for page in pages for link in _dangling(page)] == []


def _dangling(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", _prose(page)):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if re.match(r"[a-z]+:", link):
            continue  # not ours
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            yield link


def _prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in shown}
