"""What the checks look at: objects of the cluster as they are, and a few questions about them.

Pure: gathering is the business of ``gather``. Objects are the API's JSON. What could not be read
stands in ``missing`` with the reason, so that a check is never taken for passed that saw nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpushare.names import DEFAULT_PREFIX, SCHEDULER_NAME, Names
from gpushare.pods import is_finished

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hub:
    """A JupyterHub in the cluster, as far as can be seen: the Zero to JupyterHub chart keeps its
    values in a Secret."""

    namespace: str
    account: str
    config: Object = field(default_factory=dict)
    failure_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Right:
    """Something that one of our accounts must be allowed to do."""

    user: str
    verb: str
    resource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        what = self.path or "/".join(part for part in (self.group, self.resource) if part)
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {what}{where}"


@dataclass(frozen=True)
class Facts:
    """A cluster at one moment. Times are seconds since 1970, by the API server's clock."""

    namespace: str
    now: float
    version: str = ""
    nodes: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    daemonsets: tuple[Object, ...] = ()
    deployments: tuple[Object, ...] = ()
    leases: Mapping[str, Object] = field(default_factory=dict)
    feature_gates: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    extender: Object = field(default_factory=dict)
    agent: Object = field(default_factory=dict)
    scheduler: Object = field(default_factory=dict)
    webhooks: tuple[Object, ...] = ()
    policies: tuple[Object, ...] = ()
    bindings: tuple[Object, ...] = ()
    certificates: Mapping[str, str] = field(default_factory=dict)
    state: Object = field(default_factory=dict)
    rights: Mapping[Right, bool] = field(default_factory=dict)
    hubs: tuple[Hub, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> Names:
        """The names under the extender's prefix, and in the dialects that it speaks."""
        return names_of(self.extender)

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Under which names our scheduler takes pods."""
        profiles = self.scheduler.get("profiles") or []
        found = tuple(str(one["schedulerName"]) for one in profiles if one.get("schedulerName"))
        if found:
            return found
        # The cluster's own scheduler asks: its configuration is not among our objects.
        outside = "default-scheduler" if self.extender.get("verbs_tls_address") else SCHEDULER_NAME
        return (str(self.extender.get("scheduler_name") or outside),)

    def asking(self) -> Iterator[Object]:
        """Pods, not finished, that ask for a slice."""
        for pod in self.pods:
            if not is_finished(pod) and asks(pod, self.names):
                yield pod

    def agents(self) -> dict[str, Object]:
        """Our device plugin's pods by node."""
        return {
            pod["spec"].get("nodeName", ""): pod
            for pod in self.pods
            if ours(pod, "device-plugin", self.namespace)
        }

    def agent_set(self) -> Object | None:
        """Our device plugin's DaemonSet."""
        found = (d for d in self.daemonsets if ours(d, "device-plugin", self.namespace))
        return next(found, None)

    def sharing(self) -> list[Object]:
        """Nodes on which our device plugin runs, or that offer our resources."""
        on = self.agents()
        return [
            node
            for node in self.nodes
            if name(node) in on or any(offers(node, r) for r in self.names.resources)
        ]


def name(one: Object) -> str:
    """The object's name; with the namespace where it has one."""
    metadata = one["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def labels(one: Object) -> Mapping[str, str]:
    """The object's labels."""
    return one["metadata"].get("labels") or {}


def notes(one: Object) -> Mapping[str, str]:
    """The object's annotations."""
    return one["metadata"].get("annotations") or {}


def ours(one: Object, component: str, namespace: str) -> bool:
    """Whether the chart made it, as a part of ``component``."""
    has = labels(one)
    return (
        one["metadata"].get("namespace") == namespace
        and has.get("app.kubernetes.io/name") == "gpushare"
        and has.get("app.kubernetes.io/component") == component
    )


def containers(pod: Object) -> Iterator[Object]:
    """All containers of a pod, init containers too."""
    yield from pod["spec"].get("initContainers") or []
    yield from pod["spec"].get("containers") or []


def names_of(extender: Object) -> Names:
    """The names that an extender with these settings goes by; ours where they are none."""
    try:
        return Names(
            str(extender.get("prefix") or DEFAULT_PREFIX),
            tuple(str(one) for one in extender.get("dialects") or ()),
        )
    except ValueError:
        return Names()


def asks(pod: Object, names: Names) -> bool:
    """Whether any container asks for a slice."""
    return any(
        resource in ((container.get("resources") or {}).get("limits") or {})
        for container in containers(pod)
        for resource in names.all_resources
    )


def offers(node: Object, resource: str) -> int:
    """How much of ``resource`` the kubelet offers."""
    amount = ((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")
    return int(amount) if str(amount).isdecimal() else 0


def condition(one: Object, kind: str) -> str:
    """'True', 'False', 'Unknown', or '' where there is no such condition."""
    conditions = (one.get("status") or {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c.get("type") == kind), "")
