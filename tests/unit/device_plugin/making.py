"""Short ways to say what a test is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from device_plugin.physical_card import PhysicalCard
from device_plugin.verification import Node
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share, encode
from gpushare.request import Role
from gpushare.units import GIB

NAMES = Names()
MEM, PERCENT = NAMES.gpu_mem, NAMES.gpu_percent
NODE = "t4-1"
T4_0 = Card("GPU-aaaa", 0, 0, "Tesla T4", 15360)
T4_1 = Card("GPU-bbbb", 1, 1, "Tesla T4", 15360)
A10 = Card("GPU-cccc", 2, 3, "NVIDIA A10", 23028)


def node(*cards: Card, problem: str = "") -> Node:
    return Node(NODE, NAMES, GIB, {card.uuid: card for card in cards or (T4_0, T4_1)}, problem)


def physical(card: Card, problem: str = "") -> PhysicalCard:
    return PhysicalCard(card.uuid, card.index, card.minor, card.model, card.memory, problem=problem)


def app(name: str, *shares: Share, role: Role = Role.APP) -> ContainerPlacement:
    return ContainerPlacement(name, role, shares)


def container(name: str, mem: object = None, percent: object = None, **more: Any) -> dict[str, Any]:
    limits = {MEM: mem, PERCENT: percent}
    wanted = {key: str(value) for key, value in limits.items() if value is not None}
    return {"name": name, "resources": {"limits": wanted}, **more}


def pod(
    *containers: Mapping[str, Any],
    placed: Sequence[ContainerPlacement] | None = None,
    name: str = "alice",
    uid: str = "uid-alice",
    inits: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    placement_uid: str | None = None,
    on: str = NODE,
) -> dict[str, Any]:
    """A v1.Pod; with ``placed``, its placement is in its annotation."""
    marks = dict(annotations or {})
    if placed is not None:
        marks[NAMES.placement] = encode(Placement(placement_uid or uid, on, tuple(placed)))
    return {
        "metadata": {
            "namespace": "jupyter",
            "name": name,
            "uid": uid,
            "resourceVersion": "1",
            "annotations": marks,
        },
        "spec": {
            "nodeName": NODE,
            "containers": list(containers),
            "initContainers": list(inits),
        },
        "status": dict(status or {"phase": "Pending"}),
    }
