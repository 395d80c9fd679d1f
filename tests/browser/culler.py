"""The culler's service, as far as the Hub asks it."""

from __future__ import annotations

from typing import Any

from tests.browser.hub import NAMESPACE
from tests.unit.hub_integration.state import FakeExtender


class FakeCuller(FakeExtender):
    """``GET api/verdicts``."""

    def __init__(self, verdicts: list[dict[str, Any]]) -> None:
        super().__init__({})
        self.verdicts = verdicts

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.paths["/api/verdicts"]["verdicts"]
        return found

    @verdicts.setter
    def verdicts(self, verdicts: list[dict[str, Any]]) -> None:
        self.paths["/api/verdicts"] = {"dry_run": False, "verdicts": verdicts}


def verdict(user: str, idle: float, ends: str | None, model: str = "Tesla T4") -> dict[str, Any]:
    return {
        "user": user,
        "server": "",
        "namespace": NAMESPACE,
        "pod": f"jupyter-{user}",
        "slices": [{"node": "t4-1", "card": "GPU-1", "model": model, "mib": 7168, "percent": 0}],
        "idle_seconds": idle,
        "ends_at": ends,
    }
