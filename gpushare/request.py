"""What a pod asks for: parsed once, here, from its limits and annotations.

The table of requests is in docs/concepts.md. A container without a request gets no card; sidecars
(init containers with restartPolicy Always) count like the containers they run beside; a plain init
container runs alone, so it only raises what the pod needs at its peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpushare.cards import Card
from gpushare.names import Names
from gpushare.quantity import parse_count
from gpushare.reasons import Code, Reason, Refusal
from gpushare.units import GIB, Unit

MAX_CARDS = 64
_MAX_MIB = 1 << 30
_MAX_CHOICES = 32


class Role(StrEnum):
    """When a container runs relative to the others of its pod."""

    APP = "app"
    SIDECAR = "sidecar"
    INIT = "init"


class Policy(StrEnum):
    """How a pod may want its card chosen."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Demand:
    """What one container wants on each of ``cards`` distinct cards of one node.

    ``mib`` is None where the memory follows from the per cent of the card. ``whole`` means that
    nobody else may be on the card.
    """

    mib: int | None
    percent: int
    cards: int = 1
    whole: bool = False

    def on(self, card: Card) -> tuple[int, int]:
        """(MiB, per cent) that this demand takes of ``card``."""
        if self.whole:
            return card.memory, 100
        if self.mib is None:
            return card.memory * self.percent // 100, self.percent
        return self.mib, self.percent


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container's demand."""

    name: str
    role: Role
    demand: Demand


@dataclass(frozen=True, slots=True)
class PodRequest:
    """All that a pod asks of us. Containers without a demand are not listed."""

    containers: tuple[ContainerRequest, ...]
    models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    policy: Policy | None = None

    def __bool__(self) -> bool:
        return bool(self.containers)

    def allows(self, card: Card) -> bool:
        """Whether the pod's model and uuid annotations admit ``card``."""
        if self.uuids and card.uuid not in self.uuids:
            return False
        return not self.models or any(card.is_model(model) for model in self.models)

    @property
    def wanted(self) -> str:
        """The cards that the annotations admit, in words."""
        return " or ".join((*self.models, *self.uuids)) or "any card"


NOTHING = PodRequest(())


def parse_request(pod: Mapping[str, Any], names: Names, unit: Unit = GIB) -> PodRequest:
    """The request of a pod (a v1.Pod as JSON). Raises Refusal when it can never be met as written."""
    spec = _mapping(pod.get("spec"))
    annotations = _mapping(_mapping(pod.get("metadata")).get("annotations"))
    limits = [(container, role, _limits(container, names)) for container, role in _containers(spec)]
    if not any(mem or percent for _, _, (mem, percent) in limits):
        return NOTHING
    cards = _cards_wanted(annotations, names)
    containers = tuple(
        ContainerRequest(
            str(container.get("name", "")), role, _demand(mem, percent, cards, names, unit)
        )
        for container, role, (mem, percent) in limits
        if mem or percent
    )
    if cards != 1 and not any(c.demand.mib is not None for c in containers):
        raise _bad(
            f"{names.cards} is set but no container has {names.gpu_mem}",
            f"ask for whole cards with {names.gpu_percent}: {100 * cards}",
        )
    return PodRequest(
        containers=containers,
        models=_choices(annotations, names.card_model),
        uuids=_choices(annotations, names.card_uuid),
        policy=_policy(annotations, names),
    )


def asks(pod: Mapping[str, Any], names: Names) -> bool:
    """Whether the pod names one of our resources at all, validly or not."""
    return any(
        resource in _mapping(_mapping(container.get("resources")).get(part))
        for container, _ in _containers(_mapping(pod.get("spec")))
        for part in ("limits", "requests")
        for resource in names.resources
    )


def _containers(spec: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], Role]]:
    for container in _list(spec.get("initContainers")):
        sidecar = container.get("restartPolicy") == "Always"
        yield container, Role.SIDECAR if sidecar else Role.INIT
    for container in _list(spec.get("containers")):
        yield container, Role.APP


def _limits(container: Mapping[str, Any], names: Names) -> tuple[int, int]:
    resources = _mapping(container.get("resources"))
    limits, requests = _mapping(resources.get("limits")), _mapping(resources.get("requests"))
    return (
        _count(limits, requests, names.gpu_mem),
        _count(limits, requests, names.gpu_percent),
    )


def _count(limits: Mapping[str, Any], requests: Mapping[str, Any], resource: str) -> int:
    value = limits.get(resource, requests.get(resource, 0))
    try:
        return parse_count(value)
    except ValueError as error:
        raise _bad(f"{resource}: {error}", "use a whole number such as 7") from None


def _demand(mem: int, percent: int, cards: int, names: Names, unit: Unit) -> Demand:
    if percent > 100 and percent % 100:
        raise _bad(
            f"{names.gpu_percent}: {percent} is more than one card but not a number of whole cards",
            f"use at most 100, or {percent // 100 * 100} or {-(-percent // 100) * 100}",
        )
    if percent >= 100:
        return _whole_cards(mem, percent, names)
    if mem * unit.mib > _MAX_MIB:
        raise _bad(f"{names.gpu_mem}: {mem} {unit} is larger than any card", "ask for less")
    if not mem:
        return Demand(mib=None, percent=percent)
    if percent and cards > 1:
        raise _bad(
            f"{names.cards}: {cards} together with {names.gpu_percent}",
            f"leave out {names.gpu_percent}, or ask for {100 * cards} of it alone",
        )
    return Demand(mib=mem * unit.mib, percent=percent, cards=cards)


def _whole_cards(mem: int, percent: int, names: Names) -> Demand:
    if mem:
        raise _bad(
            f"{names.gpu_percent}: {percent} means whole cards, which come with all their memory",
            f"leave out {names.gpu_mem}",
        )
    if percent // 100 > MAX_CARDS:
        raise _bad(f"{percent // 100} cards are more than any node has", "ask for fewer")
    return Demand(mib=None, percent=100, cards=percent // 100, whole=True)


def _cards_wanted(annotations: Mapping[str, Any], names: Names) -> int:
    text = annotations.get(names.cards)
    if text is None:
        return 1
    try:
        cards = parse_count(str(text))
    except ValueError:
        cards = 0
    if not 1 <= cards <= MAX_CARDS:
        raise _bad(
            f"annotation {names.cards}: {str(text)[:40]!r} is not a number of cards",
            f"use 1 to {MAX_CARDS}, or leave it out",
        )
    return cards


def _choices(annotations: Mapping[str, Any], key: str) -> tuple[str, ...]:
    text = annotations.get(key)
    if text is None:
        return ()
    choices = tuple(part.strip() for part in str(text).split(",") if part.strip())
    if not choices or len(choices) > _MAX_CHOICES:
        raise _bad(
            f"annotation {key} is empty or names more than {_MAX_CHOICES}",
            "name the wanted ones, with commas between them",
        )
    return choices


def _policy(annotations: Mapping[str, Any], names: Names) -> Policy | None:
    text = annotations.get(names.policy)
    if text is None:
        return None
    try:
        return Policy(str(text))
    except ValueError:
        raise _bad(
            f"annotation {names.policy}: {str(text)[:40]!r} is not a policy",
            f"use {' or '.join(Policy)}",
        ) from None


def _bad(problem: str, fix: str) -> Refusal:
    return Refusal(Reason(Code.BAD_REQUEST, {"problem": problem, "fix": fix}))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
