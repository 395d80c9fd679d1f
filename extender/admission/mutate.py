"""What the webhook changes in a pod, as JSON patch operations (RFC 6902). Pure.

A pod that asks for a slice is sent to our scheduler and given the tolerations and the RuntimeClass
that the cluster wants for it. Variables by which NVIDIA's container runtime and MPS are told what to
give are taken out of it: the slice says that, nobody else. Where a container fills its environment
from ConfigMaps or Secrets, which are not seen here, the variables are set, since an explicit one
beats those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpushare.names import Names
from gpushare.visibility import VARIABLE, visible_variable

Object = Mapping[str, Any]
Operation = dict[str, Any]

_MPS = "CUDA_MPS_"
# What MPS clients take where nothing is set (MPS documentation, "Environment Variables"). The memory
# limit has no such value; a client can only lower what the server gives it.
_MPS_USUAL = {
    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",  # noqa: S108 - MPS's own default
    "CUDA_MPS_LOG_DIRECTORY": "/var/log/nvidia-mps",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
}
_NOTHING_SEEN = {"name": VARIABLE, "value": "void"}
_USUAL_SCHEDULER = "default-scheduler"
# Other ways to ask for NVIDIA cards: such pods are somebody else's business.
_FOREIGN = ("nvidia.com/",)


class Delivery(StrEnum):
    """How cards reach a container: by CDI, or by a variable where the runtime has no CDI."""

    CDI = "cdi"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the cluster wants. Empty values change nothing.

    ``void_others``: pods that ask for no card are told that there is none, because the images of
    CUDA say NVIDIA_VISIBLE_DEVICES=all, which the nvidia runtime believes.
    """

    scheduler: str = ""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class: str = ""
    delivery: Delivery = Delivery.CDI
    void_others: bool = False


@dataclass(slots=True)
class Changes:
    """The patch, and what the person who makes the pod should know."""

    patch: list[Operation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def set(self, path: str, value: Any) -> None:
        # 'add' replaces what is there.
        self.patch.append({"op": "add", "path": path, "value": value})


def sharing(pod: Object, names: Names, wishes: Wishes) -> Changes:
    """For a pod that asks for a slice."""
    changes = Changes()
    spec = _mapping(pod.get("spec"))
    _scheduler(spec, wishes, changes)
    _tolerations(spec, wishes, changes)
    if wishes.runtime_class and spec.get("runtimeClassName") != wishes.runtime_class:
        changes.set("/spec/runtimeClassName", wishes.runtime_class)
    for path, container in _containers(spec):
        own = _asks(container, names.all_resources)
        env = _clean(container)
        if own and wishes.delivery is Delivery.ENVIRONMENT:
            env.append(visible_variable(names, str(container.get("name", ""))))
        elif (
            own
            or wishes.delivery is Delivery.ENVIRONMENT
            or wishes.void_others
            or _hidden(container)
        ):
            # With containerd CDI puts its own value over this one, where the container has a slice.
            # With CRI-O this one stands, and without it the image's would, which is often 'all'.
            env.append(dict(_NOTHING_SEEN))
        if _hidden(container):
            env += [{"name": name, "value": value} for name, value in _MPS_USUAL.items()]
        _env(path, container, env, changes)
    return changes


def others(pod: Object, names: Names, wishes: Wishes) -> Changes:
    """For a pod that asks for no slice."""
    changes = Changes()
    spec = _mapping(pod.get("spec"))
    if not wishes.void_others:
        return changes
    for path, container in _containers(spec):
        if _asks(container, _FOREIGN):
            continue
        env = [entry for entry in _entries(container) if entry.get("name") != VARIABLE]
        _env(path, container, [*env, dict(_NOTHING_SEEN)], changes)
    return changes


def _scheduler(spec: Object, wishes: Wishes, changes: Changes) -> None:
    named = str(spec.get("schedulerName") or _USUAL_SCHEDULER)
    if not wishes.scheduler or named == wishes.scheduler:
        return
    if named != _USUAL_SCHEDULER:
        changes.warnings.append(
            f"spec.schedulerName was {named[:63]!r}, which cannot place slices; "
            f"it is {wishes.scheduler!r} now"
        )
    changes.set("/spec/schedulerName", wishes.scheduler)


def _tolerations(spec: Object, wishes: Wishes, changes: Changes) -> None:
    have = [dict(entry) for entry in _list(spec.get("tolerations"))]
    missing = [dict(entry) for entry in wishes.tolerations if dict(entry) not in have]
    if missing:
        changes.set("/spec/tolerations", [*have, *missing])


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for part in ("initContainers", "containers"):
        for i, container in enumerate(_list(spec.get(part))):
            yield f"/spec/{part}/{i}", container


def _asks(container: Object, resources: Sequence[str]) -> bool:
    """Whether it has one of the resources; a name that ends in '/' stands for all under it."""
    limits = _mapping(_mapping(container.get("resources")).get("limits"))
    return any(
        key == name or (name.endswith("/") and key.startswith(name))
        for key in limits
        for name in resources
    )


def _clean(container: Object) -> list[dict[str, Any]]:
    """Its variables, without those that are not its to set."""
    return [
        entry
        for entry in _entries(container)
        if not (name := str(entry.get("name", ""))).startswith(_MPS) and name != VARIABLE
    ]


def _hidden(container: Object) -> bool:
    """Whether it has variables that are not seen here."""
    return bool(_list(container.get("envFrom")))


def _entries(container: Object) -> list[dict[str, Any]]:
    return [dict(entry) for entry in _list(container.get("env"))]


def _env(path: str, container: Object, env: list[dict[str, Any]], changes: Changes) -> None:
    if env != _entries(container):
        changes.set(f"{path}/env", env)


def _mapping(value: object) -> Object:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Object]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
