"""Which cards a container sees, for nodes whose container runtime knows no CDI.

There the only word that reaches a container is its environment, and the kubelet makes that before
anybody on the node is asked. So the cards stand in an annotation beside the placement, written with
the same Binding, and a variable of the container takes its value from there (the downward API).
The device plugin compares it with the placement before each start. Where the runtime knows CDI, the
variable is replaced, and all of this has no effect.
"""

from __future__ import annotations

from typing import Any

from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"  # no card of NVIDIA's runtime: they come by other means, or not at all


def cards_seen(placed: ContainerPlacement) -> str:
    """The value: the uuids of the container's cards, in the order of its shares."""
    return ",".join(share.card for share in placed.shares)


def visible_annotations(placement: Placement, names: Names) -> dict[str, str]:
    """The annotations of a placed pod, one for each container that has cards."""
    return {names.visible(c.name): cards_seen(c) for c in placement.containers}


def field_path(names: Names, container: str) -> str:
    """Where the variable's value comes from."""
    return f"metadata.annotations['{names.visible(container)}']"


def visible_variable(names: Names, container: str) -> dict[str, Any]:
    """The variable (a v1.EnvVar) that a container with a slice needs."""
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": field_path(names, container)}}
    return {"name": VARIABLE, "valueFrom": source}
