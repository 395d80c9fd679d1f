"""Who holds which ids, as the kubelet tells it in its two ways. Pure.

The pod resources API is the published way; it names pods, without uids, and leaves plain init
containers out. The kubelet's checkpoint of its device manager has every container with its pod's
uid, and is the kubelet's own business. Each can stand in for the other, together they are exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Ids = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Holder:
    """One container and its ids by resource. Either uid, or namespace and name may be ''."""

    container: str
    ids: Ids
    namespace: str = ""
    name: str = ""
    uid: str = ""

    def holds(self, resource: str, ids: frozenset[str]) -> bool:
        """Whether these are exactly the ids that it has of ``resource``."""
        return self.ids.get(resource) == ids


class _Devices(Protocol):
    resource_name: str
    device_ids: Iterable[str]


def from_pod_resources(pods: Iterable[Any], resources: Iterable[str]) -> list[Holder]:
    """The holders in a podresources answer (v1.PodResources messages).

    A container's ids of one resource come in any number of entries.
    """
    wanted = frozenset(resources)
    holders = []
    for pod in pods:
        for container in pod.containers:
            ids = _joined(container.devices, wanted)
            if ids:
                holders.append(Holder(container.name, ids, pod.namespace, pod.name))
    return holders


def _joined(devices: Iterable[_Devices], wanted: frozenset[str]) -> dict[str, frozenset[str]]:
    joined: dict[str, set[str]] = {}
    for entry in devices:
        if entry.resource_name in wanted:
            joined.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: frozenset(ids) for resource, ids in joined.items() if ids}


def claims(
    devices: Iterable[_Devices], cards: Iterable[str], ours: Collection[str]
) -> dict[str, str]:
    """Which of ``cards`` (uuids) another plugin offers as well, and as which resource.

    NVIDIA's plugin names its devices by uuid, shared ones by uuid and '::' and a number.
    """
    offered = [
        (id.partition("::")[0], entry.resource_name)
        for entry in devices
        if entry.resource_name not in ours
        for id in entry.device_ids
    ]
    wanted = set(cards)
    return {uuid: resource for uuid, resource in offered if uuid in wanted}


_OURS = re.compile(r"[mp]\d+")


def offered_by_others(devices: Iterable[_Devices], resources: Collection[str]) -> frozenset[str]:
    """Which of ``resources`` have ids, and none that is one of ours.

    Pods of another system may go on holding its ids under a name that has come to us, so one of our
    own among them says that it has.
    """
    found = {
        r: [id for e in devices if e.resource_name == r for id in e.device_ids] for r in resources
    }
    return frozenset(r for r, ids in found.items() if ids and not any(map(_OURS.fullmatch, ids)))


def from_checkpoint(text: str | bytes, resources: Iterable[str]) -> list[Holder]:
    """The holders in the kubelet's checkpoint. Raises ValueError where it is none.

    Shape (kubelet 1.20 to 1.36): Data.PodDeviceEntries is a list of PodUID, ContainerName,
    ResourceName and DeviceIDs, which maps a NUMA node to ids; before 1.20 DeviceIDs was a list.
    """
    wanted = frozenset(resources)
    joined: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
    for entry in _entries(text):
        if not isinstance(entry, Mapping) or entry.get("ResourceName") not in wanted:
            continue
        uid, container = entry.get("PodUID"), entry.get("ContainerName")
        ids = _flat(entry.get("DeviceIDs"))
        if isinstance(uid, str) and isinstance(container, str) and ids:
            joined.setdefault((uid, container), {})[str(entry["ResourceName"])] = ids
    return [Holder(container, ids, uid=uid) for (uid, container), ids in joined.items()]


def _entries(text: str | bytes) -> list[object]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    data = data.get("Data") if isinstance(data, Mapping) else None
    entries = data.get("PodDeviceEntries") if isinstance(data, Mapping) else None
    if entries is None and isinstance(data, Mapping):
        return []  # a node that never granted anything
    if not isinstance(entries, list):
        raise ValueError("it has no list Data.PodDeviceEntries")
    return entries


def _flat(ids: object) -> frozenset[str]:
    lists = ids.values() if isinstance(ids, Mapping) else [ids]
    return frozenset(
        id for part in lists if isinstance(part, list) for id in part if isinstance(id, str)
    )
