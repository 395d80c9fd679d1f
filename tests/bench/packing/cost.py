"""What a decision costs against the number of nodes: ``python -m tests.bench.packing.cost``.

A decision is marks for all nodes and the choice of node and cards, on a cluster of 8-card nodes that is
three quarters full and stays so: each pod that is placed replaces one that leaves somewhere else.
"""

from __future__ import annotations

import sys
from itertools import product
from time import perf_counter

import numpy as np

from extender.scoring import POLICIES, Ask, NodeTable, Scorer, Target, make_policy
from tests.bench.results import Figure, publish, spread

SIZES = (10, 100, 1000, 5000)
DECISIONS = 400
COLUMNS = 8
_MODELS = (("NVIDIA T4", 15360), ("NVIDIA A10", 23028))
_GIB = 1024
# The kinds of pods of a cluster with two models and the usual slices.
_ASKS = (
    *(
        Ask(mib=gib * _GIB, cpu=cpu, models=models)
        for gib, cpu, models in product((2, 3, 5, 7, 11), (1000, 2000), ((), ("T4",), ("A10",)))
        if not (gib == 11 and models == ("T4",))
    ),
    Ask(percent=25, cpu=2000),
    Ask(percent=50, cpu=4000),
    *(Ask(cards=k, percent=100, whole=True, cpu=4000 * k) for k in (1, 2, 4, 8)),
)


class _Cluster:
    """Nodes, and what sits on them: (row, columns, MiB, per cent, mCPU) of each pod."""

    def __init__(self, nodes: int) -> None:
        self.rng = np.random.default_rng(nodes)
        self.table = NodeTable(nodes, COLUMNS)
        self.pods: list[tuple[int, tuple[int, ...], int, int, int]] = []
        for row in range(nodes):
            model, memory = _MODELS[row % 2]
            self.table.set(
                row,
                memory=[memory] * COLUMNS,
                free=[memory] * COLUMNS,
                percent=[100] * COLUMNS,
                empty=[True] * COLUMNS,
                usable=[True] * COLUMNS,
                models=[model] * COLUMNS,
                cpu=96_000,
            )

    def fill(self) -> None:
        """Slices on three cards of four."""
        for row, column in product(range(self.table.shape[0]), range(COLUMNS)):
            if self.rng.random() < 0.75:
                gib = int(self.rng.choice((3, 5, 7, 11)))
                self.place(row, (column,), Ask(mib=gib * _GIB, cpu=2000))

    def place(self, row: int, columns: tuple[int, ...], ask: Ask) -> None:
        memory = int(self.table.memory[row, 0])
        mib = memory if ask.whole else memory * ask.percent // 100 if ask.mib is None else ask.mib
        percent = 100 if ask.whole else ask.percent
        self.table.take(row, columns, mib, percent, ask.cpu)
        self.pods.append((row, columns, mib, percent, ask.cpu))

    def leave(self) -> None:
        """Some pod goes."""
        pods = self.pods
        i = int(self.rng.integers(len(pods)))
        pods[i], pods[-1] = pods[-1], pods[i]
        row, columns, mib, percent, cpu = pods.pop()
        self.table.take(row, columns, -mib, -percent, -cpu)

    def ask(self) -> Ask:
        return _ASKS[int(self.rng.integers(len(_ASKS)))]


def measure(policy: str, nodes: int) -> tuple[list[float], float]:
    """(ms of each decision, ms of the first one, which looks at every node)."""
    cluster = _Cluster(nodes)
    cluster.fill()
    target = Target.of(dict.fromkeys(_ASKS, 1.0))
    scorer = Scorer(cluster.table, make_policy(policy, target))
    began = perf_counter()
    scorer.marks(_ASKS[0])
    first = 1000 * (perf_counter() - began)
    for ask in _ASKS:
        scorer.marks(ask)
    times = []
    for _ in range(DECISIONS):
        ask = cluster.ask()
        began = perf_counter()
        marks = scorer.marks(ask)
        row = marks.best()
        columns = scorer.cards(row, ask, marks) if row >= 0 else ()
        times.append(1000 * (perf_counter() - began))
        if row >= 0:
            cluster.place(row, columns, ask)
            cluster.leave()
    return times, first


def main() -> int:
    figures: list[Figure] = []
    for policy in POLICIES:
        for nodes in SIZES:
            times, first = measure(policy, nodes)
            size = f"{nodes} nodes"
            figures += spread(f"decision, {policy}", size, times, "ms")
            figures.append(Figure(f"first look, {policy}", size, first, "ms"))
    publish("packing_cost", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
