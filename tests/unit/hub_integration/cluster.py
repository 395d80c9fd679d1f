"""A cluster of one dictionary: what KubeSpawner asks of Kubernetes, without Kubernetes.

``FakeCluster.fate`` decides what becomes of each pod that is created.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

from kubernetes_asyncio.client import ApiClient
from kubernetes_asyncio.client.exceptions import ApiException

Pod = dict[str, Any]
Fate = Callable[[Pod], Pod]


def running(ip: str = "127.0.0.1") -> Fate:
    """The pod runs at once."""

    def fate(pod: Pod) -> Pod:
        pod["spec"]["nodeName"] = "t4-1"
        pod["status"] = {
            "phase": "Running",
            "podIP": ip,
            "containerStatuses": [{"name": "notebook", "ready": True, "state": {"running": {}}}],
        }
        return pod

    return fate


def pending(pod: Pod) -> Pod:
    """No node has room."""
    pod["status"] = {"phase": "Pending"}
    return pod


def stuck(message: str) -> Fate:
    """A node was found, but the container cannot be made."""

    def fate(pod: Pod) -> Pod:
        pod["spec"]["nodeName"] = "t4-1"
        waiting = {"reason": "CreateContainerError", "message": message}
        pod["status"] = {
            "phase": "Pending",
            "containerStatuses": [
                {"name": "notebook", "ready": False, "state": {"waiting": waiting}}
            ],
        }
        return pod

    return fate


def failed(message: str) -> Fate:
    """The kubelet does not admit the pod."""

    def fate(pod: Pod) -> Pod:
        pod["spec"]["nodeName"] = "t4-1"
        pod["status"] = {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": message,
        }
        return pod

    return fate


def denied(status: int, message: str) -> Fate:
    """The API server does not take the pod."""

    def fate(pod: Pod) -> Pod:
        error = ApiException(status=status, reason="Forbidden")
        error.body = json.dumps({"kind": "Status", "message": message})
        raise error

    return fate


class FakeCluster:
    """Pods by 'namespace/name', as a reflector holds them, and the API calls on them."""

    def __init__(self, fate: Fate = pending) -> None:
        self.fate = fate
        self.pods: dict[str, Pod] = {}
        self.created: list[Pod] = []
        self.has_created = asyncio.Event()
        self.deleted: list[tuple[str, int]] = []
        self.events: list[dict[str, Any]] = []

    async def create_namespaced_pod(self, namespace: str, pod: Any) -> None:
        raw = ApiClient().sanitize_for_serialization(pod)
        self.created.append(copy.deepcopy(raw))
        self.has_created.set()
        raw["metadata"] |= {"namespace": namespace, "uid": f"uid-{len(self.created)}"}
        self.pods[f"{namespace}/{raw['metadata']['name']}"] = self.fate(raw)

    async def delete_namespaced_pod(
        self, name: str, namespace: str, body: Any, grace_period_seconds: int
    ) -> None:
        self.deleted.append((name, grace_period_seconds))
        self.pods.pop(f"{namespace}/{name}", None)


def attach(spawner_class: type, cluster: FakeCluster) -> type:
    """``spawner_class`` with this cluster in place of Kubernetes; nothing else is changed."""

    class OnFakeCluster(spawner_class):  # type: ignore[misc, valid-type]
        pod_reflector = event_reflector = cluster

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.api = cluster

        async def _start_watching_pods(self, replace: bool = False) -> None:
            pass

        async def _start_watching_events(self, replace: bool = False) -> None:
            pass

    return OnFakeCluster
