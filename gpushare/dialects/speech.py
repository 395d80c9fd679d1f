"""What is said about a placed pod in the dialects that it asked in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpushare.cards import Card
from gpushare.dialects.dialect import Bound, Dialect, Seat
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.request import PodRequest

Cards = Mapping[str, Card]
# The cards' indexes of each container.
Told = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Marks:
    """Annotations and labels for a pod."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def at_bind(
    names: Names, request: PodRequest, placement: Placement, cards: Cards, at_ns: int
) -> Marks:
    """What is put on the pod in the same write that binds it."""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    for dialect, bound in _spoken(names, request, placement, cards, at_ns):
        annotations |= dialect.annotations(dialect, bound)
        labels |= dialect.labels
    return Marks(annotations, labels)


def at_start(names: Names, request: PodRequest, container: str) -> Mapping[str, str]:
    """The annotations that say that ``container`` has its cards."""
    dialect = _dialect_of(names, request, container)
    return dialect.started if dialect else {}


def environment(
    names: Names,
    request: PodRequest,
    placement: Placement,
    cards: Cards,
    container: str,
    digest: str,
) -> Mapping[str, str]:
    """The variables of ``container``; ``digest`` is the name of what it was granted."""
    for dialect, bound in _spoken(names, request, placement, cards, 0):
        for seat in bound.seats:
            if seat.name == container:
                return dialect.environment(dialect, bound, seat, digest)
    return {}


def told(names: Names, pod: Mapping[str, Any], request: PodRequest) -> Told:
    """The cards that another system's annotations name for each container of the pod.

    Nothing here says that the annotations may be believed: that is the caller's business.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    found = []
    for container in request.containers:
        dialect = _dialect_of(names, request, container.name)
        if dialect is None:
            return ()
        indexes = dialect.told(annotations, request.names).get(container.name, ())
        found.append((container.name, indexes))
    return tuple(found)


def adopted(told: Told, request: PodRequest, uid: str, node: str, cards: Cards) -> Placement | None:
    """The placement that the other system gave the pod; None where it cannot be one."""
    by_index = {card.index: card for card in cards.values()}
    indexes, placed = dict(told), []
    for container in request.containers:
        named = indexes.get(container.name, ())
        found = [by_index[index] for index in named if index in by_index]
        if len(found) != len(named) or len(found) != container.demand.cards:
            return None
        shares = tuple(Share(card.uuid, *container.demand.on(card)) for card in found)
        placed.append(ContainerPlacement(container.name, container.role, shares))
    return Placement(uid, node, tuple(placed)) if placed else None


def _dialect_of(names: Names, request: PodRequest, container: str) -> Dialect | None:
    name = next((c.dialect for c in request.containers if c.name == container), "")
    return next((d for d in names.spoken if d.name == name), None) if name else None


def _spoken(
    names: Names, request: PodRequest, placement: Placement, cards: Cards, at_ns: int
) -> Iterator[tuple[Dialect, Bound]]:
    for dialect in names.spoken:
        seats = tuple(_seats(dialect, request, placement, cards))
        if seats:
            yield dialect, Bound(placement.node, request.names, seats, at_ns)


def _seats(
    dialect: Dialect, request: PodRequest, placement: Placement, cards: Cards
) -> Iterator[Seat]:
    for container in request.containers:
        placed = placement.container(container.name)
        if container.dialect != dialect.name or placed is None:
            continue
        shares = tuple(share for share in placed.shares if share.card in cards)
        if shares:
            on = tuple(cards[share.card] for share in shares)
            yield Seat(container.name, container.role, dict(container.counts), on, shares)
