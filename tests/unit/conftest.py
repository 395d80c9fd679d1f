"""How hard property tests look: a little at each run, or HYPOTHESIS_PROFILE=thorough. And which
tests start whole programs, so that `make test-fast` leaves them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# helm renders the chart, Hubs and plugins run with all their parts, buildah and Sphinx build.
_SLOW = (
    "chart",
    "dashboard/test_service.py",
    "device_plugin/test_plugin.py",
    "docs/test_site.py",
    "enforcement/test_mps.py",
    "extender/test_stopping.py",
    "hub_integration/test_hub.py",
    "hub_integration/test_quota_hub.py",
    "playground/test_images.py",
)
_HERE = Path(__file__).parent

# In CI the same examples every time, so that a red run tells of its own change; at people's machines
# others each time.
_CI = bool(os.environ.get("CI"))
settings.register_profile("quick", max_examples=40, deadline=None, derandomize=_CI)
settings.register_profile("thorough", max_examples=300, deadline=None, derandomize=_CI)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            path = item.path.relative_to(_HERE).as_posix()
            if path.startswith(_SLOW):
                item.add_marker(pytest.mark.slow)
