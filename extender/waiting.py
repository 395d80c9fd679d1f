"""Pods that wait for a card, and waking them when one is free.

kube-scheduler puts a pod that was refused aside until something happens that it knows to matter, or
five minutes have passed. It cannot know that a card became free, and where a pod's end does wake the
waiting ones, it may ask us before we have seen that end. So whenever a node has more to give, each
waiting pod that fits there now is touched: a condition in its status is an update of the pod, which
makes kube-scheduler try it again at once (since Kubernetes 1.32; QueueingHints, and "Extender" as a
rejecting plugin is woken by every event). Only pods/status is written, which kube-scheduler's own
service account may do anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from extender.api import ApiError, KubeApi, NoAnswer
from extender.facts import PodFact
from extender.view import ClusterView
from gpushare.pods import PodRef
from gpushare.request import PodRequest

log = logging.getLogger(__name__)

CONDITION = "SliceFreed"
# So many are woken at once; the others follow as long as there is still room for them. A thousand
# waiting pods must not become a thousand calls because one small slice was freed.
_BATCH = 32
_PAUSE = 0.25
# A pod is not woken again within this time, in seconds, unless it was refused meanwhile.
_PATIENCE = 2.0


@dataclass(slots=True)
class Waiter:
    """A pod that waits. ``since`` and the others are the clock's; ``refused`` is 0 until we said no."""

    ref: PodRef
    request: PodRequest
    priority: int
    created: float
    since: float
    refused: float = 0.0
    woken: float = 0.0


class Waiting:
    """All unbound pods that ask for our resources, in the order in which they would be served."""

    def __init__(self, view: ClusterView, wake: Callable[[Waiter, str], Awaitable[None]]) -> None:
        self.view = view
        self.pods: dict[str, Waiter] = {}
        self._wake = wake
        self._nodes: dict[str, None] = {}
        self._stir = asyncio.Event()
        view.on_pod.append(self._pod_changed)
        view.on_room.append(self._room)

    def refused(self, ref: PodRef, request: PodRequest, priority: int, created: float) -> None:
        """The filter said no to this pod on every node it was asked about."""
        waiter = self.pods.get(ref.uid)
        if waiter is None:
            if ref.uid in self.view.ledger.slices:
                return
            waiter = self._add(ref, request, priority, created)
        waiter.refused = self.view.clock.now()

    def queue(self) -> list[Waiter]:
        """By priority, then by age: the order of kube-scheduler's own queue."""
        return sorted(self.pods.values(), key=lambda w: (-w.priority, w.created, w.ref.uid))

    async def run(self) -> None:
        """Wake pods as room appears, until cancelled."""
        while True:
            await self._stir.wait()
            self._stir.clear()
            nodes, self._nodes = list(self._nodes), {}
            batch = list(self._fitting(nodes))
            for waiter, node in batch[:_BATCH]:
                waiter.woken = self.view.clock.now()
                await self._wake(waiter, node)
            if len(batch) > _BATCH:
                await asyncio.sleep(_PAUSE)
                self._nodes.update(dict.fromkeys(nodes))
                self._stir.set()

    def resume(self) -> None:
        """The first lists are read: pods may have been refused, and cards freed, before our time."""
        now = self.view.clock.now()
        for waiter in self.pods.values():
            waiter.refused = now
        self._nodes = dict.fromkeys(self.view.node_names())
        self._stir.set()

    def _fitting(self, nodes: list[str]) -> Iterator[tuple[Waiter, str]]:
        """Refused pods that would fit now, and where. Many waiting pods ask for the same."""
        now = self.view.clock.now()
        known: dict[PodRequest, str] = {}
        for waiter in self.queue():
            patient = waiter.woken > waiter.refused and now - waiter.woken < _PATIENCE
            if not waiter.refused or patient:
                continue
            if waiter.request not in known:
                known[waiter.request] = self.view.first_fit(nodes, waiter.request)
            if known[waiter.request]:
                yield waiter, known[waiter.request]

    def _room(self, node: str) -> None:
        self._nodes[node] = None
        self._stir.set()

    def _pod_changed(self, uid: str, fact: PodFact | None) -> None:
        if fact is None or fact.gated or fact.deleting:
            self.pods.pop(uid, None)
            return
        if not fact.request:
            return
        if uid not in self.pods:
            self._add(fact.ref, fact.request, fact.priority, fact.created)

    def _add(self, ref: PodRef, request: PodRequest, priority: int, created: float) -> Waiter:
        waiter = Waiter(ref, request, priority, created, self.view.clock.now())
        self.pods[ref.uid] = waiter
        return waiter


class Waker:
    """Touches pods through the API."""

    def __init__(self, api: KubeApi, prefix: str) -> None:
        self._api = api
        self._type = f"{prefix}/{CONDITION}"
        self.woken = 0

    async def __call__(self, waiter: Waiter, node: str) -> None:
        path = f"/api/v1/namespaces/{waiter.ref.namespace}/pods/{waiter.ref.name}/status"
        try:
            await self._api.strategic_patch(path, self._body(waiter.ref, node))
            self.woken += 1
        except ApiError as error:
            if error.status not in (404, 409):
                log.warning("pod %s cannot be woken: %s", waiter.ref, error)
        except NoAnswer as error:
            log.warning("pod %s cannot be woken: %s", waiter.ref, error)

    def _body(self, ref: PodRef, node: str) -> dict[str, Any]:
        now = datetime.now(UTC)
        condition = {
            "type": self._type,
            "status": "True",
            "reason": "SliceFreed",
            "message": f"a slice of this size became free on node {node}",
            "lastProbeTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {"metadata": {"uid": ref.uid}, "status": {"conditions": [condition]}}
