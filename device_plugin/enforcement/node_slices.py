"""The slices on this node, from what the plugin knows: records of started containers, and pods. Pure.

A record is the plugin's own word: the placement was verified when the container started. A pod that
is bound here and has not started lays claim to its cards by its placement alone, which is read with
the same care as there; it makes others give back what they borrowed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from device_plugin.enforcement.slices import Slice
from gpushare.names import Names
from gpushare.placement import Placement, Share, decode
from gpushare.pods import PodRef, annotation, is_finished, node_name, pod_ref

Pod = Mapping[str, Any]


class Started(Protocol):
    """A container that was let start: what the plugin recorded of it."""

    @property
    def uid(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def pod(self) -> str: ...
    @property
    def container(self) -> str: ...
    @property
    def footprint(self) -> Mapping[str, tuple[int, int]]:
        """(MiB, per cent) that the whole pod holds of each card."""


class NodeSlices:
    """Reads slices out of records and pods; what did not change is not read again."""

    def __init__(self, node: str, names: Names) -> None:
        self._node, self._names = node, names
        self._read: dict[str, tuple[object, object, Slice | None]] = {}

    def slices(self, started: Iterable[Started], pods: Mapping[str, Pod]) -> dict[str, Slice]:
        """All slices by pod uid. ``pods`` are those that the API server last told of, by uid.

        Records and pods are values: one that differs is another object.
        """
        records = {record.uid: record for record in started}
        found: dict[str, Slice] = {}
        for uid in records.keys() | pods.keys():
            record, pod = records.get(uid), pods.get(uid)
            known = self._read.get(uid)
            if known is None or known[0] is not record or known[1] is not pod:
                known = self._read[uid] = (record, pod, self._slice(record, pod))
            if known[2] is not None:
                found[uid] = known[2]
        for uid in self._read.keys() - records.keys() - pods.keys():
            del self._read[uid]
        return found

    def _slice(self, record: Started | None, pod: Pod | None) -> Slice | None:
        if record is not None:
            ref = PodRef(record.namespace, record.pod, record.uid)
            return _slice(ref, pod or {}, record.footprint, self._names, started=True)
        if pod is None or is_finished(pod):
            return None
        placement = _placement(pod, self._node, self._names)
        if placement is None:
            return None
        return _slice(pod_ref(pod), pod, placement.footprint(), self._names, started=False)


def _slice(
    ref: PodRef, pod: Pod, footprint: Mapping[str, tuple[int, int]], names: Names, *, started: bool
) -> Slice:
    return Slice(
        ref,
        dict(footprint),
        _shares(pod, names),
        _container_ids(pod),
        _annotations(pod),
        started,
        _user(pod),
    )


def _placement(pod: Pod, node: str, names: Names) -> Placement | None:
    text = annotation(pod, names.placement)
    if text is None or node_name(pod) != node:
        return None
    try:
        placement = decode(text)
        uid = pod_ref(pod).uid
    except ValueError:
        return None
    return placement if (placement.uid, placement.node) == (uid, node) else None


def _shares(pod: Pod, names: Names) -> dict[str, tuple[Share, ...]]:
    try:
        placement = decode(annotation(pod, names.placement) or "")
    except ValueError:
        return {}
    return {c.name: c.shares for c in placement.containers}


def _container_ids(pod: Pod) -> dict[str, str]:
    """The runtime's ids of the containers that run or ran last: 'containerd://ID' in the status."""
    found = {}
    status = _mapping(pod.get("status"))
    for key in ("initContainerStatuses", "containerStatuses"):
        for entry in _list(status.get(key)):
            _, _, identity = str(entry.get("containerID") or "").rpartition("//")
            if identity:
                found[identity] = str(entry.get("name"))
    return found


def _annotations(pod: Pod) -> dict[str, str]:
    annotations = _mapping(_mapping(pod.get("metadata")).get("annotations"))
    return {str(k): v for k, v in annotations.items() if isinstance(v, str)}


def _user(pod: Pod) -> int | None:
    """The uid that all containers run as by the pod's own word; None where it does not say."""
    spec = _mapping(pod.get("spec"))
    of_pod = _mapping(spec.get("securityContext")).get("runAsUser")
    users = {
        _mapping(c.get("securityContext")).get("runAsUser", of_pod)
        for c in _list(spec.get("containers"))
    }
    user = users.pop() if len(users) == 1 else None
    return user if isinstance(user, int) and not isinstance(user, bool) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
