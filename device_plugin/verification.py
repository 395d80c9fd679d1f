"""Whether a container may have the cards that its pod's placement names. Pure.

The placement is an annotation, so nothing in it is believed that can be checked: that it was
written for this very pod and node, that its amounts are what the container's limits ask for and
what the kubelet granted, that the cards are here and well, and that they are not full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from device_plugin.pod import visible_source
from device_plugin.refusal import Code, Refused
from gpushare.cards import Card
from gpushare.dialects.speech import adopted, told
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share, decode
from gpushare.pods import annotation, bound_at, pod_ref
from gpushare.reasons import Refusal
from gpushare.request import ContainerRequest, Demand, PodRequest, Role, parse_request
from gpushare.units import Unit, human_mib
from gpushare.visibility import VOID, cards_seen, field_path

# A driver update changes a card's memory by a little. Slices in per cent of the card follow it.
_DRIFT = 0.05


class Visible(StrEnum):
    """What the pod's own NVIDIA_VISIBLE_DEVICES must be on a node."""

    ANY = "any"  # ours replaces it
    VOID = "void"  # it replaces ours: void, or the container's own cards
    CARDS = "cards"  # it is all there is: the container's own cards


@dataclass(frozen=True, slots=True)
class Node:
    """The node that a container starts on. ``cards`` by uuid; ``problem`` is why there are none.

    ``resources``: those that we serve. ``visible``: what the variable NVIDIA_VISIBLE_DEVICES of a
    container must be, with this ``runtime``. Pods that were bound before
    ``adopt_before`` (seconds since the epoch) are believed what another system's annotations say of
    their cards.
    """

    name: str
    names: Names
    unit: Unit
    cards: Mapping[str, Card]
    problem: str = ""
    resources: tuple[str, ...] = ()
    visible: Visible = Visible.ANY
    adopt_before: float = 0.0
    runtime: str = ""

    def __post_init__(self) -> None:
        if not self.resources:
            object.__setattr__(self, "resources", self.names.resources)


@dataclass(frozen=True, slots=True)
class Verified:
    """A container that may start: its shares, and what its whole pod holds of each card at its peak."""

    container: ContainerPlacement
    footprint: Mapping[str, tuple[int, int]]


def placement_of(pod: Mapping[str, Any], node: Node) -> Placement:
    """The pod's placement, known to be the pod's own and for this node. Raises Refused."""
    key = node.names.placement
    text = annotation(pod, key)
    if text is None:
        return _adopted(pod, node)
    try:
        placement = decode(text)
    except ValueError as error:
        raise Refused(Code.BAD_PLACEMENT, annotation=key, problem=error) from None
    if placement.uid != pod_ref(pod).uid:
        raise Refused(Code.OTHER_POD, annotation=key, uid=placement.uid)
    if placement.node != node.name:
        raise Refused(Code.OTHER_NODE, there=placement.node, node=node.name)
    return placement


def _adopted(pod: Mapping[str, Any], node: Node) -> Placement:
    """The placement of a pod that another system bound before we came. Raises Refused."""
    if not 0 < bound_at(pod) < node.adopt_before:
        raise Refused(Code.NOT_PLACED)
    try:
        request = parse_request(pod, node.names, node.unit)
    except Refusal:
        raise Refused(Code.NOT_PLACED) from None
    indexes = told(node.names, pod, request)
    found = adopted(indexes, request, pod_ref(pod).uid, node.name, node.cards)
    if found is None:
        raise Refused(Code.NOT_PLACED)
    return found


def verify(
    pod: Mapping[str, Any], container: str, granted: Mapping[str, int], node: Node
) -> Verified:
    """Check ``container`` of ``pod`` against all but the other pods.

    ``granted`` is the number of ids that the kubelet gave it of each resource. The amounts in the
    answer are those of the cards as they are now. Raises Refused.
    """
    placement = placement_of(pod, node)
    placed = placement.container(container)
    if placed is None:
        raise Refused(Code.NOT_IN_PLACEMENT, container=container)
    try:
        request = parse_request(pod, node.names, node.unit)
    except Refusal as refusal:
        raise Refused(Code.BAD_REQUEST, container=container, problem=refusal) from None
    wanted = next((c for c in request.containers if c.name == container), None)
    if wanted is None:
        problem = "its limits name none of our resources, its ids do"
        raise Refused(Code.BAD_REQUEST, container=container, problem=problem)
    if wanted.role is not placed.role:
        raise _other_amounts(wanted, placed)
    _check_ids(wanted, granted, node)
    cards = [_card(share, node) for share in placed.shares]
    _check_choice(request, cards)
    _check_amounts(wanted, placed, cards)
    demands = {c.name: c.demand for c in request.containers}
    now = [_as_now(c, demands.get(c.name), node.cards) for c in placement.containers]
    footprint = replace(placement, containers=tuple(now)).footprint()
    return Verified(_as_now(placed, wanted.demand, node.cards), footprint)


def check_visible(pod: Mapping[str, Any], placed: ContainerPlacement, node: Node) -> None:
    """Where our own variable does not count, the pod's must be as it should.

    Either it comes from the annotation, and that agrees with the placement, or it is void, where the
    cards come by CDI. Else a runtime of NVIDIA's would show the container what its image wants, and
    that is often every card. Raises Refused.
    """
    if node.visible is Visible.ANY:
        return
    source, field = visible_source(pod, placed.name), field_path(node.names, placed.name)
    if source == VOID and node.visible is Visible.VOID:
        return
    if source != field:
        raise Refused(
            Code.NO_CDI if node.visible is Visible.CARDS else Code.OWN_VISIBLE,
            node=node.name,
            runtime=node.runtime,
            container=placed.name,
            field=field,
        )
    key = node.names.visible(placed.name)
    says = annotation(pod, key)
    if says != cards_seen(placed):
        raise Refused(
            Code.OTHER_VISIBLE, annotation=key, says=says or "nothing", placed=cards_seen(placed)
        )


def check_room(
    verified: Verified, held: Mapping[str, tuple[int, int]], cards: Mapping[str, Card]
) -> None:
    """Check that the container's cards have room beside ``held`` (card -> MiB, per cent).

    ``held`` is what other pods hold. Raises Refused for a card that would be over-committed.
    """
    for share in verified.container.shares:
        card = cards[share.card]
        held_mib, held_percent = held.get(share.card, (0, 0))
        mib, percent = verified.footprint[share.card]
        if held_mib + mib > card.memory or held_percent + percent > 100:
            raise Refused(
                Code.FULL_CARD,
                card=describe(card),
                has=human_mib(card.memory),
                held=_amount(held_mib, held_percent),
                container=verified.container.name,
                wanted=_amount(share.mib, share.percent),
            )


def _check_ids(wanted: ContainerRequest, granted: Mapping[str, int], node: Node) -> None:
    demand, names = wanted.demand, node.names
    expected = {
        names.gpu_mem: 0 if demand.mib is None else demand.mib // node.unit.mib,
        names.gpu_percent: demand.percent * (demand.cards if demand.whole else 1),
    }
    if wanted.dialect:
        expected = dict.fromkeys(names.all_resources, 0) | dict(wanted.devices)
    for resource, count in expected.items():
        if granted.get(resource, 0) != count:
            raise Refused(
                Code.OTHER_IDS,
                container=wanted.name,
                wanted=count,
                resource=resource,
                granted=granted.get(resource, 0),
            )


def _card(share: Share, node: Node) -> Card:
    card = node.cards.get(share.card)
    if card is None:
        if node.problem:
            raise Refused(Code.NO_DRIVER, problem=node.problem)
        raise Refused(Code.NO_CARD, card=share.card, node=node.name)
    if not card.healthy:
        raise Refused(Code.SICK_CARD, card=describe(card), problem=card.health)
    return card


def _check_choice(request: PodRequest, cards: list[Card]) -> None:
    for card in cards:
        if not request.allows(card):
            raise Refused(Code.WRONG_CARD, wanted=request.wanted, card=describe(card))


def _check_amounts(wanted: ContainerRequest, placed: ContainerPlacement, cards: list[Card]) -> None:
    if len(placed.shares) != wanted.demand.cards:
        raise _other_amounts(wanted, placed)
    for share, card in zip(placed.shares, cards, strict=True):
        mib, percent = wanted.demand.on(card)
        tolerated = card.memory * _DRIFT if wanted.demand.mib is None else 0
        if share.percent != percent or abs(share.mib - mib) > tolerated:
            raise _other_amounts(wanted, placed)


def _as_now(
    placed: ContainerPlacement, demand: Demand | None, cards: Mapping[str, Card]
) -> ContainerPlacement:
    """The same shares in the MiB that their per cent of the cards is today."""
    if demand is None or demand.mib is not None:
        return placed
    shares = tuple(
        replace(share, mib=demand.on(cards[share.card])[0]) if share.card in cards else share
        for share in placed.shares
    )
    return replace(placed, shares=shares)


def _other_amounts(wanted: ContainerRequest, placed: ContainerPlacement) -> Refused:
    demand, shares = wanted.demand, placed.shares
    size = f"{demand.percent} % of a card" if demand.mib is None else human_mib(demand.mib)
    if demand.mib is not None and demand.percent:
        size += f" and {demand.percent} %"
    return Refused(
        Code.OTHER_AMOUNTS,
        container=wanted.name,
        wanted=f"{size} on {demand.cards} card(s)" + _as_role(wanted.role),
        placed=" and ".join(_amount(s.mib, s.percent) for s in shares) + _as_role(placed.role),
    )


def _as_role(role: Role) -> str:
    return "" if role is Role.APP else f" (as {role} container)"


def _amount(mib: int, percent: int) -> str:
    return f"{human_mib(mib)} and {percent} %" if percent else human_mib(mib)


def describe(card: Card) -> str:
    """A card for people: '0 (T4, GPU-…)'."""
    return f"{card.index} ({card.short_model}, {card.uuid})"
