"""What has become of a notebook's pod, read from its JSON: why it will not start, or what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Stage(Enum):
    """How far a pod has come that is not running yet."""

    UNSEEN = "the pod has not been seen"
    UNSCHEDULED = "no node has been found"
    STARTING = "its containers are being made"


def stage(pod: Mapping[str, Any] | None) -> Stage:
    if pod is None:
        return Stage.UNSEEN
    return Stage.STARTING if _mapping(pod.get("spec")).get("nodeName") else Stage.UNSCHEDULED


def node_of(pod: Mapping[str, Any] | None) -> str:
    """The node that was found, or ''."""
    return str(_mapping((pod or {}).get("spec")).get("nodeName") or "")


def rejection(pod: Mapping[str, Any] | None) -> str | None:
    """Why the pod has failed for good; None while it may still start.

    A kubelet that cannot admit a pod, for example because its device plugin is away, sets the
    phase to Failed and never tries again.
    """
    status = _mapping((pod or {}).get("status"))
    if status.get("phase") != "Failed":
        return None
    message = str(status.get("message") or "").strip()
    for container in _list(status.get("containerStatuses")):
        ended = _mapping(_mapping(container.get("state")).get("terminated"))
        if ended and not message:
            code = ended.get("exitCode")
            message = str(ended.get("message") or f"the notebook ended with code {code}").strip()
    return message or str(status.get("reason") or "Kubernetes gives no reason")


def obstacle(pod: Mapping[str, Any] | None) -> str:
    """What keeps the containers of a scheduled pod from running, in the kubelet's words; or ''."""
    status = _mapping((pod or {}).get("status"))
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in _list(status.get(key)):
            waiting = _mapping(_mapping(container.get("state")).get("waiting"))
            if waiting.get("message"):
                return str(waiting["message"]).strip()
    return ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
