"""Simulated nodes: kwok answers for kubelets that do not exist, so pods are placed but never run.

For machines that can't run containers, and for tests with thousands of nodes.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpushare.cards import Card, NodeCards, encode
from gpushare.names import Names
from gpushare.units import GIB, Unit
from playground.addresses import KWOK_PORT, Addresses
from playground.api import Api
from playground.bootstrap import RBAC, await_default_account, await_nodes
from playground.certificates import CLUSTER_CA
from playground.folders import Folders
from playground.kwok_stages import stages
from playground.processes import Component
from playground.readiness import Http

if TYPE_CHECKING:
    from playground.cluster import Cluster

KWOK = "kwok"
MARK = "kwok.x-k8s.io/node"  # annotation, label (and taint) of the nodes that kwok answers for
_PATIENCE = 60.0  # seconds for nodes to get Ready
_RULES: Sequence[Mapping[str, Sequence[str]]] = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["get", "patch", "update"]},
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "patch", "update", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch", "update"]},
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "patch", "update", "delete"],
    },
)


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One simulated node. ``tainted`` keeps pods away that do not ask for simulated nodes."""

    name: str
    instance_type: str
    cards: tuple[Card, ...] = ()
    cpu: str = "32"
    memory: str = "256Gi"
    pods: int = 110
    tainted: bool = False
    unit: Unit = GIB

    def manifest(self, names: Names | None = None) -> dict[str, Any]:
        """The Node object, with the cards as the device plugin would publish them."""
        names = names or Names()
        published = NodeCards(self.cards, self.unit)
        annotations = {MARK: "fake"}
        resources = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        if self.cards:
            annotations[names.cards] = encode(published)
            units = sum(published.unit.units(card.memory) for card in self.cards)
            resources[names.gpu_mem] = str(units)
            resources[names.gpu_percent] = str(100 * len(self.cards))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "annotations": annotations,
                "labels": {
                    MARK: "fake",
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": self.instance_type,
                },
            },
            "spec": {
                "taints": [{"key": MARK, "value": "fake", "effect": "NoSchedule"}]
                if self.tainted
                else []
            },
            "status": {"allocatable": resources, "capacity": resources},
        }


class SimulatedBringUp:
    """One `up` of a playground without real nodes. ``started``: the components it had to start."""

    def __init__(self, cluster: Cluster, programs: Mapping[str, Path]) -> None:
        self.cluster = cluster
        self.programs = programs
        self.started: list[str] = []

    def run(self) -> None:
        """Everything is up and ready when this returns."""
        processes = self.cluster.processes
        etcd, apiserver, *clients = self.cluster.control_plane(self.programs)
        self._start(etcd, apiserver)
        processes.await_ready(etcd)
        processes.await_ready(apiserver)
        self._start(*clients)
        for component in clients:
            processes.await_ready(component)
        api = self.cluster.api()
        await_default_account(api, _PATIENCE)
        self.started += start_kwok(self.cluster)
        make_nodes(
            api, [_simulation_of(node.name, node.instance_type) for node in self.cluster.nodes]
        )

    def _start(self, *components: Component) -> None:
        for component in components:
            if self.cluster.processes.pid(component.name) is None:
                self.cluster.processes.start(component)
                self.started.append(component.name)


def start_kwok(cluster: Cluster) -> list[str]:
    """Start kwok beside a cluster that is up, simulated or not; returns what it had to start."""
    from playground import binaries

    processes = cluster.processes
    program = binaries.path(KWOK, cluster.say)
    component = kwok_component(cluster.plan, cluster.folders, {KWOK: program})
    _grant_rights(cluster.api())
    if processes.pid(KWOK) is not None:
        return []
    _stages_file(cluster.folders).write_text(stages())
    processes.start(component)
    processes.await_ready(component)
    return [KWOK]


def make_nodes(api: Api, nodes: Iterable[SimulatedNode]) -> list[str]:
    """Make the nodes that do not exist, and wait until all are Ready; returns their names."""
    manifests = [node.manifest() for node in nodes]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda manifest: api.ensure("/api/v1/nodes", manifest), manifests))
    names = [manifest["metadata"]["name"] for manifest in manifests]
    await_nodes(api, names, _PATIENCE + len(names) / 20)
    return names


def remove_nodes(api: Api) -> None:
    """Remove every simulated node."""
    api.delete(f"/api/v1/nodes?labelSelector={urllib.parse.quote(MARK)}")


def kwok_component(plan: Addresses, folders: Folders, programs: Mapping[str, Path]) -> Component:
    """kwok, which answers for the marked nodes and for no others."""
    address = f"{plan.host}:{KWOK_PORT}"
    flags = {
        "kubeconfig": folders.kubeconfig_of(KWOK),
        "config": _stages_file(folders),
        "manage-all-nodes": "false",
        "manage-nodes-with-annotation-selector": f"{MARK}=fake",
        # Leases, not node updates, as kubelets do: that is what makes thousands of nodes cheap.
        "node-lease-duration-seconds": "40",
        "server-address": address,
        "tls-cert-file": folders.certificates / f"{KWOK}.crt",
        "tls-private-key-file": folders.certificates / f"{KWOK}.key",
        "cidr": plan.simulated_pods,
        "node-ip": plan.host,
    }
    authority = folders.certificates / f"{CLUSTER_CA}.crt"
    own = (folders.certificates / f"{KWOK}.crt", folders.certificates / f"{KWOK}.key")
    return Component(
        name=KWOK,
        command=(str(programs[KWOK]), *(f"--{k}={v}" for k, v in flags.items())),
        ready=Http(f"https://{address}/healthz", (authority, *own)),
        environment={"HOME": str(folders.root)},
    )


def _stages_file(folders: Folders) -> Path:
    return folders.configuration / "kwok-stages.yaml"


def _simulation_of(name: str, instance_type: str) -> SimulatedNode:
    from playground import cards

    published = tuple(
        Card(uuid=c.uuid, index=i, minor=c.minor, model=c.name, memory=c.memory)
        for i, c in enumerate(cards.NODES.get(name, ()))
    )
    return SimulatedNode(name, instance_type, published)


def _grant_rights(api: Api) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "playground:kwok"},
        "rules": json.loads(json.dumps(_RULES)),
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "playground:kwok"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "playground:kwok",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "playground:kwok"}
        ],
    }
    api.ensure(f"{RBAC}/clusterroles", role)
    api.ensure(f"{RBAC}/clusterrolebindings", binding)
