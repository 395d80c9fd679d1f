"""Who the Hub is to the cluster: a service account with the rights that zero-to-jupyterhub gives it.

The Hub runs beside the cluster, so it gets a token by TokenRequest and a kubeconfig around it, and
with the same token asks the extender what is free.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path

from playground.api import Api, ApiError

NAMESPACE = "jupyter"
ACCOUNT = "hub"
_TOKEN_DAYS = 30
_EXTENDER = ("gpushare", "gpushare-extender")  # namespace and name of the chart's Service
_EXTENDER_PORT = 8443

# Exactly those of zero-to-jupyterhub's hub Role.
_RULES = [
    {
        "apiGroups": [""],
        "resources": ["pods", "persistentvolumeclaims", "secrets", "services"],
        "verbs": ["get", "watch", "list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
]


@dataclass(frozen=True, slots=True)
class Extender:
    """Where the state API is, and the file with its authority."""

    url: str
    server_name: str
    ca: Path


def prepare_account(api: Api) -> None:
    """The namespace of the notebooks, and the Hub's account with its rights in it."""
    labels = {"app.kubernetes.io/part-of": "gpushare-playground"}
    api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE, "labels": labels}
    api.ensure(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": metadata})
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    api.ensure(f"{rbac}/roles", {"metadata": metadata, "rules": _RULES})
    api.ensure(
        f"{rbac}/rolebindings",
        {
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": ACCOUNT,
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    )


def write_credentials(api: Api, admin_kubeconfig: Path, folder: Path) -> Path:
    """The account's token (FOLDER/token) and a kubeconfig with it, whose path is returned."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    answer = api.create(path, {"spec": {"expirationSeconds": _TOKEN_DAYS * 24 * 3600}})
    token = answer["status"]["token"]
    cluster = json.loads(admin_kubeconfig.read_text())["clusters"][0]
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "clusters": [cluster],
        "users": [{"name": ACCOUNT, "user": {"token": token}}],
        "contexts": [
            {
                "name": "hub",
                "context": {
                    "cluster": cluster["name"],
                    "user": ACCOUNT,
                    "namespace": NAMESPACE,
                },
            }
        ],
    }
    write_private(folder / "token", token)
    write_private(folder / "kubeconfig", json.dumps(kubeconfig, indent=1))
    return folder / "kubeconfig"


def find_extender(api: Api, folder: Path) -> Extender | None:
    """The extender's state API; None if the chart is not installed."""
    namespace, name = _EXTENDER
    try:
        service = api.get(f"/api/v1/namespaces/{namespace}/services/{name}")
        public = api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}-ca")
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    write_private(folder / "extender-ca.crt", public["data"]["ca.crt"])
    # There is no cluster DNS on the host: the address is the Service's own, the name that is
    # checked is that of its certificate.
    url = f"https://{service['spec']['clusterIP']}:{_EXTENDER_PORT}"
    return Extender(url, f"{name}.{namespace}.svc", folder / "extender-ca.crt")


def pod_annotations(api: Api, name: str) -> dict[str, str]:
    """The annotations of a notebook's pod."""
    pod = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
    return dict(pod["metadata"].get("annotations") or {})


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def random_secret() -> str:
    return base64.urlsafe_b64encode(os.urandom(24)).decode()
