"""What a dialect is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpushare.cards import Card
from gpushare.demand import Demand, Policy, Role
from gpushare.placement import Share
from gpushare.reasons import Code, Reason, Refusal
from gpushare.units import Unit

Annotations = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Resource:
    """One extended resource of a dialect.

    It counts ``unit`` of memory, or where that is None ``per_card`` pieces of each card. ``counted``:
    the device plugin offers it, so the kubelet counts it too; others are only read.
    """

    name: str
    unit: Unit | None = None
    per_card: int = 100
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container asks for: the resources of one dialect that it names, none of them 0."""

    counts: Mapping[str, int]
    cards: int = 1

    def of(self, resource: str) -> int:
        return self.counts.get(resource, 0)


@dataclass(frozen=True, slots=True)
class Seat:
    """One container on its cards. ``cards`` and ``shares`` go together."""

    name: str
    role: Role
    counts: Mapping[str, int]
    cards: tuple[Card, ...]
    shares: tuple[Share, ...]

    @property
    def indexes(self) -> str:
        """The cards by NVML's index, as '0' or '0,1'."""
        return ",".join(str(card.index) for card in self.cards)


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod on a node, as one dialect sees it.

    ``containers`` are the names of all app containers in the pod's order, ``seats`` the containers
    that ask in this dialect. ``at_ns`` is the moment of the bind, in ns since the epoch.
    """

    node: str
    containers: tuple[str, ...]
    seats: tuple[Seat, ...]
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the annotations of a dialect want of the card; ``models`` are parts of a card's name."""

    models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    policy: Policy | None = None


def no_wishes(annotations: Mapping[str, object]) -> Wishes:
    return Wishes()


def no_texts(dialect: Dialect, bound: Bound) -> Annotations:
    return {}


def no_env(dialect: Dialect, bound: Bound, seat: Seat, digest: str) -> Mapping[str, str]:
    return {}


def not_told(
    annotations: Mapping[str, object], containers: Sequence[str]
) -> Mapping[str, tuple[int, ...]]:
    return {}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of asking.

    ``resources``: where a container has several, the first of them that it has brings the cards.
    ``read`` turns an Ask into a demand, or raises Refusal. ``annotations`` and ``labels`` are put on
    the pod with the bind, ``started`` when a container of it starts; of these, ``protected`` are the
    keys (those that end in '*' are prefixes) that nobody but us may write. ``environment`` is for one
    container. ``told`` reads from such annotations the cards' indexes of each container, to take over
    pods that the other system had bound. ``count`` is a resource of the node that holds the number of
    its cards, ``routes`` the prefix of that system's extender URLs, ``unhealthy_map`` how the names of
    its ConfigMaps of unhealthy cards begin, ``claims`` the API group of its claims.
    """

    name: str
    resources: tuple[Resource, ...]
    read: Callable[[Dialect, Ask], Demand]
    wishes: Callable[[Mapping[str, object]], Wishes] = no_wishes
    annotations: Callable[[Dialect, Bound], Annotations] = no_texts
    labels: Mapping[str, str] = field(default_factory=dict)
    started: Mapping[str, str] = field(default_factory=dict)
    protected: tuple[str, ...] = ()
    environment: Callable[[Dialect, Bound, Seat, str], Mapping[str, str]] = no_env
    told: Callable[[Mapping[str, object], Sequence[str]], Mapping[str, tuple[int, ...]]] = not_told
    several_cards: bool = False
    count: str = ""
    unhealthy_map: str = ""
    claims: str = ""
    routes: str = ""

    @property
    def unit(self) -> Unit:
        """What its memory resource counts; one MiB where it has none."""
        return next((r.unit for r in self.resources if r.unit is not None), Unit(1))

    @property
    def counted(self) -> tuple[Resource, ...]:
        """The resources that the device plugin offers."""
        return tuple(resource for resource in self.resources if resource.counted)

    def counting_in(self, unit: Unit) -> Dialect:
        """The same dialect with another unit of memory. Raises ValueError where it counts none."""
        if all(resource.unit is None for resource in self.resources):
            raise ValueError(
                f"{self.name} counts no memory, so it has no unit: leave out ':{unit}'"
            )
        resources = tuple(r if r.unit is None else replace(r, unit=unit) for r in self.resources)
        return replace(self, resources=resources)

    def protects(self, key: str) -> bool:
        return any(key.startswith(p[:-1]) if p.endswith("*") else key == p for p in self.protected)


def refuse(problem: str, fix: str) -> Refusal:
    """A request that can never be met as written."""
    return Refusal(Reason(Code.BAD_REQUEST, {"problem": problem, "fix": fix}))


def percent_demand(resource: str, percent: int) -> Demand:
    """Per cent of one card, or whole cards in steps of 100. Raises Refusal for what is neither."""
    if percent < 100:
        return Demand(mib=None, percent=percent)
    if percent % 100:
        raise refuse(
            f"{resource}: {percent} is more than one card but not a number of whole cards",
            f"use at most 100, or {percent // 100 * 100} or {-(-percent // 100) * 100}",
        )
    return whole_cards(resource, percent // 100)


_MOST_CARDS = 64
_MOST_MIB = 1 << 30


def whole_cards(resource: str, cards: int) -> Demand:
    if cards > _MOST_CARDS:
        raise refuse(f"{resource}: {cards} cards are more than any node has", "ask for fewer")
    return Demand(mib=None, percent=100, cards=cards, whole=True)


def memory(resource: str, count: int, unit: Unit) -> int:
    """``count`` units in MiB. Raises Refusal for what no card has."""
    if count * unit.mib > _MOST_MIB:
        raise refuse(f"{resource}: {count} {unit} is larger than any card", "ask for less")
    return count * unit.mib


def listed(value: object) -> tuple[str, ...]:
    """The parts of a text with commas."""
    parts = value.split(",") if isinstance(value, str) else ()
    return tuple(part.strip() for part in parts if part.strip())


def index_list(value: object) -> tuple[int, ...]:
    """'0' or '0,1' as numbers; () for anything else."""
    parts = listed(value)
    if not parts or not all(
        part.isascii() and part.isdecimal() and len(part) < 4 for part in parts
    ):
        return ()
    return tuple(int(part) for part in parts)
