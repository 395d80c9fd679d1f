"""What a bound pod holds: whether its placement annotation may be believed.

Annotations can be written by whoever may edit a pod, so a placement is believed only where it could
have come from a binder of ours. Two facts decide what is safe otherwise:

* The device plugin starts no container without a valid placement. A pod that has not started and
  has no valid placement therefore holds nothing, and writing an annotation gains nobody a card.
* A pod that has started holds a slice whatever its annotation says by now. It is counted on every
  card that it could be on, so that tampering can never free what is in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from extender.facts import PodFact
from gpushare.assignment import CardState
from gpushare.cards import Card
from gpushare.dialects.speech import adopted
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.request import PodRequest


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to enter into the ledger, and, where something is wrong, what.

    ``provisional``: to be judged again when the node's cards change.
    """

    holds: Placement | None
    doubt: str = ""
    provisional: bool = False


def judge(fact: PodFact, states: Iterable[CardState], *, published: bool) -> Verdict:
    """Judge a bound, unfinished pod that is not in the ledger yet.

    ``states`` are the cards of its node without the pod itself; ``published`` says whether the node
    publishes cards at all at present.
    """
    free = {state.card.uuid: state for state in states}
    if fact.placement is None and fact.told:
        cards = {uuid: state.card for uuid, state in free.items()}
        found = adopted(fact.told, fact.request, fact.ref.uid, fact.node, cards)
        if found is not None:
            return Verdict(found)
    doubt = _doubt(fact)
    if doubt:
        return _without_placement(fact, free, doubt)
    placement = fact.placement
    assert placement is not None
    if not published:
        # Its cards cannot be checked now. Counting them is the safe side; it frees nothing.
        return Verdict(placement, provisional=not fact.started)
    cards = {uuid: state.card for uuid, state in free.items()}
    doubt = mismatch(fact.request, placement, cards, exact=not fact.started)
    if doubt:
        return _without_placement(fact, free, doubt)
    if not fact.started and not _fits(placement, free):
        return Verdict(None, "its placement is on cards that are taken", provisional=True)
    return Verdict(placement)


def _doubt(fact: PodFact) -> str:
    """What is wrong with the annotation, before its cards are looked at."""
    if fact.placement is None:
        return fact.placement_problem or "it has no placement"
    if fact.placement.uid != fact.ref.uid:
        return "its placement was written for another pod"
    if fact.placement.node != fact.node:
        return "its placement names another node"
    return ""


def _without_placement(fact: PodFact, free: Mapping[str, CardState], doubt: str) -> Verdict:
    if not fact.started:
        return Verdict(None, doubt, provisional=True)
    cards = [state.card for state in free.values()]
    holds = everywhere(fact, cards)
    return Verdict(holds, doubt, provisional=holds is None)


def everywhere(fact: PodFact, cards: Iterable[Card]) -> Placement | None:
    """The pod's demand on every card that it could be on. None where there is no such card."""
    allowed = [card for card in cards if fact.request.allows(card)]
    if not allowed or not fact.request:
        return None
    containers = tuple(
        ContainerPlacement(
            container.name,
            container.role,
            tuple(Share(card.uuid, *container.demand.on(card)) for card in allowed),
        )
        for container in fact.request.containers
    )
    return Placement(fact.ref.uid, fact.node, containers)


def mismatch(
    request: PodRequest, placement: Placement, cards: Mapping[str, Card], *, exact: bool
) -> str:
    """How ``placement`` differs from what ``request`` would have been given, or ''.

    Not ``exact``: the pod runs, so its card may have vanished, and its size may have been read
    differently when it was placed (by an earlier driver); only what cannot change is compared.
    """
    demands = {c.name: c for c in request.containers}
    if {c.name: c.role for c in placement.containers} != {n: c.role for n, c in demands.items()}:
        return "its placement names other containers than the pod has"
    for container in placement.containers:
        demand = demands[container.name].demand
        if len(container.shares) != demand.cards:
            return "its placement has another number of cards than the pod asks for"
        for share in container.shares:
            card = cards.get(share.card)
            if card is None:
                if exact:
                    return "its placement names a card that the node does not have"
                continue
            if not request.allows(card):
                return "its placement names a card that the pod does not allow"
            mib, percent = demand.on(card)
            derived = demand.mib is None and not exact
            if share.percent != percent or (share.mib != mib and not derived):
                return "its placement has other amounts than the pod asks for"
            if derived and abs(share.mib - mib) > mib // 10:
                return "its placement has other amounts than the pod asks for"
    return ""


def _fits(placement: Placement, free: Mapping[str, CardState]) -> bool:
    whole = {s.card for c in placement.containers for s in c.shares if s.percent == 100}
    for uuid, (mib, percent) in placement.footprint().items():
        state = free.get(uuid)
        if state is None or mib > state.free_mib or percent > state.free_percent:
            return False
        if uuid in whole and not state.empty:
            return False
    return True
