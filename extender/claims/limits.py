"""The webhook's part: what a pod's claims ask for becomes its containers' limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpushare.dialects.claims import Claims, limits, named

Object = Mapping[str, Any]


def fill(pod: Object, namespace: str, claims: Claims) -> tuple[Object, list[dict[str, Any]]]:
    """The pod with the limits of its claims, and the JSON patch (RFC 6902) that makes it so.

    The same pod and no patch where it names no claims. Raises gpushare.reasons.Refusal.
    """
    if not named(pod):
        return pod, []
    wanted = limits(pod, namespace, claims)
    spec = dict(pod["spec"])
    patch: list[dict[str, Any]] = []
    for part in ("initContainers", "containers"):
        filled = []
        for place, container in enumerate(spec.get(part) or ()):
            more = wanted.get(str(container.get("name")))
            if more:
                resources = dict(container.get("resources") or {})
                for kind in ("limits", "requests"):
                    resources[kind] = {**(resources.get(kind) or {}), **more}
                container = {**container, "resources": resources}
                patch.append(
                    {"op": "add", "path": f"/spec/{part}/{place}/resources", "value": resources}
                )
            filled.append(container)
        if part in spec:
            spec[part] = filled
    return {**pod, "spec": spec}, patch
