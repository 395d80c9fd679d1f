"""Pods placed and bound by hand, and what a node says of its cards: for tests of the node half."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes import client, watch

from gpushare.cards import Card, decode
from gpushare.placement import ContainerPlacement, Placement, Share, encode
from gpushare.visibility import visible_annotations
from playground.cluster import Cluster
from tests.cluster.identities import acting_as, service_account
from tests.cluster.pods import NAMES, Pods
from tests.cluster.processes import NAMESPACE

NODE = "t4-1"
ON_NODE = {"kubernetes.io/hostname": NODE}
_BY_HAND = "nobody-binds-these"


class Binder:
    """Places and binds pods in the scheduler's name, so that a test can choose the cards."""

    def __init__(self, api: client.ApiClient, pods: Pods) -> None:
        account = service_account(NAMESPACE, "gpushare-user-scheduler")
        self._core = client.CoreV1Api(acting_as(api, account))
        self._pods = pods
        annotations = client.CoreV1Api(api).read_node(NODE).metadata.annotations
        self.cards: tuple[Card, ...] = decode(annotations[NAMES.cards]).cards

    def bind(self, manifest: dict[str, Any], *placed: ContainerPlacement) -> str:
        """Create the pod and bind it to the node with this placement; the answer is its name."""
        manifest["spec"]["schedulerName"] = _BY_HAND
        name = self._pods.create(manifest)
        uid = self._pods.read(name).metadata.uid
        placement = Placement(uid, NODE, placed)
        marks = {NAMES.placement: encode(placement), **visible_annotations(placement, NAMES)}
        binding = {
            "metadata": {"name": name, "uid": uid, "annotations": marks},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        # Raw: the client cannot read the answer to a binding.
        self._core.create_namespaced_pod_binding(
            name, self._pods.namespace, binding, _preload_content=False
        )
        return name

    def share(self, card: int, gib: int, percent: int = 0) -> Share:
        """``gib`` GiB of the card with this index."""
        return Share(self.cards[card].uuid, gib * 1024, percent)


def await_node(
    api: client.ApiClient, what: str, holds: Callable[[client.V1Node], bool], timeout: float = 60
) -> client.V1Node:
    """The node once ``holds`` is true of it."""
    stream = watch.Watch().stream(
        client.CoreV1Api(api).list_node,
        field_selector=f"metadata.name={NODE}",
        timeout_seconds=int(timeout),
    )
    for event in stream:
        if holds(event["object"]):
            return event["object"]
    raise AssertionError(f"{NODE}: not {what} after {timeout:.0f} s")


def healths(node: client.V1Node) -> list[str]:
    """The health of each card, as the node publishes it."""
    return [card.health for card in decode(node.metadata.annotations[NAMES.cards]).cards]


def allocatable(node: client.V1Node) -> tuple[int, int]:
    """What the kubelet says it could give: units of memory, per cent."""
    have = node.status.allocatable
    return int(have.get(NAMES.gpu_mem, 0)), int(have.get(NAMES.gpu_percent, 0))


def slice_specs() -> set[Path]:
    """The CDI specs of slices on the node."""
    return set((Cluster().cards_root(NODE) / "cdi").glob("gpushare-slice-*"))


def kubelet_folder() -> Path:
    """The node's /var/lib/kubelet, as this machine sees it."""
    return Cluster().folders.node(NODE) / "kubelet"
