"""The site builds, and warnings are errors."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.docs.pages import DOCS

BUILT = importlib.util.find_spec("sphinx") and importlib.util.find_spec("myst_parser")


@pytest.mark.skipif(not BUILT, reason="the extra [docs] is not installed")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "dirhtml",
        "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path / "site"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "install", "command-line"):
        folder = tmp_path / "site" / ("" if page == "index" else page)
        assert "gpushare" in (folder / "index.html").read_text("utf-8")
