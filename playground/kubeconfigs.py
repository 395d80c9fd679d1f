"""Kubeconfig files: one for each identity, with everything embedded, readable by its owner alone."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any


def render(server: str, ca: bytes, certificate: bytes, key: bytes, name: str) -> dict[str, Any]:
    """A kubeconfig with one cluster, one user and one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": _base64(ca)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(certificate),
                    "client-key-data": _base64(key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def write(path: Path, server: str, certificates: Path, identity: str, ca: str, name: str) -> None:
    """Write the kubeconfig of ``identity``, whose key pair lies in ``certificates``."""
    content = render(
        server,
        (certificates / f"{ca}.crt").read_bytes(),
        (certificates / f"{identity}.crt").read_bytes(),
        (certificates / f"{identity}.key").read_bytes(),
        name,
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        # JSON is YAML, and every reader of kubeconfigs reads it.
        json.dump(content, file, indent=1)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
