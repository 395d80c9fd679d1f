"""What would have to end so that a pod fits: the fewest slices, on the cards where that is least.

For requests of one container; where several containers ask, no answer is given rather than a wrong
one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from gpushare.assignment import CardState
from gpushare.ledger import NodeAccount
from gpushare.request import Demand, PodRequest

# Up to so many slices on a card every choice of them is looked at; beyond, the largest go first.
_EXACT = 10


@dataclass(frozen=True, slots=True)
class Way:
    """If the pods ``uids`` ended, the request would fit on ``cards`` of ``node``.

    ``weight`` orders ways: how many slices, then how many MiB of them.
    """

    weight: tuple[int, int]
    node: str
    cards: tuple[str, ...]
    uids: tuple[str, ...]


def fewest(
    holders: Mapping[str, tuple[int, int]], short_mib: int, short_percent: int
) -> tuple[str, ...] | None:
    """The fewest holders, and of those the smallest, that hold so much together; None if none do."""

    def enough(uids: Iterable[str]) -> bool:
        held = [holders[uid] for uid in uids]
        return sum(m for m, _ in held) >= short_mib and sum(p for _, p in held) >= short_percent

    if not enough(holders):
        return None
    if len(holders) <= _EXACT:
        for size in range(len(holders) + 1):
            fitting = [group for group in combinations(sorted(holders), size) if enough(group)]
            if fitting:
                return min(fitting, key=lambda group: sum(holders[uid][0] for uid in group))
    chosen = sorted(holders, key=lambda uid: (holders[uid], uid), reverse=True)
    for uid in reversed(chosen):
        if enough(other for other in chosen if other != uid):
            chosen.remove(uid)
    return tuple(chosen)


def ways(request: PodRequest, nodes: Iterable[NodeAccount], most: int = 1) -> list[Way]:
    """The cheapest ways to make room, one per node at most, cheapest first."""
    if len(request.containers) != 1:
        return []
    demand = request.containers[0].demand
    # What is surely needed is quickly known, so that most nodes need not be looked at closely.
    bounded = [(bound, node) for node in nodes if (bound := _least(request, demand, node)) >= 0]
    bounded.sort(key=lambda item: (item[0], item[1].name))
    found: list[Way] = []
    for bound, node in bounded:
        if len(found) >= most and bound > found[most - 1].weight[0]:
            break
        way = _on_node(request, demand, node)
        if way is not None:
            found.append(way)
            found.sort(key=lambda way: (way.weight, way.node, way.cards))
    return found[:most]


def _least(request: PodRequest, demand: Demand, node: NodeAccount) -> int:
    """So many slices of the node have to end at least; -1 if it can never take the pod."""
    counts = []
    for state in node.states():
        if not state.card.healthy or not request.allows(state.card):
            continue
        account = node.accounts.get(state.card.uuid)
        holders = account.holders if account else {}
        if demand.whole:
            counts.append(len(holders))
            continue
        mib, percent = demand.on(state.card)
        shares = holders.values()
        needed = (
            _count(sorted((m for m, _ in shares), reverse=True), mib - state.free_mib),
            _count(sorted((p for _, p in shares), reverse=True), percent - state.free_percent),
        )
        if min(needed) >= 0:
            counts.append(max(needed))
    return sum(sorted(counts)[: demand.cards]) if len(counts) >= demand.cards else -1


def _count(amounts: list[int], short: int) -> int:
    """How many of the largest make up for ``short``; -1 if all do not."""
    count = 0
    while short > 0 and count < len(amounts):
        short -= amounts[count]
        count += 1
    return -1 if short > 0 else count


def _on_node(request: PodRequest, demand: Demand, node: NodeAccount) -> Way | None:
    single = sorted(_single(request, demand, node), key=lambda way: (way.weight, way.cards))
    if len(single) < demand.cards:
        return None
    chosen = single[: demand.cards]
    uids = tuple(dict.fromkeys(uid for way in chosen for uid in way.uids))
    weight = (len(uids), sum(way.weight[1] for way in chosen))
    return Way(weight, node.name, tuple(card for way in chosen for card in way.cards), uids)


def _single(request: PodRequest, demand: Demand, node: NodeAccount) -> Iterator[Way]:
    for state in node.states():
        if not state.card.healthy or not request.allows(state.card):
            continue
        account = node.accounts.get(state.card.uuid)
        holders = account.holders if account else {}
        uids = _of_card(state, holders, demand)
        if uids is not None:
            weight = (len(uids), sum(holders[uid][0] for uid in uids))
            yield Way(weight, node.name, (state.card.uuid,), uids)


def _of_card(
    state: CardState, holders: Mapping[str, tuple[int, int]], demand: Demand
) -> tuple[str, ...] | None:
    if demand.whole:
        return tuple(sorted(holders))
    mib, percent = demand.on(state.card)
    return fewest(holders, mib - state.free_mib, percent - state.free_percent)
