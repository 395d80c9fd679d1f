from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from kubernetes_asyncio.config import kube_config


@pytest.fixture(autouse=True, scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """KubeSpawner wants one that it can load; nothing listens there."""
    file: Path = tmp_path_factory.mktemp("kube") / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "none",
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "none", "user": {}}],
    }
    file.write_text(yaml.safe_dump(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(file))  # for a Hub that a test starts
        # The client has looked at the environment when it was imported.
        patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        yield file
