"""What the node keeps of a pod: enough to verify and restart its containers, and no secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpushare.names import Names
from gpushare.visibility import VARIABLE, VOID

_CONTAINER_LISTS = ("initContainers", "containers")


def essence(pod: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """The parts of a v1.Pod (as JSON) that this program reads; small, and without values of env."""
    metadata, spec = _mapping(pod.get("metadata")), _mapping(pod.get("spec"))
    status = _mapping(pod.get("status"))
    kept = {key: metadata[key] for key in ("namespace", "name", "uid") if key in metadata}
    annotations = {
        key: value
        for key, value in _mapping(metadata.get("annotations")).items()
        if key.startswith((f"{names.prefix}/", names.visible("")))
        or any(dialect.protects(key) for dialect in names.spoken)
    }
    return {
        "metadata": {**kept, "annotations": annotations},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            "securityContext": _user(spec),
            **{key: [_container(c) for c in _list(spec.get(key))] for key in _CONTAINER_LISTS},
        },
        "status": {
            "phase": status.get("phase", ""),
            "conditions": [
                {key: c.get(key) for key in ("type", "status", "lastTransitionTime")}
                for c in _list(status.get("conditions"))
                if c.get("type") == "PodScheduled"
            ],
            **{
                key: [_container_status(s) for s in _list(status.get(key))]
                for key in ("initContainerStatuses", "containerStatuses")
            },
        },
    }


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        key: container[key] for key in ("name", "resources", "restartPolicy") if key in container
    }
    return {
        **kept,
        "env": [_variable(e) for e in _list(container.get("env"))],
        "securityContext": _user(container),
    }


def _variable(entry: Mapping[str, Any]) -> dict[str, Any]:
    # Only the name: what the container sets itself is not overwritten with our hints. And of the
    # one that shows cards, where it comes from.
    kept = {"name": entry.get("name")}
    if entry.get("name") == VARIABLE:
        field = _mapping(_mapping(entry.get("valueFrom")).get("fieldRef"))
        kept["source"] = str(field.get("fieldPath") or "")
        if entry.get("value") == VOID:
            kept["source"] = VOID
    return kept


def visible_source(pod: Mapping[str, Any], container: str) -> str:
    """Where the container's NVIDIA_VISIBLE_DEVICES comes from: the path of a field, or 'void' itself;
    '' for all else.

    Of two variables of one name the kubelet takes the last.
    """
    for key in _CONTAINER_LISTS:
        for entry in _list(_mapping(pod.get("spec")).get(key)):
            if entry.get("name") == container:
                own = [e for e in _list(entry.get("env")) if e.get("name") == VARIABLE]
                return str(own[-1].get("source") or "") if own else ""
    return ""


def _user(entry: Mapping[str, Any]) -> dict[str, Any]:
    context = _mapping(entry.get("securityContext"))
    return {"runAsUser": context["runAsUser"]} if "runAsUser" in context else {}


def _container_status(status: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": status.get("name"),
        "containerID": status.get("containerID", ""),
        "state": _state(status),
    }


def _state(status: Mapping[str, Any]) -> dict[str, Any]:
    state = _mapping(status.get("state"))
    if "terminated" in state:
        return {"terminated": {"exitCode": _mapping(state["terminated"]).get("exitCode")}}
    return {key: {} for key in ("running", "waiting") if key in state}


def env_names(pod: Mapping[str, Any], container: str) -> frozenset[str]:
    """The variables that the container's own spec sets."""
    for key in _CONTAINER_LISTS:
        for entry in _list(_mapping(pod.get("spec")).get(key)):
            if entry.get("name") == container:
                return frozenset(str(e.get("name")) for e in _list(entry.get("env")))
    return frozenset()


def init_state(pod: Mapping[str, Any], container: str) -> tuple[str, int | None]:
    """What the API server knows of an init container: (state, exit code); ('', None) if nothing."""
    for status in _list(_mapping(pod.get("status")).get("initContainerStatuses")):
        if status.get("name") == container:
            for name, detail in _mapping(status.get("state")).items():
                code = _mapping(detail).get("exitCode")
                return name, code if isinstance(code, int) else None
    return "", None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
