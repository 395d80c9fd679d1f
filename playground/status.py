"""The state of a playground, read from its processes and its API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from playground.api import ApiError
from playground.bootstrap import node_problem
from playground.control_plane import APISERVER
from playground.processes import Component, Processes

if TYPE_CHECKING:
    from playground.cluster import Cluster

RUNNING = "running"
NOT_READY = "not ready"
ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One component. ``problem`` and ``log`` (its last lines) are there when it is not running."""

    name: str
    state: str
    pid: int | None = None
    seconds: float | None = None  # since it was started
    problem: str | None = None
    log_file: str | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeStatus:
    name: str
    ready: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A whole playground. ``up``: whether there is one at all."""

    name: str
    up: bool
    simulated: bool = False
    server: str | None = None
    kubeconfig: str | None = None
    components: tuple[ComponentStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()

    @property
    def healthy(self) -> bool:
        components = all(c.state == RUNNING for c in self.components)
        return self.up and components and all(n.ready for n in self.nodes)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "healthy": self.healthy}


def read_status(cluster: Cluster) -> Status:
    """Look at every component and node of ``cluster``."""
    if cluster.description is None:
        return Status(cluster.name, up=False)
    with ThreadPoolExecutor() as pool:  # one that hangs must not make the others wait
        components = tuple(
            pool.map(lambda c: _component(cluster.processes, c), cluster.components())
        )
    api_ready = any(c.name == APISERVER and c.state == RUNNING for c in components)
    return Status(
        name=cluster.name,
        up=True,
        simulated=cluster.simulated,
        server=cluster.plan.apiserver,
        kubeconfig=str(cluster.folders.kubeconfig),
        components=components,
        nodes=_nodes(cluster) if api_ready else _unknown(cluster, "the API server is not ready"),
    )


def _component(processes: Processes, component: Component) -> ComponentStatus:
    name = component.name
    log, pid = str(processes.log(name)), processes.pid(name)
    if pid is None:
        tail = tuple(processes.tail(name))
        return ComponentStatus(name, ENDED, problem="has ended", log_file=log, log=tail)
    seconds = processes.seconds(name)
    failure = component.ready.failure(pid)
    if failure:
        tail = tuple(processes.tail(name))
        return ComponentStatus(name, NOT_READY, pid, seconds, failure, log, tail)
    return ComponentStatus(name, RUNNING, pid, seconds, log_file=log)


def _nodes(cluster: Cluster) -> tuple[NodeStatus, ...]:
    try:
        listed = cluster.api().get("/api/v1/nodes")["items"]
    except (OSError, ValueError, ApiError) as error:
        return _unknown(cluster, str(error))
    problems = {node["metadata"]["name"]: node_problem(node) for node in listed}
    missing = {n.name: "it has not registered" for n in cluster.nodes if n.name not in problems}
    return tuple(
        NodeStatus(name, problem is None, problem)
        for name, problem in sorted({**problems, **missing}.items())
    )


def _unknown(cluster: Cluster, reason: str) -> tuple[NodeStatus, ...]:
    return tuple(NodeStatus(node.name, False, f"unknown: {reason}") for node in cluster.nodes)
