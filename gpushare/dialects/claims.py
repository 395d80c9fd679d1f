"""Elastic GPU's claims: what a claim of a class asks for, and which claims a pod names. Pure.

A pod names a claim of its namespace for a container by an annotation; the webhook then writes what
the claim asks for into the container's limits. From there on the pod is like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpushare.dialects.dialect import refuse
from gpushare.quantity import parse_count

Object = Mapping[str, Any]

GROUP, VERSION = "elasticgpu.io", "v1alpha1"
NAMED_BY = "egpuc.elasticgpu.io/"
# Both names are used for it: the one of the documentation, and the older one of the examples.
PROVISIONERS = ("gpushare.provisioner.elasticgpu.io", "elasticgpu.io/gpushare")
RESOURCES = {"gpu-core": f"{GROUP}/gpu-core", "gpu-memory": f"{GROUP}/gpu-memory"}
DELETE, RETAIN = "Delete", "Retain"


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims by (namespace, name) and the classes by name, as the API has them."""

    claims: Mapping[tuple[str, str], Object]
    classes: Mapping[str, Object]


def named(pod: Object) -> dict[str, str]:
    """The claim that each container of the pod names."""
    annotations = _mapping(_mapping(pod.get("metadata")).get("annotations"))
    return {
        key.removeprefix(NAMED_BY): value
        for key, value in annotations.items()
        if key.startswith(NAMED_BY) and isinstance(value, str) and value
    }


def limits(pod: Object, namespace: str, known: Claims) -> dict[str, dict[str, str]]:
    """The limits that the pod's claims give its containers. Raises Refusal for what cannot be."""
    spec = _mapping(pod.get("spec"))
    containers = {
        str(_mapping(c).get("name")): _mapping(c)
        for part in ("initContainers", "containers")
        for c in spec.get(part) or ()
    }
    found: dict[str, dict[str, str]] = {}
    for container, claim in named(pod).items():
        if container not in containers:
            raise refuse(
                f"annotation {NAMED_BY}{container[:63]}: the pod has no such container",
                "name one of its containers",
            )
        if claim in list(named(pod).values())[: list(named(pod)).index(container)]:
            raise refuse(f"two containers name the claim {claim[:63]!r}", "give each its own")
        found[container] = asked(claim, known.claims.get((namespace, claim)), known.classes)
        _check_own(container, containers[container], found[container])
    return found


def asked(name: str, claim: Object | None, classes: Mapping[str, Object]) -> dict[str, str]:
    """What a claim asks for: its own requests, else what its class has. Raises Refusal."""
    if claim is None:
        raise refuse(f"there is no claim {name[:63]!r} in the pod's namespace", "create it first")
    if _mapping(claim.get("metadata")).get("deletionTimestamp"):
        raise refuse(f"the claim {name[:63]!r} is being deleted", "use another")
    spec = _mapping(claim.get("spec"))
    class_name = str(spec.get("elasticGPUClassName") or "")
    egpu_class = classes.get(class_name)
    if egpu_class is None:
        raise refuse(
            f"the claim {name[:63]!r} is of class {class_name[:63]!r}, which does not exist",
            "create the ElasticGPUClass",
        )
    if egpu_class.get("provisioner") not in PROVISIONERS:
        raise refuse(
            f"class {class_name[:63]!r} is of another provisioner than {PROVISIONERS[0]}",
            "use a class of this one",
        )
    parameters = _mapping(egpu_class.get("parameters"))
    resources = _mapping(spec.get("resources"))
    own = {**_mapping(resources.get("limits")), **_mapping(resources.get("requests"))}
    wanted = {}
    for short, resource in RESOURCES.items():
        text = own.get(resource, own.get(f"{PROVISIONERS[0]}/{short}", parameters.get(short)))
        count = _count(name, resource, text)
        if count:
            wanted[resource] = str(count)
    if not wanted:
        raise refuse(
            f"the claim {name[:63]!r} asks for nothing, and its class has no parameters",
            f"set spec.resources.requests of {RESOURCES['gpu-memory']}",
        )
    return wanted


def reclaim_policy(claim: Object | None, classes: Mapping[str, Object]) -> str:
    """What becomes of the slice's object when the pod is gone."""
    name = str(_mapping((claim or {}).get("spec")).get("elasticGPUClassName") or "")
    return RETAIN if _mapping(classes.get(name)).get("reclaimPolicy") == RETAIN else DELETE


def _count(claim: str, resource: str, text: object) -> int:
    try:
        return parse_count(text) if text is not None else 0
    except ValueError as error:
        raise refuse(f"claim {claim[:63]!r}, {resource}: {error}", "use a whole number") from None


def _check_own(name: str, container: Object, claimed: Mapping[str, str]) -> None:
    limits = _mapping(_mapping(container.get("resources")).get("limits"))
    for resource in RESOURCES.values():
        if resource in limits and str(limits[resource]) != claimed.get(resource):
            raise refuse(
                f"container {name[:63]!r} has {resource} of its own beside its claim",
                "leave it out of its limits",
            )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
