"""kube-scheduler's extender protocol: reading its arguments and writing its answers.

The scheduler's types carry no JSON tags, so keys are capitalised on the wire; Go reads them in any
case, and so does this. (k8s.io/kube-scheduler/extender/v1.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gpushare.pods import PodRef


class BadArguments(ValueError):
    """The body is not what kube-scheduler sends. The text says what is missing."""


@dataclass(frozen=True, slots=True)
class NodesArgs:
    """Arguments of filter and prioritize. ``objects`` are the nodes where they came as objects."""

    pod: Mapping[str, Any]
    names: Sequence[str]
    objects: Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class BindArgs:
    """Arguments of bind."""

    ref: PodRef
    node: str


def read(body: bytes) -> Mapping[str, Any]:
    """The body as an object. Raises BadArguments."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadArguments(f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadArguments("the body is not a JSON object")
    return data


def nodes_args(data: Mapping[str, Any]) -> NodesArgs:
    """Read ExtenderArgs. NodeNames wins where both are given. Raises BadArguments."""
    pod = _field(data, "Pod")
    if not isinstance(pod, dict):
        raise BadArguments("Pod is missing")
    names = _field(data, "NodeNames")
    if names is not None:
        if not isinstance(names, list) or not all(map(str.__instancecheck__, names)):
            raise BadArguments("NodeNames is not a list of names")
        return NodesArgs(pod, names, None)
    nodes = _field(data, "Nodes")
    items = _field(nodes, "Items") if isinstance(nodes, dict) else None
    if not isinstance(items, list):
        raise BadArguments("both NodeNames and Nodes are missing")
    return NodesArgs(pod, [_name(item) for item in items], items)


def bind_args(data: Mapping[str, Any]) -> BindArgs:
    """Read ExtenderBindingArgs. Raises BadArguments."""
    values = [_field(data, key) for key in ("PodNamespace", "PodName", "PodUID", "Node")]
    if not all(isinstance(value, str) and 0 < len(value) <= 253 for value in values):
        raise BadArguments("PodNamespace, PodName, PodUID and Node are needed")
    namespace, name, uid, node = values
    if "/" in namespace or "/" in name:
        raise BadArguments("PodNamespace or PodName is not a name")
    return BindArgs(PodRef(namespace, name, uid), node)


def filter_result(
    passed: Sequence[str],
    objects: Sequence[Mapping[str, Any]] | None,
    failed: Mapping[str, str],
    unresolvable: Mapping[str, str],
) -> bytes:
    """ExtenderFilterResult: names only, unless the scheduler sent objects and wants them back."""
    nodes = None
    if objects is not None:
        wanted = set(passed)
        nodes = {"metadata": {}, "items": [n for n in objects if _name(n) in wanted]}
    return orjson.dumps(
        {
            "Nodes": nodes,
            "NodeNames": None if objects is not None else passed,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


def filter_error(text: str) -> bytes:
    return orjson.dumps({"Error": text})


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """Arguments of preempt: the pod, and (uids of victims, protected among them) by node."""

    pod: Mapping[str, Any]
    victims: Mapping[str, tuple[tuple[str, ...], int]]


def preempt_args(data: Mapping[str, Any]) -> PreemptArgs:
    """Read ExtenderPreemptionArgs: victims as uids (nodeCacheCapable) or as whole pods. Raises
    BadArguments."""
    pod = _field(data, "Pod")
    if not isinstance(pod, dict):
        raise BadArguments("Pod is missing")
    nodes = _field(data, "NodeNameToMetaVictims") or _field(data, "NodeNameToVictims")
    if not isinstance(nodes, dict):
        raise BadArguments("both NodeNameToMetaVictims and NodeNameToVictims are missing")
    return PreemptArgs(pod, {name: _victims(victims) for name, victims in nodes.items()})


def _victims(victims: object) -> tuple[tuple[str, ...], int]:
    if not isinstance(victims, dict):
        return (), 0
    pods, violations = _field(victims, "Pods"), _field(victims, "NumPDBViolations")
    uids = []
    for pod in pods if isinstance(pods, list) else ():
        its = pod.get("metadata") if isinstance(pod, dict) and "metadata" in pod else pod
        uid = _field(its, "uid") if isinstance(its, dict) else None
        if not isinstance(uid, str) or not uid:
            raise BadArguments("a victim without a UID")
        uids.append(uid)
    return tuple(uids), violations if type(violations) is int else 0


def preempt_result(victims: Mapping[str, tuple[Sequence[str], int]]) -> bytes:
    """ExtenderPreemptionResult. Nodes that are not in it are no candidates any more."""
    nodes = {
        name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
        for name, (uids, violations) in victims.items()
    }
    return orjson.dumps({"NodeNameToMetaVictims": nodes})


def scores(values: Mapping[str, int]) -> bytes:
    """HostPriorityList. Nodes that are not in it have 0."""
    return orjson.dumps([{"Host": name, "Score": score} for name, score in values.items()])


def bind_result(error: str = "") -> bytes:
    """ExtenderBindingResult; '' is success."""
    return orjson.dumps({"Error": error})


def _field(data: Mapping[str, Any], key: str) -> Any:
    if key in data:
        return data[key]
    wanted = key.lower()
    return next((value for k, value in data.items() if k.lower() == wanted), None)


def _name(node: object) -> str:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise BadArguments("a node without a name")
    return name
