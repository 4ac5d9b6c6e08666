"""What is made from the code is what the code says now, and nothing is left out of it."""

from __future__ import annotations

import runpy

from idem_middleware import EventKind, Options, ProblemType
from tests.hosts.servers import SERVERS
from tests.support.processes import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_docs.py"))


def test_the_generated_pages_are_fresh() -> None:
    """Else: python scripts/make_docs.py."""
    assert SCRIPT["stale"]() == []


def test_every_option_event_and_problem_is_explained() -> None:
    """In the tables that the pages take the explanations from."""
    pages = SCRIPT["pages"]()
    options, events = pages["docs/reference/options.md"], pages["docs/reference/events.md"]
    assert [name for name in Options.names() if f"## {name}\n\n" not in options] == []
    assert [section[:30] for section in options.split("\n## ")[1:] if section.count("\n\n") < 2] == []
    assert [kind.value for kind in EventKind if f"| `{kind.value}` |" not in events] == []
    assert "|  |" not in events
    for kind in ProblemType:
        page = pages[f"docs/reference/problems/{kind.slug}.md"]
        assert "**What it means.** ." not in page
        assert "**What to do.** ." not in page


def test_clients_are_told_about_every_problem() -> None:
    """On the page that an API's team hands to its customers."""
    clients = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    assert [
        kind.slug for kind in ProblemType if f"[`{kind.slug}`](reference/problems/{kind.slug}.md)" not in clients
    ] == []


def test_the_support_matrix_is_the_one_that_is_started() -> None:
    """No server is promised that no test starts, and none is tested in secret."""
    page = (ROOT / "docs" / "how-to" / "servers.md").read_text(encoding="utf-8")
    rows = page.partition("| server | how | works |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [*(s.name for s in SERVERS), "Mangum on Lambda"]
