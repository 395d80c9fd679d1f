"""The pods of this node, as the API server tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from device_plugin.holders import Holder
from device_plugin.kube import ApiError, Kube
from device_plugin.pod import essence
from device_plugin.pod_store import PodStore
from device_plugin.watch import Watch
from gpushare.names import Names
from gpushare.pods import node_name, pod_ref


class Pods:
    """A watch of the node's pods, with the API server itself behind it."""

    def __init__(
        self,
        kube: Kube,
        node: str,
        names: Names,
        on_change: Callable[[str], None],
        store: PodStore | None = None,
    ) -> None:
        self._kube, self._node, self._names, self._store = kube, node, names, store
        self._selector = {"fieldSelector": f"spec.nodeName={node}"}
        self.watch = Watch(
            kube, "/api/v1/pods", self._selector, lambda pod: essence(pod, names), on_change
        )

    def known(self, uid: str) -> dict[str, Any] | None:
        """The pod with this uid, as last seen."""
        return self.watch.objects.get(uid)

    def alive(self) -> frozenset[str] | None:
        """The uids of the node's pods; None while the API server is not being heard."""
        return None if self.watch.problem else frozenset(self.watch.objects)

    async def find(self, holder: Holder) -> dict[str, Any] | None:
        """The holder's pod, if there is one on this node. Raises ApiError.

        Without a uid the server is asked: a pod that we know by name may be its predecessor. While
        it is away, pods that had something here before are remembered.
        """
        pod = self.known(holder.uid) if holder.uid else None
        if pod is None and self.watch.problem and self._store is not None:
            pod = self._store.get(holder.uid)
        if pod is None and holder.name:
            pod = await self._get(holder)
        elif pod is None:
            pod = await self._search(holder.uid)
        if pod is None or node_name(pod) != self._node:
            return None
        ref = pod_ref(pod)
        named = (ref.namespace, ref.name) == (holder.namespace, holder.name) or not holder.name
        return pod if named and holder.uid in ("", ref.uid) else None

    async def _get(self, holder: Holder) -> dict[str, Any] | None:
        path = f"/api/v1/namespaces/{holder.namespace}/pods/{holder.name}"
        try:
            return essence(await self._kube.get(path), self._names)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def _search(self, uid: str) -> dict[str, Any] | None:
        answer = await self._kube.get("/api/v1/pods", **self._selector)
        pods = (essence(item, self._names) for item in answer.get("items") or [])
        return next((pod for pod in pods if pod["metadata"].get("uid") == uid), None)
