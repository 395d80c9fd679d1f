"""FGD by its formula, written out once more in plain Python."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given, settings

from extender.scoring import Ask, Scorer, Target, make_policy
from tests.unit.scoring import clusters as make
from tests.unit.scoring.clusters import MODELS, Cluster, Node


def need(ask: Ask, node: Node) -> int:
    memory = MODELS[node.model]
    if ask.whole:
        return memory
    return memory * ask.percent // 100 if ask.mib is None else ask.mib


def takes(node: Node, card: int, ask: Ask) -> bool:
    if not node.healthy[card] or not ask.allows(node.model):
        return False
    if ask.whole:
        return node.empty[card]
    return node.free[card] >= need(ask, node) and node.percent[card] >= ask.percent


def fragmentation(node: Node, target: Target) -> float:
    memory = MODELS[node.model]
    cards = [i for i in range(len(node.free)) if node.healthy[i]]
    milli = {i: 1000 * node.free[i] / memory for i in cards}
    total = sum(milli.values())
    for ask, popularity in zip(target.asks, target.popularity, strict=True):
        fitting = [i for i in cards if takes(node, i, ask)]
        if len(fitting) >= ask.cards and node.cpu >= ask.cpu:
            total -= popularity * sum(milli[i] for i in fitting)
    return total


def with_ask(node: Node, card: int, ask: Ask) -> Node:
    free, percent, empty = list(node.free), list(node.percent), list(node.empty)
    free[card] -= need(ask, node)
    percent[card] -= ask.percent
    empty[card] = False
    return replace(node, cpu=node.cpu - ask.cpu, free=free, percent=percent, empty=empty)


@settings(deadline=None)
@given(cluster=make.clusters, ask=make.shares, target=make.targets)
def test_a_share_goes_where_fragmentation_grows_least(
    cluster: Cluster, ask: Ask, target: Target
) -> None:
    marks = Scorer(cluster.table(), make_policy("fgd", target)).marks(ask)
    for row, node in enumerate(cluster.nodes):
        before = fragmentation(node, target)
        scores = {
            card: math.floor(
                100
                / (
                    1
                    + math.exp(
                        round(fragmentation(with_ask(node, card, ask), target) - before, 7) / 1000
                    )
                )
            )
            for card in range(len(node.free))
            if takes(node, card, ask) and node.cpu >= ask.cpu
        }
        if scores:
            assert marks.value[row] == max(scores.values())
            assert scores[int(marks.card[row])] == max(scores.values())
