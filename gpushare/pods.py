"""The few facts about a pod that the ledger turns on, read from its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class PodRef:
    """Which pod. The uid is its identity: names come back, uids never do."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_ref(pod: Mapping[str, Any]) -> PodRef:
    """The pod's identity. Raises ValueError where the API would never have answered so."""
    metadata = pod.get("metadata")
    if not isinstance(metadata, Mapping):
        raise ValueError("the pod has no metadata")
    values = [metadata.get(key) for key in ("namespace", "name", "uid")]
    if not all(isinstance(value, str) and value for value in values):
        raise ValueError("the pod's metadata lacks namespace, name or uid")
    return PodRef(*(str(value) for value in values))


def node_name(pod: Mapping[str, Any]) -> str:
    """The node that the pod is bound to, or ''."""
    spec = pod.get("spec")
    name = spec.get("nodeName") if isinstance(spec, Mapping) else None
    return name if isinstance(name, str) else ""


def annotation(obj: Mapping[str, Any], key: str) -> str | None:
    """One annotation of any object."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    value = annotations.get(key) if isinstance(annotations, Mapping) else None
    return value if isinstance(value, str) else None


def bound_at(pod: Mapping[str, Any]) -> float:
    """When the pod was bound, in seconds since the epoch; 0 where its status does not say."""
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    for condition in conditions if isinstance(conditions, list) else ():
        if not isinstance(condition, Mapping) or condition.get("type") != "PodScheduled":
            continue
        if condition.get("status") == "True":
            return _time(condition.get("lastTransitionTime"))
    return 0.0


def _time(value: object) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp() if value else 0.0
    except (ValueError, OverflowError):
        return 0.0


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of the pod have ended for good.

    A deletionTimestamp alone says nothing: the containers run on through the grace period.
    """
    status = pod.get("status")
    return isinstance(status, Mapping) and status.get("phase") in ("Succeeded", "Failed")
