"""The inflation experiment: pods arrive one by one until 130 % of all cards have been asked for.

Nobody leaves, and what fits nowhere is dropped, though counted as arrived. The policies are those of
``extender.scoring``, called as the extender calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from extender.scoring import Ask, NodeTable, Scorer, Target, Workload, make_policy
from tests.bench.packing.traces import CARD, Node, Pod, arrivals, popularity, table_of

UPTO = 1.3
# FGD's own choice: classes until 95 % of all pods are covered.
FGD_COVER = 0.95
LEARNED = "fragmentation, learned"


@dataclass(frozen=True)
class Run:
    """One policy on one trace with one seed; all but counts and ms in per cent of the cards.

    ``first_refused``: what had been asked for when the first pod with a card was refused.
    """

    trace: str
    policy: str
    seed: int
    at_100: float
    at_130: float
    refused_8: int
    asked_8: int
    refused: int
    first_refused: float
    ms: float
    curve: list[float]


def run(trace: str, pods: list[Pod], nodes: list[Node], policy: str, seed: int) -> Run:
    order, ranked = arrivals(pods, nodes, seed, UPTO)
    nodes = [nodes[i] for i in ranked]
    table = table_of(nodes)
    host_memory = np.array([node.memory for node in nodes])
    workload = Workload() if policy == LEARNED else None
    target = target_of(policy, pods)
    scorer = Scorer(table, make_policy(policy.split(",")[0], target), remembered=512)
    total = sum(node.cards for node in nodes) * CARD
    arrived = allocated = 0
    asked_8 = refused_8 = refused = 0
    first_refused = at_100 = 0.0
    curve: list[float] = []
    spent = 0.0
    for number, i in enumerate(order):
        pod = pods[i]
        began = perf_counter()
        if workload is not None and pod.ask.cards:
            workload.observe(pod.ask, float(number))
            fresh = workload.target(float(number))
            if fresh is not target:
                target = fresh
                scorer = Scorer(table, make_policy("fragmentation", target), remembered=512)
        marks = scorer.marks(pod.ask)
        row = marks.best(host_memory >= pod.memory)
        columns = scorer.cards(row, pod.ask, marks) if row >= 0 else ()
        spent += perf_counter() - began
        arrived += pod.milli
        asked_8 += pod.ask.cards == 8
        if row >= 0:
            take(table, row, columns, pod.ask, +1)
            host_memory[row] -= pod.memory
            allocated += pod.milli
        elif pod.ask.cards:
            refused_8 += pod.ask.cards == 8
            first_refused = first_refused or 100 * arrived / total
            refused += arrived <= total
        if not at_100 and arrived >= total:
            at_100 = 100 * allocated / total
        while len(curve) <= 100 * arrived / total:
            curve.append(100 * allocated / total)
    return Run(
        trace, policy, seed, at_100, 100 * allocated / total, refused_8, asked_8, refused,
        first_refused or 100 * UPTO, 1000 * spent / len(order), curve,
    )  # fmt: skip


def target_of(policy: str, pods: list[Pod]) -> Target:
    """What the policy is told of the trace: FGD as its authors did, ours the pods with cards."""
    if policy == LEARNED:
        return Target((), ())
    if policy == "fgd":
        return Target.of(popularity(pods), cover=FGD_COVER)
    return Target.of({ask: n for ask, n in popularity(pods).items() if ask.cards}, Workload.LIMIT)


def take(table: NodeTable, row: int, columns: tuple[int, ...], ask: Ask, sign: int) -> None:
    """Put the pod on those cards (+1), or take it off again (-1)."""
    mib = CARD if ask.whole else ask.mib or 0
    percent = 100 if ask.whole else ask.percent
    table.take(row, columns, sign * mib, sign * percent, sign * ask.cpu)
