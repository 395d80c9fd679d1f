"""How to reach the API server: the pod's own service account, or a kubeconfig file.

The kubernetes package would do it too, but importing it costs 25 MiB on every node of the cluster.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_KEPT = 60.0  # seconds; the kubelet renews the file long before the token in it ends


class NoCredentials(Exception):
    """There is no usable way to the API server, and this says which setting mends it."""


@dataclass(slots=True)
class Credentials:
    """The server's address, the TLS context for it, and the bearer token if there is one."""

    server: str
    tls: ssl.SSLContext | None
    token: str = ""
    token_file: Path | None = None
    _read_at: float = field(default=float("-inf"))

    def headers(self) -> dict[str, str]:
        """The Authorization header. Raises OSError when the token's file has gone."""
        if self.token_file is not None and time.monotonic() - self._read_at > _TOKEN_KEPT:
            self.token = self.token_file.read_text().strip()
            self._read_at = time.monotonic()
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def find(kubeconfig: str = "") -> Credentials:
    """The credentials: ``kubeconfig``, else the service account, else $KUBECONFIG or ~/.kube/config.

    Raises NoCredentials.
    """
    if kubeconfig:
        return from_kubeconfig(Path(kubeconfig))
    if "KUBERNETES_SERVICE_HOST" in os.environ and _SERVICE_ACCOUNT.exists():
        return from_service_account()
    path = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return from_kubeconfig(Path(path or "~/.kube/config").expanduser())


def from_service_account(folder: Path = _SERVICE_ACCOUNT) -> Credentials:
    """The credentials that the kubelet mounts into a pod."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise NoCredentials(f"{folder / 'ca.crt'} cannot be read: {error}") from None
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return Credentials(f"https://{host}:{port}", tls, token_file=folder / "token")


def from_kubeconfig(path: Path) -> Credentials:
    """The current context of a kubeconfig: token or client certificate. Raises NoCredentials."""
    try:
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], "context", config["current-context"])
        cluster = _named(config["clusters"], "cluster", context["cluster"])
        user = _named(config["users"], "user", context["user"])
        return _from_entries(path.parent, cluster, user)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise NoCredentials(
            f"kubeconfig {path} cannot be used: {error!r}; set DevicePlugin.kubeconfig or $KUBECONFIG "
            "to a file with a current context, or run in a pod with a service account"
        ) from None


def _named(entries: list[Mapping[str, Any]], key: str, name: str) -> Mapping[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            value = entry[key]
            if isinstance(value, Mapping):
                return value
    raise ValueError(f"it has no {key} named {name!r}")


def _from_entries(folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Credentials:
    server = str(cluster["server"]).rstrip("/")
    if "exec" in user or "auth-provider" in user:
        raise ValueError("its user runs a program for a token, which a node daemon does not")
    token_file = folder / user["tokenFile"] if "tokenFile" in user else None
    tls = _tls(folder, cluster, user) if server.startswith("https:") else None
    return Credentials(server, tls, str(user.get("token", "")), token_file)


def _tls(folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _content(folder, cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate = _content(folder, user, "client-certificate")
    if certificate is not None:
        key = _content(folder, user, "client-key") or b""
        # Python's ssl reads client certificates from files only.
        with tempfile.TemporaryDirectory() as scratch:
            pair = Path(scratch, "crt"), Path(scratch, "key")
            pair[0].write_bytes(certificate)
            pair[1].touch(mode=0o600)
            pair[1].write_bytes(key)
            tls.load_cert_chain(*pair)
    return tls


def _content(folder: Path, entry: Mapping[str, Any], key: str) -> bytes | None:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    return (folder / entry[key]).read_bytes() if key in entry else None
