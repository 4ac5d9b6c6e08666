"""What the site does besides what mkdocs does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]*)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Give a place to pages that the navigation does not name yet."""
    docs = Path(config["docs_dir"])
    named = set(_files(config["nav"]))
    more = sorted(
        str(page.relative_to(docs)) for page in docs.rglob("*.md") if str(page.relative_to(docs)) not in named
    )
    if more:
        config["nav"].append({"More": more})
    return config


def _files(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [file for child in children for file in _files(child)]


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Point links that leave the documentation at the repository, or, while that has no address, say the path.

    On a forge such links work as they are.
    """
    folder = (Path(config["docs_dir"]) / page.file.src_path).parent

    def rewritten(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = (folder / target).resolve()
        if path.is_relative_to(config["docs_dir"]):
            return found[0]
        if not path.exists():
            raise ValueError(f"{page.file.src_path}: there is no {target}")
        inside = path.relative_to(ROOT)
        repository = config["repo_url"]
        return (
            f"[{text}]({repository.rstrip('/')}/blob/main/{inside}{anchor})" if repository else f"{text} (`{inside}`)"
        )

    return _LINK.sub(rewritten, markdown)
