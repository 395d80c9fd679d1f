"""What Elastic GPU's objects should say, and which writes make them so. Pure.

A GPU is a card. An ElasticGPU is a card too (phase Available while nobody is on it), or the slice that
a claim has while its pod lives. A claim is Pending until a pod that names it is placed, Bound while
that pod lives, Released after it; and it is not deleted before. Objects of others are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpushare.assignment import CardState
from gpushare.cards import Card
from gpushare.dialects.claims import (
    GROUP,
    RESOURCES,
    RETAIN,
    VERSION,
    Claims,
    asked,
    reclaim_policy,
)
from gpushare.placement import Share
from gpushare.pods import PodRef
from gpushare.reasons import Refusal

Object = Mapping[str, Any]

API = f"/apis/{GROUP}/{VERSION}"
FINALIZER = f"{GROUP}/claim-protection"
_MANAGED = {"app.kubernetes.io/managed-by": "gpushare"}
# On the object of a slice: what becomes of it, as the class said when it was bound.
_POLICY = f"{GROUP}/reclaim-policy"
_NAME = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Holder:
    """One container of one pod on a card."""

    pod: PodRef
    container: str
    share: Share


@dataclass(frozen=True, slots=True)
class CardFact:
    """A card of a node, what is free of it, and who is on it."""

    node: str
    state: CardState
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class User:
    """The container that uses a claim; not ``placed`` yet: it only keeps the claim from going."""

    pod: PodRef
    node: str = ""
    shares: tuple[Share, ...] = ()

    @property
    def placed(self) -> bool:
        return bool(self.node and self.shares)


@dataclass(frozen=True, slots=True)
class World:
    """All that there is: objects of the API by name, and the ledger's cards and users of claims."""

    claims: Claims
    gpus: Mapping[str, Object]
    slices: Mapping[str, Object]
    cards: Sequence[CardFact]
    users: Mapping[tuple[str, str], User]


@dataclass(frozen=True, slots=True)
class Write:
    """One call: POST (create), PATCH (a merge patch) or DELETE (with preconditions)."""

    method: str
    path: str
    body: Object


def writes(world: World) -> Iterator[Write]:
    """The next writes. Some follow only when these are seen."""
    cards = {_gpu_name(fact.state.card): fact for fact in world.cards}
    yield from _kept("gpus", world.gpus, {name: _gpu(name, fact) for name, fact in cards.items()})
    wanted = {f"card-{name}": _whole(f"card-{name}", name, fact) for name, fact in cards.items()}
    taken, known = dict(wanted), {c.state.card.uuid: c.state.card for c in world.cards}
    for key, user in world.users.items():
        claim = world.claims.claims.get(key)
        if claim is not None and user.placed and not _refusal(world, key, claim, user):
            made = _slice(world, key, claim, user, known)
            taken[made["metadata"]["name"]] = made
    for name, obj in world.slices.items():
        if (
            name not in taken
            and _ours(obj)
            and _mapping(obj["metadata"]).get("annotations", {}).get(_POLICY) == RETAIN
        ):
            taken[name] = {**obj, "status": {"phase": "Released"}}
    yield from _kept("elasticgpus", world.slices, taken)
    for key, claim in world.claims.claims.items():
        yield from _claim(world, key, claim)


def _kept(kind: str, have: Mapping[str, Object], wanted: Mapping[str, Object]) -> Iterator[Write]:
    """Make the objects of a kind that are ours the wanted ones."""
    for name, obj in wanted.items():
        known = have.get(name)
        if known is None:
            yield Write("POST", f"{API}/{kind}", {k: v for k, v in obj.items() if k != "status"})
            continue
        if not _ours(known):
            continue  # somebody else's, under the name that ours would have
        spec = difference(_mapping(known.get("spec")), _mapping(obj.get("spec")))
        if spec:
            yield Write("PATCH", f"{API}/{kind}/{name}", {"spec": spec})
        status = difference(_mapping(known.get("status")), _mapping(obj.get("status")))
        if status:
            yield Write("PATCH", f"{API}/{kind}/{name}/status", {"status": status})
    for name, obj in have.items():
        if name not in wanted and _ours(obj):
            uid = _mapping(obj.get("metadata")).get("uid", "")
            yield Write("DELETE", f"{API}/{kind}/{name}", {"preconditions": {"uid": uid}})


def difference(have: Object, wanted: Object) -> dict[str, Any]:
    """The merge patch that makes ``have`` the ``wanted``; {} if it is. Lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in have if key not in wanted}
    for key, value in wanted.items():
        old = have.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = difference(old, value)
            if inner:
                patch[key] = inner
        elif old != value or key not in have:
            patch[key] = value
    return patch


def _gpu(name: str, fact: CardFact) -> dict[str, Any]:
    card = fact.state.card
    capacity = _resources(100, card.memory)
    return {
        **_head("GPU", name),
        "spec": {
            "index": card.index,
            "uuid": card.uuid,
            "model": card.model,
            "path": f"/dev/nvidia{card.minor}",
            "memory": card.memory,
            "nodeName": fact.node,
        },
        "status": {
            "state": "Healthy" if card.healthy else card.health,
            "capacity": capacity,
            "allocatable": capacity if card.healthy else _resources(0, 0),
            "allocated": _allocated(fact.holders),
        },
    }


def _allocated(holders: Iterable[Holder]) -> dict[str, Any]:
    pods: dict[str, Any] = {}
    for holder in holders:
        pod = pods.setdefault(
            holder.pod.uid,
            {"namespace": holder.pod.namespace, "pod": holder.pod.name, "containers": []},
        )
        pod["containers"].append({
            "container": holder.container,
            "resource": _resources(holder.share.percent, holder.share.mib),
        })  # fmt: skip
    return pods


def _whole(name: str, gpu: str, fact: CardFact) -> dict[str, Any]:
    card = fact.state.card
    phase = "Bound" if fact.holders or not fact.state.empty else "Available"
    status = {"phase": phase}
    if not card.healthy:
        status = {"phase": "Failed", "reason": "CardUnhealthy", "message": card.health}
    spec = {
        "capacity": _resources(100, card.memory),
        "physicalGPU": {"gpuNames": [gpu]},
        "nodeAffinity": _on(fact.node),
    }
    return {**_head("ElasticGPU", name), "spec": spec, "status": status}


def slice_name(claim: Object) -> str:
    """The ElasticGPU of a claim: by its uid, which never comes back."""
    return f"egpu-{_mapping(claim.get('metadata')).get('uid', '')}"


def _slice(
    world: World, key: tuple[str, str], claim: Object, user: User, cards: Mapping[str, Card]
) -> dict[str, Any]:
    head = _head("ElasticGPU", slice_name(claim))
    policy = reclaim_policy(claim, world.claims.classes)
    head["metadata"]["annotations"] = {_POLICY: policy}
    on = [cards[share.card] for share in user.shares if share.card in cards]
    names = {"gpuShare": {"gpuName": _gpu_name(on[0])}} if len(on) == 1 else {
        "physicalGPU": {"gpuNames": [_gpu_name(card) for card in on]}
    }  # fmt: skip
    reference = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ElasticGPUClaim",
        "namespace": key[0],
        "name": key[1],
        "uid": str(_mapping(claim.get("metadata")).get("uid", "")),
    }
    spec = {
        "capacity": _resources(
            sum(share.percent for share in user.shares), sum(share.mib for share in user.shares)
        ),
        **names,
        "claimRef": reference,
        "nodeAffinity": _on(user.node),
    }
    return {**head, "spec": spec, "status": {"phase": "Bound"}}


def _claim(world: World, key: tuple[str, str], claim: Object) -> Iterator[Write]:
    metadata, spec = _mapping(claim.get("metadata")), _mapping(claim.get("spec"))
    path = f"{API}/namespaces/{key[0]}/elasticgpuclaims/{key[1]}"
    user = world.users.get(key)
    patch: dict[str, Any] = {}
    finalizers = [str(f) for f in metadata.get("finalizers") or ()]
    leaving = bool(metadata.get("deletionTimestamp"))
    if user is not None and FINALIZER not in finalizers and not leaving:
        # The version is a precondition: a list of finalizers is replaced as a whole.
        version = metadata.get("resourceVersion")
        patch["metadata"] = {"finalizers": [*finalizers, FINALIZER], "resourceVersion": version}
    elif user is None and FINALIZER in finalizers:
        rest = [f for f in finalizers if f != FINALIZER]
        version = metadata.get("resourceVersion")
        patch["metadata"] = {"finalizers": rest, "resourceVersion": version}
    status = _claim_status(world, key, claim, user)
    name = slice_name(claim)
    bound = status["phase"] == "Bound" or (
        name in world.slices and reclaim_policy(claim, world.claims.classes) == RETAIN
    )
    if bound != (spec.get("elasticGPUName") == name) and not leaving:
        patch["spec"] = {"elasticGPUName": name if bound else None}
    if patch:
        yield Write("PATCH", path, patch)
    changed = difference(_mapping(claim.get("status")), status)
    if changed and not (leaving and user is None):
        yield Write("PATCH", f"{path}/status", {"status": changed})


def _claim_status(
    world: World, key: tuple[str, str], claim: Object, user: User | None
) -> dict[str, Any]:
    before = _mapping(claim.get("status")).get("phase", "Pending")
    refusal = _refusal(world, key, claim, user)
    if refusal:
        return {"phase": "Lost" if before == "Bound" else before, "message": refusal}
    if user is not None and user.placed:
        return {"phase": "Bound", "message": f"used by pod {user.pod.name} on {user.node}"}
    if before in ("Bound", "Released", "Lost"):
        return {"phase": "Released", "message": "its pod has ended"}
    return {"phase": "Pending", "message": "no pod that names it is placed yet"}


def _refusal(world: World, key: tuple[str, str], claim: Object, user: User | None) -> str:
    """Why the claim cannot be met, or ''. One that has a pod goes on as it was when that came."""
    if user is not None and user.placed:
        return ""
    try:
        asked(key[1], claim, world.claims.classes)
    except Refusal as refusal:
        return str(refusal)
    return ""


def _head(kind: str, name: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": dict(_MANAGED)}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata}


def _gpu_name(card: Card) -> str:
    return _NAME.sub("-", card.uuid.lower()).strip("-.")


def _resources(core: int, memory: int) -> dict[str, str]:
    return {RESOURCES["gpu-core"]: str(core), RESOURCES["gpu-memory"]: str(memory)}


def _on(node: str) -> dict[str, Any]:
    match = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [match]}]}}


def _ours(obj: Object) -> bool:
    labels = _mapping(_mapping(obj.get("metadata")).get("labels"))
    return all(labels.get(key) == value for key, value in _MANAGED.items())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
