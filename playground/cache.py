"""Where the playground keeps what it builds, so that the second time costs nothing."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(*parts: str) -> Path:
    """The folder for ``parts`` under the user's cache folder; it exists when this returns."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(home, "gpushare", "playground", *parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
