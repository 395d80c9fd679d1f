"""How the pages become a site: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import gpushare  # noqa: E402

project = "jupyterhub-gpushare"
author = "the jupyterhub-gpushare developers"
copyright = author
version = release = gpushare.__version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "recipes/**/*.py"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"gpushare {release}"
html_static_path: list[str] = []
html_show_sourcelink = False


def leave_out_absent_pages(app: object, docname: str, source: list[str]) -> None:
    """Patterns in the index that match nothing: pages that another part of the product brings."""
    if docname == "index":
        here = Path(__file__).parent
        source[0] = "\n".join(
            line
            for line in source[0].split("\n")
            if "*" not in line or " " in line or any(here.glob(f"{line}.md"))
        )


def setup(app: object) -> None:
    app.connect("source-read", leave_out_absent_pages)  # type: ignore[attr-defined]
