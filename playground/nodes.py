"""Which nodes a playground has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its name, and the label `node.kubernetes.io/instance-type` that says its cards."""

    name: str
    instance_type: str


DEFAULT_NODES = (Node("t4-1", "t4"), Node("a10-1", "a10"))
