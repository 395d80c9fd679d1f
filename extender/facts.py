"""The few facts about nodes and pods that the extender keeps of the API's large objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpushare import cards, placement
from gpushare.budget import NONE, Amounts, amounts
from gpushare.dialects.claims import named
from gpushare.dialects.speech import Told, told
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.pods import PodRef, annotation, bound_at, is_finished, node_name, pod_ref
from gpushare.quantity import parse_count, parse_milli
from gpushare.reasons import Reason, Refusal
from gpushare.request import NOTHING, PodRequest, asks, parse_request
from gpushare.units import Unit

# As JupyterHub's spawner writes it, so that people see user names and not pod names.
_USER = "hub.jupyter.org/username"
_DEFAULT_GRACE = 30


@dataclass(frozen=True, slots=True)
class NodeFact:
    """What a node offers. ``cards`` is None where it publishes none; ``problem`` says why not.

    ``takes_pods``: it is ready and not cordoned. kube-scheduler sees to that itself; people want to
    know it. ``cpu`` is what the kubelet offers of it, in mCPU.
    """

    name: str
    uid: str
    version: int
    cards: cards.NodeCards | None
    problem: str
    offered: Amounts
    takes_pods: bool
    address: str = ""
    cpu: int = 0


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod that asks for our resources.

    ``refusal`` is set where the request is not valid, and ``placement_problem`` where there is a
    placement annotation that is none. ``started``: a container that asks has run, which only a
    valid placement makes possible. ``ended``: no container of it runs any more. ``grace`` is in s.
    ``told``: the cards that another system's annotations name, where these may be believed. ``claims``: the
    claim of Elastic GPU that each container names. ``cpu`` is
    what its containers request, in mCPU.
    """

    ref: PodRef
    version: int
    request: PodRequest
    refusal: Reason | None
    amounts: Amounts
    node: str
    placement: Placement | None
    placement_problem: str
    finished: bool
    started: bool
    ended: bool
    deleting: bool
    gated: bool
    scheduler: str
    priority: int
    created: float
    bound: float
    grace: int
    user: str
    cpu: int = 0
    told: Told = ()
    claims: tuple[tuple[str, str], ...] = ()


class FactReader:
    """Turns objects of the API into facts. Equal requests share one object in memory."""

    def __init__(self, names: Names, unit: Unit, adopt_before: float = 0.0) -> None:
        self.names = names
        self.unit = unit
        self.adopt_before = adopt_before
        self._claims = any(dialect.claims for dialect in names.spoken)
        self._requests: dict[PodRequest, PodRequest] = {NOTHING: NOTHING}

    def node(self, node: Mapping[str, Any]) -> NodeFact:
        """Raises ValueError for something that is no node."""
        metadata = node.get("metadata")
        if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
            raise ValueError("the node has no name")
        published, problem = None, ""
        text = annotation(node, self.names.cards)
        if text is not None:
            try:
                published = cards.decode(text)
            except ValueError as error:
                problem = str(error)
        return NodeFact(
            name=metadata["name"],
            uid=str(metadata.get("uid", "")),
            version=_version(metadata),
            cards=published,
            problem=problem,
            offered=self._offered(node, published),
            takes_pods=_takes_pods(node),
            address=_address(node),
            cpu=_milli(_mapping(_mapping(node.get("status")).get("allocatable")).get("cpu")),
        )

    def pod(self, pod: Mapping[str, Any]) -> PodFact | None:
        """The facts, or None for a pod that asks for nothing. Raises ValueError for what is no pod."""
        if not asks(pod, self.names):
            return None
        ref = pod_ref(pod)
        metadata, spec = pod["metadata"], _mapping(pod.get("spec"))
        request, refusal = self.request(pod)
        placed, placement_problem = self._placement(pod)
        statuses = list(_statuses(pod, request))
        return PodFact(
            ref=ref,
            version=_version(metadata),
            request=request,
            refusal=refusal,
            amounts=amounts(request, self.unit) if request else NONE,
            node=node_name(pod),
            placement=placed,
            placement_problem=placement_problem,
            told=self._told(pod, request) if placed is None else (),
            claims=tuple(named(pod).items()) if self._claims else (),
            finished=is_finished(pod),
            started=any(_has_run(status) for status in statuses),
            ended=bool(statuses) and not any(_runs(status) for status in statuses),
            deleting=bool(metadata.get("deletionTimestamp")),
            gated=bool(spec.get("schedulingGates")),
            scheduler=str(spec.get("schedulerName") or ""),
            priority=priority(pod),
            created=_time(metadata.get("creationTimestamp")),
            bound=bound_at(pod),
            grace=_whole(spec.get("terminationGracePeriodSeconds"), _DEFAULT_GRACE),
            user=_user(metadata),
            cpu=requested_cpu(pod),
        )

    def request(self, pod: Mapping[str, Any]) -> tuple[PodRequest, Reason | None]:
        """What the pod asks for, or why that can never be met."""
        try:
            request = parse_request(pod, self.names, self.unit)
        except Refusal as refusal:
            return NOTHING, refusal.reason
        if len(self._requests) > 10_000:
            self._requests.clear()
        return self._requests.setdefault(request, request), None

    def _told(self, pod: Mapping[str, Any], request: PodRequest) -> Told:
        """Only of pods that were bound before we came: later on they could be anybody's words."""
        return told(self.names, pod, request) if 0 < bound_at(pod) < self.adopt_before else ()

    def _placement(self, pod: Mapping[str, Any]) -> tuple[Placement | None, str]:
        text = annotation(pod, self.names.placement)
        if text is None:
            return None, ""
        try:
            return placement.decode(text), ""
        except ValueError as error:
            return None, str(error)

    def _offered(self, node: Mapping[str, Any], published: cards.NodeCards | None) -> Amounts:
        allocatable = _mapping(_mapping(node.get("status")).get("allocatable"))

        def count(resource: str) -> int:
            try:
                return parse_count(allocatable.get(resource, 0))
            except ValueError:
                return 0

        served = published.also if published else ()
        foreign = tuple((r.name, count(r.name)) for r in self.names.foreign if r.name in served)
        return Amounts(count(self.names.gpu_mem), count(self.names.gpu_percent), foreign)


def priority(pod: Mapping[str, Any]) -> int:
    """Higher goes first, and may take the place of lower."""
    return _whole(_mapping(pod.get("spec")).get("priority"), 0)


def requested_cpu(pod: Mapping[str, Any]) -> int:
    """What the pod's containers request of CPU together, in mCPU, as the scheduler counts it."""
    spec = _mapping(pod.get("spec"))
    steady = beside = most = 0
    for part in ("initContainers", "containers"):
        entries = spec.get(part)
        for container in entries if isinstance(entries, list) else ():
            container = _mapping(container)
            resources = _mapping(container.get("resources"))
            limits, requests = (
                _mapping(resources.get("limits")),
                _mapping(resources.get("requests")),
            )
            cpu = _milli(requests.get("cpu", limits.get("cpu")))
            if part == "initContainers" and container.get("restartPolicy") != "Always":
                most = max(most, beside + cpu)
                continue
            steady += cpu
            beside += cpu if part == "initContainers" else 0
    return max(steady, most)


def _milli(quantity: object) -> int:
    try:
        return min(parse_milli(quantity), 1 << 40) if quantity is not None else 0
    except ValueError:
        return 0


def _address(node: Mapping[str, Any]) -> str:
    addresses = _mapping(node.get("status")).get("addresses")
    for entry in addresses if isinstance(addresses, list) else ():
        if _mapping(entry).get("type") == "InternalIP":
            return str(_mapping(entry).get("address", ""))[:100]
    return ""


def _takes_pods(node: Mapping[str, Any]) -> bool:
    if _mapping(node.get("spec")).get("unschedulable"):
        return False
    conditions = _mapping(node.get("status")).get("conditions")
    return any(
        _mapping(condition).get("type") == "Ready" and _mapping(condition).get("status") == "True"
        for condition in (conditions if isinstance(conditions, list) else ())
    )


def _statuses(pod: Mapping[str, Any], request: PodRequest) -> Iterator[Mapping[str, Any]]:
    """The statuses of the containers that ask; of all containers where the request is not valid."""
    status = _mapping(pod.get("status"))
    asking = {container.name for container in request.containers}
    for part in ("initContainerStatuses", "containerStatuses"):
        entries = status.get(part)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, Mapping) and (not asking or entry.get("name") in asking):
                yield entry


def _runs(status: Mapping[str, Any]) -> bool:
    return "running" in _mapping(status.get("state"))


def _has_run(status: Mapping[str, Any]) -> bool:
    state, last = _mapping(status.get("state")), _mapping(status.get("lastState"))
    return "running" in state or "terminated" in state or "terminated" in last


def _user(metadata: Mapping[str, Any]) -> str:
    for part in ("annotations", "labels"):
        user = _mapping(metadata.get(part)).get(_USER)
        if isinstance(user, str) and user:
            return user[:100]
    return ""


def _version(metadata: Mapping[str, Any]) -> int:
    """The resourceVersion as a number: larger is later (KEP-5504). 0 where it is none."""
    text = metadata.get("resourceVersion")
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 20 else 0


def _time(value: object) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp() if value else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
