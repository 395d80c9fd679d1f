"""What the culler sees: the Hub's servers, their pods, and the cards. Plain data, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpushare.cards import HEALTHY, Card
from gpushare.names import Names
from gpushare.pods import annotation, is_finished, node_name, pod_ref
from gpushare.usage import NodeUsage, SliceUse
from gpushare.usage import decode as decode_usage
from gpushare.waiting import WaitingPod

_USER, _SERVER = "hub.jupyter.org/username", "hub.jupyter.org/servername"


@dataclass(frozen=True, slots=True)
class Server:
    """A server as the Hub tells it. ``name`` is '' for the user's default server."""

    user: str
    name: str
    started: datetime
    last_activity: datetime | None
    url: str
    ready: bool = True
    pending: str = ""
    groups: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        return self.user, self.name

    def __str__(self) -> str:
        return f"{self.user}/{self.name}" if self.name else self.user


def read_servers(user: Mapping[str, Any]) -> list[Server]:
    """The servers of one user of ``GET /users``. Raises ValueError for what is none."""
    name, servers = user.get("name"), user.get("servers")
    if not isinstance(name, str) or not isinstance(servers, Mapping):
        raise ValueError("a user has no name or no servers: the culler's scopes lack read:servers")
    groups = frozenset(str(group) for group in user.get("groups") or ())
    return [
        Server(
            user=name,
            name=str(key),
            started=moment(model.get("started")) or moment(model.get("last_activity")) or _EPOCH,
            last_activity=moment(model.get("last_activity")),
            url=str(model.get("url") or ""),
            ready=bool(model.get("ready")),
            pending=str(model.get("pending") or ""),
            groups=groups,
            options=model.get("user_options") or {},
        )
        for key, model in servers.items()
        if isinstance(model, Mapping) and not model.get("stopped")
    ]


_EPOCH = datetime.fromtimestamp(0, UTC)


def moment(text: object) -> datetime | None:
    """A time of the Hub's API; times without a zone are UTC."""
    if not isinstance(text, str) or not text:
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as far as its end and its owner matter. ``user`` is None for what is no notebook."""

    namespace: str
    name: str
    uid: str
    user: str | None = None
    server: str = ""
    node: str = ""
    choice: str = ""
    idle: str = ""
    ip: str = ""
    port: int = 8888
    phase: str = ""
    deleting: bool = False
    finished: bool = False
    finalizers: tuple[str, ...] = ()
    owner_kind: str = ""
    owner: str = ""


def read_pod(pod: Mapping[str, Any], names: Names) -> Pod:
    """A pod of the API's JSON. Raises ValueError for what is none."""
    ref = pod_ref(pod)
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    owners = [o for o in metadata.get("ownerReferences") or () if o.get("controller")]
    user = annotation(pod, _USER)
    return Pod(
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        user=user if user is not None else labels.get(_USER),
        server=annotation(pod, _SERVER) or labels.get(_SERVER) or "",
        node=node_name(pod),
        choice=annotation(pod, names.choice) or "",
        idle=annotation(pod, names.idle) or "",
        ip=str(status.get("podIP") or ""),
        port=_port(spec),
        phase=str(status.get("phase") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        finished=is_finished(pod),
        finalizers=tuple(metadata.get("finalizers") or ()),
        owner_kind=str(owners[0].get("kind", "")) if owners else "",
        owner=str(owners[0].get("name", "")) if owners else "",
    )


def _port(spec: Mapping[str, Any]) -> int:
    for container in spec.get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == "notebook-port":
                return int(port["containerPort"])
    return 8888


@dataclass(frozen=True, slots=True)
class Held:
    """What one pod holds of one card."""

    namespace: str
    pod: str
    uid: str
    user: str
    node: str
    card: str
    model: str
    mib: int
    percent: int
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class CardView:
    """One card with what is on it."""

    node: str
    uuid: str
    model: str
    product: str
    memory_mib: int
    free_mib: int
    free_percent: int
    usable: bool
    slices: tuple[Held, ...] = ()

    def is_model(self, wanted: str) -> bool:
        """As the scheduler compares them: 'A10' is an 'NVIDIA A10' but no 'NVIDIA A100'."""
        return Card(self.uuid, 0, 0, self.product, self.memory_mib).is_model(wanted)


@dataclass(frozen=True, slots=True)
class View:
    """The cluster's cards at one moment. ``ages``: seconds since each node's usage was measured."""

    cards: tuple[CardView, ...] = ()
    silent_nodes: frozenset[str] = frozenset()
    usage: Mapping[str, NodeUsage] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)
    waiting: tuple[WaitingPod, ...] = ()

    def held(self) -> dict[str, list[Held]]:
        """The slices by pod uid."""
        found: dict[str, list[Held]] = {}
        for card in self.cards:
            for held in card.slices:
                found.setdefault(held.uid, []).append(held)
        return found

    def uses(self, freshest: float) -> dict[str, list[SliceUse]]:
        """What slices use, by pod uid, of nodes that were measured in the last seconds."""
        found: dict[str, list[SliceUse]] = {}
        for name, node in self.usage.items():
            if self.ages.get(name, 0.0) <= freshest:
                for use in node.slices:
                    found.setdefault(use.uid, []).append(use)
        return found


def read_cards(data: Mapping[str, Any]) -> tuple[tuple[CardView, ...], frozenset[str]]:
    """The cards of ``GET /v1/nodes``, and the nodes that take nothing. Raises ValueError."""
    nodes = data.get("nodes")
    if not isinstance(nodes, list):
        raise ValueError("the answer has no list of nodes")
    try:
        cards = tuple(_card(node, card) for node in nodes for card in node["cards"])
        silent = frozenset(n["name"] for n in nodes if not n.get("takes_pods", True))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a node or card lacks a field, or has it wrong: {error!r}") from None
    return cards, silent


def _card(node: Mapping[str, Any], card: Mapping[str, Any]) -> CardView:
    model = str(card.get("short_model") or card["model"])
    return CardView(
        node=str(node["name"]),
        uuid=str(card["uuid"]),
        model=model,
        product=str(card.get("product") or card["model"]),
        memory_mib=int(card["memory_mib"]),
        free_mib=int(card["free_mib"]),
        free_percent=int(card["free_percent"]),
        usable=not node.get("problem")
        and bool(node.get("takes_pods", True))
        and card.get("health", HEALTHY) == HEALTHY,
        slices=tuple(
            Held(
                namespace=str(held["namespace"]),
                pod=str(held["pod"]),
                uid=str(held["uid"]),
                user=str(held.get("user", "")),
                node=str(node["name"]),
                card=str(card["uuid"]),
                model=model,
                mib=int(held["mib"]),
                percent=int(held["percent"]),
                leaving=bool(held.get("leaving")),
            )
            for held in card["slices"]
        ),
    )


def read_usage(data: Mapping[str, Any]) -> tuple[dict[str, NodeUsage], dict[str, float]]:
    """``GET /v1/usage``: the nodes and the ages of what they said. Raises ValueError."""
    nodes, ages = data.get("nodes"), data.get("age_seconds")
    if not isinstance(nodes, list) or not isinstance(ages, Mapping):
        raise ValueError("the answer has no nodes, or no age_seconds")
    read = [decode_usage(json.dumps({"v": 1, **node})) for node in nodes]
    return {node.node: node for node in read}, {
        str(name): float(age) for name, age in ages.items() if age is not None
    }
