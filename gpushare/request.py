"""What a pod asks for: parsed once, here, from its limits and annotations.

The table of requests is in docs/concepts.md. A container without a request gets no card; sidecars
(init containers with restartPolicy Always) count like the containers they run beside; a plain init
container runs alone, so it only raises what the pod needs at its peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpushare.cards import Card
from gpushare.demand import Demand as Demand
from gpushare.demand import Policy as Policy
from gpushare.demand import Role as Role
from gpushare.dialects.dialect import Ask, Dialect, Wishes
from gpushare.names import Names
from gpushare.quantity import parse_count
from gpushare.reasons import Code, Reason, Refusal
from gpushare.units import GIB, Unit

MAX_CARDS = 64
_MAX_MIB = 1 << 30
_MAX_CHOICES = 32


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container's demand.

    Where it asks in a ``dialect``, ``counts`` are that dialect's resources as they stand there, and
    ``devices`` those of them that the kubelet counts.
    """

    name: str
    role: Role
    demand: Demand
    dialect: str = ""
    counts: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PodRequest:
    """All that a pod asks of us. Containers without a demand are not listed.

    ``avoids`` are models and uuids that it must not be on. ``names`` are those of all its app
    containers, where it asks in another system's dialect.
    """

    containers: tuple[ContainerRequest, ...]
    models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    policy: Policy | None = None
    avoids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.containers)

    def allows(self, card: Card) -> bool:
        """Whether the pod's model and uuid annotations admit ``card``."""
        if self.uuids and card.uuid not in self.uuids:
            return False
        if self.avoids and any(card.uuid == a or card.is_model(a) for a in self.avoids):
            return False
        return not self.models or any(card.is_model(model) for model in self.models)

    @property
    def wanted(self) -> str:
        """The cards that the annotations admit, in words."""
        wanted = " or ".join((*self.models, *self.uuids)) or "any card"
        return f"{wanted} but {' and '.join(self.avoids)}" if self.avoids else wanted


NOTHING = PodRequest(())


def parse_request(pod: Mapping[str, Any], names: Names, unit: Unit = GIB) -> PodRequest:
    """The request of a pod (a v1.Pod as JSON). Raises Refusal when it can never be met as written."""
    spec = _mapping(pod.get("spec"))
    annotations = _mapping(_mapping(pod.get("metadata")).get("annotations"))
    asked = [
        (container, role, counts)
        for container, role in _containers(spec)
        if (counts := _counts(container, names))
    ]
    if not asked:
        return NOTHING
    cards = _cards_wanted(annotations, names)
    containers = tuple(
        _request(str(container.get("name", "")), role, counts, cards, names, unit)
        for container, role, counts in asked
    )
    if cards != 1 and not any(c.demand.mib is not None for c in containers):
        raise _bad(
            f"{names.cards} is set but no container has {names.gpu_mem}",
            f"ask for whole cards with {names.gpu_percent}: {100 * cards}",
        )
    heard = {c.dialect for c in containers}
    dialects = [d for d in names.spoken if d.name in heard]
    wishes = [dialect.wishes(annotations) for dialect in dialects]
    return PodRequest(
        containers=containers,
        models=_choices(annotations, names.card_model) + _all(w.models for w in wishes),
        uuids=_choices(annotations, names.card_uuid) + _all(w.uuids for w in wishes),
        policy=_policy(annotations, names) or _first_policy(wishes),
        avoids=_all((*w.not_models, *w.not_uuids) for w in wishes),
        names=_app_names(spec) if dialects else (),
    )


def asks(pod: Mapping[str, Any], names: Names) -> bool:
    """Whether the pod names one of our resources at all, validly or not."""
    return any(
        resource in _mapping(_mapping(container.get("resources")).get(part))
        for container, _ in _containers(_mapping(pod.get("spec")))
        for part in ("limits", "requests")
        for resource in names.all_resources
    )


def _containers(spec: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], Role]]:
    for container in _list(spec.get("initContainers")):
        sidecar = container.get("restartPolicy") == "Always"
        yield container, Role.SIDECAR if sidecar else Role.INIT
    for container in _list(spec.get("containers")):
        yield container, Role.APP


def _counts(container: Mapping[str, Any], names: Names) -> dict[str, int]:
    """What the container names of our resources, ours and the dialects'; none of it 0."""
    resources = _mapping(container.get("resources"))
    limits, requests = _mapping(resources.get("limits")), _mapping(resources.get("requests"))
    if not limits and not requests:
        return {}
    counts = {name: _count(limits, requests, name) for name in names.all_resources}
    return {name: count for name, count in counts.items() if count}


def _count(limits: Mapping[str, Any], requests: Mapping[str, Any], resource: str) -> int:
    value = limits.get(resource, requests.get(resource, 0))
    try:
        return parse_count(value)
    except ValueError as error:
        raise _bad(f"{resource}: {error}", "use a whole number such as 7") from None


def _request(
    name: str, role: Role, counts: Mapping[str, int], cards: int, names: Names, unit: Unit
) -> ContainerRequest:
    dialect = _one_dialect(name, counts, names)
    if dialect is None:
        mem, percent = counts.get(names.gpu_mem, 0), counts.get(names.gpu_percent, 0)
        return ContainerRequest(name, role, _demand(mem, percent, cards, names, unit))
    demand = dialect.read(dialect, Ask(counts, cards if dialect.several_cards else 1))
    devices = ((r.name, counts[r.name]) for r in dialect.counted if r.name in counts)
    return ContainerRequest(name, role, demand, dialect.name, tuple(counts.items()), tuple(devices))


def _one_dialect(name: str, counts: Mapping[str, int], names: Names) -> Dialect | None:
    """The dialect that the container asks in, None for our own resources; never two at once."""
    found = [d for d in names.spoken if any(r.name in counts for r in d.resources)]
    ours = any(resource in counts for resource in names.resources)
    if len(found) + ours > 1:
        raise _bad(
            f"container {name[:63]!r} asks for its slice in two ways at once: {', '.join(counts)}",
            "keep one of them",
        )
    return found[0] if found else None


def _all(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    joined = tuple(text for part in parts for text in part)
    if len(joined) > _MAX_CHOICES:
        raise _bad(f"the annotations name more than {_MAX_CHOICES} cards", "name fewer")
    return joined


def _first_policy(wishes: Iterable[Wishes]) -> Policy | None:
    return next((wish.policy for wish in wishes if wish.policy is not None), None)


def _app_names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(c.get("name", "")) for c in _list(spec.get("containers")))


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
            f"use {', '.join(Policy)}",
        ) from None


def _bad(problem: str, fix: str) -> Refusal:
    return Refusal(Reason(Code.BAD_REQUEST, {"problem": problem, "fix": fix}))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
