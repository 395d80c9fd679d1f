"""The same cluster with departures: ``python -m tests.bench.packing.churn --traces FOLDER``.

Pods of a trace are drawn at random, one after the other, and leave again after a time of their own, so
that ``LOAD`` times the cards are asked for on average. It begins with as many pods as there are in the long
run, each with the rest of its stay, and counts how much is handed out on average and how much of what was
asked for had to be refused, once a mean stay has gone by.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import sys
from collections.abc import Sequence

import numpy as np

from extender.scoring import Scorer, make_policy
from tests.bench.packing import traces
from tests.bench.packing.inflation import take, target_of

LOAD = 1.05
# Spread of the lognormal stays: the longest tenth of them takes more than half of all the time.
SIGMA = 1.5
POLICIES = ("first-fit", "binpack", "fgd", "fragmentation")


def run(
    pods: list[traces.Pod], nodes: list[traces.Node], policy: str, seed: int, turns: float
) -> tuple[float, float]:
    """(handed out on average, refused), in per cent of the cards and of what was asked for.

    ``turns``: for how many mean stays it is measured.
    """
    rng = np.random.default_rng(seed)
    nodes = [nodes[i] for i in rng.permutation(len(nodes))]
    table = traces.table_of(nodes)
    memory = np.array([node.memory for node in nodes])
    scorer = Scorer(table, make_policy(policy, target_of(policy, pods)), remembered=512)
    total = sum(node.cards for node in nodes) * traces.CARD
    stay = LOAD * total / statistics.fmean(pod.milli for pod in pods)
    leaving: list[tuple[float, int, int, tuple[int, ...], traces.Pod]] = []
    held = asked = refused = 0
    handed_out: list[float] = []
    first = round(LOAD * total / statistics.fmean(pod.milli for pod in pods))
    for number in range(first + round((1 + turns) * stay)):
        now = max(0, number - first)
        while leaving and leaving[0][0] <= now:
            _, _, row, columns, gone = heapq.heappop(leaving)
            take(table, row, columns, gone.ask, -1)
            memory[row] += gone.memory
            held -= gone.milli
        pod = pods[int(rng.integers(len(pods)))]
        if number < first:
            # Long stays are met more often than they begin, and somewhere in the middle.
            until = stay * rng.lognormal(SIGMA**2 / 2, SIGMA) * rng.random()
        else:
            until = now + stay * rng.lognormal(-(SIGMA**2) / 2, SIGMA)
        marks = scorer.marks(pod.ask)
        row = marks.best(memory >= pod.memory)
        if row >= 0:
            columns = scorer.cards(row, pod.ask, marks)
            take(table, row, columns, pod.ask, +1)
            memory[row] -= pod.memory
            held += pod.milli
            heapq.heappush(leaving, (until, number, row, columns, pod))
        if now >= stay:
            asked += pod.milli
            refused += pod.milli * (row < 0)
            handed_out.append(100 * held / total)
    return statistics.fmean(handed_out), 100 * refused / asked


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.packing.churn")
    parser.add_argument("--traces", metavar="FOLDER")
    parser.add_argument("--trace", action="append", metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=(42,))
    parser.add_argument("--turns", type=float, default=2.0)
    options = parser.parse_args(arguments)
    try:
        folder = traces.folder(options.traces)
        nodes = traces.read_nodes(folder)
        print("| trace | policy | handed out on average | refused of what was asked for |")
        print("|---|---|---|---|")
        for name in options.trace or traces.names(folder):
            pods = traces.read_pods(folder, name)
            for policy in POLICIES:
                runs = [run(pods, nodes, policy, seed, options.turns) for seed in options.seeds]
                mean, refused = (statistics.fmean(values) for values in zip(*runs, strict=True))
                print(f"| {name} | {policy} | {mean:.2f} | {refused:.2f} |", flush=True)
    except traces.TracesMissing as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
