"""The state API as the command line shows it, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def gpushare(*arguments: str, timeout: float = 60) -> str:
    """Run the command line; its standard output. Fails with its standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "gpushare.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, f"gpushare {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def inspect() -> dict[str, Any]:
    """``gpushare inspect -o json``."""
    result: dict[str, Any] = json.loads(gpushare("inspect", "-o", "json"))
    return result


def holdings() -> dict[str, dict[str, list[int]]]:
    """Who holds what: card uuid → owner → [MiB, per cent]. Equal before and after a rebuild."""
    return {
        card["uuid"]: {
            f"{s['namespace']}/{s['pod']}": [s["mib"], s["percent"]] for s in card["slices"]
        }
        for node in inspect()["nodes"]
        for card in node["cards"]
    }
