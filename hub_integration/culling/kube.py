"""Pods as Kubernetes tells them, with the rights that zero-to-jupyterhub gives its Hub."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from gpushare.names import Names
from hub_integration.culling.observed import Pod, read_pod

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
ALL = "*"


class KubeFailed(Exception):
    """Kubernetes did not answer, or refused; the text says which right is missing."""


class Kube:
    """The pods of one namespace, or of all for '*'."""

    def __init__(self, api: client.ApiClient, namespace: str, names: Names) -> None:
        self.core = client.CoreV1Api(api)
        self.apps = client.AppsV1Api(api)
        self.batch = client.BatchV1Api(api)
        self.namespace = namespace
        self.names = names
        self._api = api

    async def close(self) -> None:
        await self._api.close()

    async def pods(self, everywhere: bool = False) -> list[Pod]:
        """The notebooks' pods; with ``everywhere`` all pods of all namespaces. Raises KubeFailed."""
        options: dict[str, Any] = {"_preload_content": False, "_request_timeout": 20}
        if not everywhere:
            options["label_selector"] = "component=singleuser-server"
        try:
            if everywhere or self.namespace == ALL:
                answer = await self.core.list_pod_for_all_namespaces(**options)
            else:
                answer = await self.core.list_namespaced_pod(self.namespace, **options)
            data = json.loads(await answer.read())
        except (ApiException, OSError, TimeoutError, ValueError) as error:
            where = "in all namespaces" if everywhere else f"in namespace {self.namespace}"
            raise KubeFailed(f"pods {where} cannot be listed: {_text(error)}") from None
        found = []
        for pod in data.get("items", ()):
            try:
                found.append(read_pod(pod, self.names))
            except (ValueError, KeyError, TypeError):
                continue  # the API server never answers so; nothing to do for one that did
        return found

    async def say(self, pod: Pod, reason: str, text: str) -> None:
        """An Event about a pod. Without the right to write one, there is none."""
        now = datetime.now(UTC)
        body = {
            "metadata": {"generateName": f"{pod.name[:50]}.", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning",
            "reason": reason,
            "message": text[:1000],
            "source": {"component": f"{self.names.event_source}-culler"},
            "firstTimestamp": now.isoformat(),
            "lastTimestamp": now.isoformat(),
            "count": 1,
        }
        with suppress(ApiException):
            await self.core.create_namespaced_event(pod.namespace, body)


async def connect(kubeconfig: str, namespace: str, names: Names) -> Kube | None:
    """By a kubeconfig, or for '' by what is there; None where there is nothing."""
    settings = client.Configuration()
    path = os.path.expanduser(kubeconfig or os.environ.get("KUBECONFIG", ""))  # noqa: ASYNC240
    try:
        if path:
            await config.load_kube_config(path, client_configuration=settings)
        else:
            config.load_incluster_config(settings)
    except (config.ConfigException, OSError, ValueError) as error:
        if kubeconfig:
            raise KubeFailed(f"GPUShareCuller.kubeconfig {kubeconfig!r}: {error}") from None
        return None
    return Kube(client.ApiClient(settings), namespace or own_namespace(path), names)


def own_namespace(kubeconfig: str) -> str:
    """The namespace of this pod, or of the kubeconfig's context."""
    if kubeconfig:
        _, context = config.list_kube_config_contexts(kubeconfig)
        return str(context.get("context", {}).get("namespace") or "default")
    try:
        return _OWN_NAMESPACE.read_text("utf-8").strip()
    except OSError:
        return "default"


def _text(error: BaseException) -> str:
    if isinstance(error, ApiException):
        return f"{error.status} {error.reason}"
    return str(error) or type(error).__name__
