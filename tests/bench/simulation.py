"""A real control plane with simulated nodes, and counting what a real kube-scheduler binds on it."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kubernetes import client, config, watch

from gpushare.cards import Card
from playground.cluster import Cluster
from playground.simulated import SimulatedNode, make_nodes


@contextmanager
def control_plane() -> Iterator[Cluster]:
    """etcd, API server, controllers and kwok, without a node; gone at the end."""
    cluster = Cluster(f"bench-{uuid.uuid4().hex[:4]}")
    try:
        cluster.up(simulated=True)
        core = client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig())))
        core.delete_collection_node()
        yield cluster
    finally:
        cluster.down()


def t4_nodes(count: int, cards: int = 4) -> list[SimulatedNode]:
    """Nodes with T4s, every other one with A10s."""
    kinds = (("Tesla T4", 15360), ("NVIDIA A10", 23028))
    return [
        SimulatedNode(
            f"sim-{number:05d}",
            "bench",
            tuple(Card(f"GPU-{number:05d}-{i}", i, i, *kinds[number % 2]) for i in range(cards)),
            cpu="96",
        )
        for number in range(count)
    ]


def add_nodes(cluster: Cluster, nodes: Iterable[SimulatedNode]) -> None:
    make_nodes(cluster.api(), nodes)


class Bound:
    """Watches a namespace's pods, and when each was bound or refused."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.api = config.new_client_from_config(str(cluster.kubeconfig()))
        self.core = client.CoreV1Api(self.api)
        self.namespace = namespace
        self.at: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self._changed = threading.Condition()
        self._stop = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def await_bound(self, count: int, patience: float = 300) -> None:
        """Until so many pods are bound. Raises TimeoutError when nothing has happened for a while."""
        with self._changed:
            while len(self.at) < count:
                before = len(self.at)
                if not self._changed.wait(patience) and len(self.at) == before:
                    raise TimeoutError(f"{before} of {count} pods bound, no more in {patience} s")

    def await_outcome(self, name: str, patience: float = 120) -> bool:
        """True when the pod is bound, False when the scheduler found no place for it."""
        with self._changed:
            while name not in self.at and name not in self.refused:
                if not self._changed.wait(patience):
                    raise TimeoutError(f"pod {name}: no decision in {patience} s")
            return name in self.at

    def close(self) -> None:
        self._stop = True

    def _follow(self) -> None:
        list_pods = self.core.list_namespaced_pod
        version = None
        while not self._stop:
            stream = watch.Watch()
            more = {"resource_version": version} if version else {}
            for event in stream.stream(list_pods, self.namespace, timeout_seconds=30, **more):
                self._see(event["raw_object"])
                version = event["raw_object"]["metadata"]["resourceVersion"]
                if self._stop:
                    return

    def _see(self, pod: Mapping[str, Any]) -> None:
        name, now = pod["metadata"]["name"], time.perf_counter()
        conditions = pod.get("status", {}).get("conditions") or ()
        refused = any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)
        with self._changed:
            if pod["spec"].get("nodeName"):
                self.at.setdefault(name, now)
            elif refused:
                self.refused.setdefault(name, now)
            self._changed.notify_all()


def create_all(cluster: Cluster, namespace: str, pods: Iterable[Mapping[str, Any]]) -> None:
    api = cluster.api()
    with ThreadPoolExecutor(8) as together:
        path = f"/api/v1/namespaces/{namespace}/pods"
        list(together.map(lambda pod: api.create(path, json.loads(json.dumps(pod))), pods))
