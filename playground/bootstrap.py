"""What a new cluster needs in its API before it can be used, and waiting until it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from playground.api import Api

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class ClusterNotReady(Exception):
    """The cluster did not get ready in time; the text says what it still waited for."""


def grant_rights(api: Api) -> None:
    """Rights that Kubernetes does not grant by itself."""
    # kubectl logs and exec: the API server asks kubelets under a name of its own.
    api.ensure(
        f"{RBAC}/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "playground:kubelet-client"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:kubelet-api-admin",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User",
                    "name": "kube-apiserver-kubelet-client",
                }
            ],
        },
    )


def await_nodes(api: Api, names: Iterable[str], seconds: float) -> None:
    """Wait until all of these nodes are Ready. Raises ClusterNotReady."""
    waiting = dict.fromkeys(names, "it has not registered")

    def see(kind: str, node: dict[str, Any]) -> bool:
        name = node["metadata"]["name"]
        problem = "it was deleted" if kind == "DELETED" else node_problem(node)
        if name in waiting and problem is None:
            del waiting[name]
        elif name in waiting:
            waiting[name] = problem or ""
        return not waiting

    if not _await(api, "/api/v1/nodes", see, seconds):
        text = "; ".join(f"node {name}: {problem}" for name, problem in sorted(waiting.items()))
        raise ClusterNotReady(f"not ready after {seconds:g} s: {text}")


def node_problem(node: dict[str, Any]) -> str | None:
    """Why a node is not Ready, in its own words; None when it is."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return None if condition["status"] == "True" else str(condition.get("message"))
    return "it has not reported yet"


def await_default_account(api: Api, seconds: float) -> None:
    """Wait for the service account that pods of the default namespace run under."""

    def see(kind: str, account: dict[str, Any]) -> bool:
        return kind != "DELETED" and account["metadata"]["name"] == "default"

    if not _await(api, "/api/v1/namespaces/default/serviceaccounts", see, seconds):
        raise ClusterNotReady(
            f"namespace default has no service account after {seconds:g} s: look at the log of "
            "kube-controller-manager"
        )


def _await(api: Api, path: str, see: Callable[[str, dict[str, Any]], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        for event in api.watch(path, max(1, int(left))):
            if event["type"] in ("ADDED", "MODIFIED", "DELETED") and see(
                event["type"], event["object"]
            ):
                return True
    return False
