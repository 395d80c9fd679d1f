"""Pods as Kubernetes tells them, with the rights that zero-to-jupyterhub gives its Hub.

Raw JSON over one session: what is read of a pod is a dozen fields, and the models of the official
client change from version to version. Its configuration says where the API is and how to be let in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from gpushare.names import Names
from hub_integration.culling.observed import Pod, read_pod

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NOTEBOOKS = "component=singleuser-server"
_MERGE = "application/merge-patch+json"
_TIMEOUT = aiohttp.ClientTimeout(total=20)
ALL = "*"
# Controllers that can be told to run no pod, by the path of their kind.
SCALED = {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


class KubeFailed(Exception):
    """Kubernetes did not answer (``status`` 0), or refused."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Kube:
    """The pods of one namespace, or of all for '*'. Everything raises KubeFailed."""

    def __init__(self, settings: Configuration, namespace: str, names: Names) -> None:
        self.namespace = namespace
        self.names = names
        self._settings = settings
        self._host = settings.host.rstrip("/")
        tls = RESTClientObject(settings).ssl_context if self._host.startswith("https") else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls), timeout=_TIMEOUT, trust_env=True
        )

    async def close(self) -> None:
        await self._session.close()

    async def pods(self, everywhere: bool = False) -> list[Pod]:
        """The notebooks' pods; with ``everywhere`` all pods of all namespaces."""
        all_ = everywhere or self.namespace == ALL
        path = "/api/v1/pods" if all_ else f"/api/v1/namespaces/{self.namespace}/pods"
        query = {} if everywhere else {"labelSelector": _NOTEBOOKS}
        data = await self._call("GET", path, query=query)
        found = []
        for pod in data.get("items") or ():
            try:
                found.append(read_pod(pod, self.names))
            except (ValueError, KeyError, TypeError):
                continue  # the API server never answers so; nothing to do for one that did
        return found

    async def delete_pod(self, pod: Pod) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        await self._call("DELETE", path, body={"preconditions": {"uid": pod.uid}})

    async def suspend_job(self, namespace: str, name: str, note: Mapping[str, str]) -> None:
        body = {"metadata": {"annotations": dict(note)}, "spec": {"suspend": True}}
        await self._call("PATCH", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", body=body)

    async def scale_to_none(
        self, kind: str, namespace: str, name: str, note: Mapping[str, str]
    ) -> None:
        """``kind`` is one of SCALED."""
        body = {"metadata": {"annotations": dict(note)}, "spec": {"replicas": 0}}
        path = f"/apis/apps/v1/namespaces/{namespace}/{SCALED[kind]}/{name}"
        await self._call("PATCH", path, body=body)

    async def deployment_of_set(self, namespace: str, name: str) -> str:
        """The Deployment that a ReplicaSet belongs to, or ''."""
        path = f"/apis/apps/v1/namespaces/{namespace}/replicasets/{name}"
        found = await self._call("GET", path)
        owners = found.get("metadata", {}).get("ownerReferences") or ()
        return next((str(o["name"]) for o in owners if o.get("kind") == "Deployment"), "")

    async def say(self, pod: Pod, reason: str, text: str) -> None:
        """An Event about a pod. Without the right to write one, there is none."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with suppress(KubeFailed):
            await self._call("POST", f"/api/v1/namespaces/{pod.namespace}/events", body=body)

    async def _call(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> dict[str, Any]:
        kind = _MERGE if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        token = await self._settings.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        data = None if body is None else json.dumps(body)
        try:
            async with self._session.request(
                method, self._host + path, params=query or {}, data=data, headers=headers
            ) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise KubeFailed(f"Kubernetes does not answer: {what}") from None
        if answer.status >= 400:
            raise KubeFailed(f"{method} {path}: {answer.status} {answer.reason}", answer.status)
        try:
            found = json.loads(text)
        except ValueError:
            raise KubeFailed(f"{method} {path}: the answer is not JSON") from None
        return found if isinstance(found, dict) else {}


async def connect(kubeconfig: str, namespace: str, names: Names) -> Kube | None:
    """By a kubeconfig, or for '' by what is there; None where there is nothing."""
    settings: Configuration = Configuration()
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
    return Kube(settings, namespace or own_namespace(path), names)


def own_namespace(kubeconfig: str) -> str:
    """The namespace of this pod, or of the kubeconfig's context."""
    if kubeconfig:
        _, context = config.list_kube_config_contexts(kubeconfig)
        return str(context.get("context", {}).get("namespace") or "default")
    try:
        return _OWN_NAMESPACE.read_text("utf-8").strip()
    except OSError:
        return "default"
