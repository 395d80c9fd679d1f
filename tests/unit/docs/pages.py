"""The pages that people read: the site's, and those that stand beside the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

PAGES: tuple[Path, ...] = tuple(
    sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("charts/*/README.md"),
            *ROOT.glob("helm-values/*.md")])
)  # fmt: skip

_FENCE = re.compile(r"^(\s*)```(\w*)[^\n]*\n(.*?)^\1```\s*$", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    """For a test's id."""
    return str(path.relative_to(ROOT))


def snippets(page: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """Line and text of the page's code blocks in ``languages``."""
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        if match[2] in languages:
            indent = match[1]
            body = "\n".join(line.removeprefix(indent) for line in match[3].splitlines())
            yield text.count("\n", 0, match.start()) + 1, body


def prose(page: Path) -> str:
    """The page without its code."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    return re.sub(r"`[^`\n]*`", "", text)
