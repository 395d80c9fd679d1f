"""Nodes and pods as the API would show them, for tests."""

from __future__ import annotations

import itertools
from typing import Any

from gpushare import cards, placement
from gpushare.cards import Card, NodeCards
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.units import GIB, Unit

NAMES = Names()
Object = dict[str, Any]
_uids = itertools.count(1)


def t4(node: str, index: int, **changes: Any) -> Card:
    return Card(**{**_card(f"GPU-{node}-{index}", index, "Tesla T4", 15360), **changes})


def a10(node: str, index: int, **changes: Any) -> Card:
    return Card(**{**_card(f"GPU-{node}-{index}", index, "NVIDIA A10", 23028), **changes})


def _card(uuid: str, index: int, model: str, memory: int) -> dict[str, Any]:
    return {"uuid": uuid, "index": index, "minor": index, "model": model, "memory": memory}


def node(name: str, *its: Card, unit: Unit = GIB, offered: dict[str, str] | None = None) -> Object:
    """A node that publishes these cards, with a kubelet that offers all of them."""
    healthy = [card for card in its if card.healthy]
    allocatable = {
        NAMES.gpu_mem: str(sum(unit.units(card.memory) for card in healthy)),
        NAMES.gpu_percent: str(100 * len(healthy)),
    }
    annotations = {NAMES.cards: cards.encode(NodeCards(its, unit))} if its else {}
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": annotations},
        "spec": {},
        "status": {
            "allocatable": allocatable if offered is None else offered,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def container(name: str = "main", mem: int = 0, percent: int = 0, **more: Any) -> Object:
    limits = {NAMES.gpu_mem: str(mem), NAMES.gpu_percent: str(percent)}
    wanted = {key: value for key, value in limits.items() if value != "0"}
    return {"name": name, "resources": {"limits": wanted, "requests": wanted}, **more}


def pod(
    name: str,
    *containers: Object,
    mem: int = 0,
    percent: int = 0,
    init: list[Object] | None = None,
    annotations: dict[str, str] | None = None,
    namespace: str = "jupyter",
    uid: str = "",
    **spec: Any,
) -> Object:
    """A pending pod; with ``mem`` or ``percent`` it has one container that asks for it."""
    if mem or percent:
        containers = (container(mem=mem, percent=percent), *containers)
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{next(_uids)}",
            "annotations": dict(annotations or {}),
            "creationTimestamp": "2025-01-01T00:00:00Z",
        },
        "spec": {
            "schedulerName": "gpushare-user-scheduler",
            "containers": list(containers),
            "initContainers": init or [],
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def bound(obj: Object, to: str, placed: Placement | str | None) -> Object:
    """The pod, bound to a node, with that placement annotation (or text) or none."""
    obj["spec"]["nodeName"] = to
    if placed is not None:
        text = placed if isinstance(placed, str) else placement.encode(placed)
        obj["metadata"]["annotations"][NAMES.placement] = text
    return obj


def started(obj: Object) -> Object:
    """The pod, with all its containers running."""
    obj["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {"name": c["name"], "state": {"running": {}}} for c in obj["spec"]["containers"]
        ],
    }
    return obj


def finished(obj: Object, phase: str = "Succeeded") -> Object:
    obj["status"] = {
        "phase": phase,
        "containerStatuses": [
            {"name": c["name"], "state": {"terminated": {}}} for c in obj["spec"]["containers"]
        ],
    }
    return obj
