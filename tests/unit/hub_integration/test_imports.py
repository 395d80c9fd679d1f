"""What the Hub's process must not load: its image has none of it, and every server pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORBIDDEN = [
    "grpc",
    "pynvml",
    "numpy",
    "kubernetes",
    "fastapi",
    "extender",
    "device_plugin",
    "playground",
]


@pytest.mark.parametrize("module", ["hub_integration.spawner", "profiles.reader"])
def test_nothing_heavy_is_loaded(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint(FORBIDDEN)


def test_profiles_need_no_hub() -> None:
    code = "import sys, profiles.reader, profiles.profile_list; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"jupyterhub", "kubespawner", "tornado", "aiohttp", "traitlets"})
