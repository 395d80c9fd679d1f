"""How much could be handed out at best: ``python -m tests.bench.packing.bound --traces FOLDER``.

A linear program over patterns of shares on a card, with cards and CPU summed up over nodes of one kind, for
what has arrived when 100 % of the cards have been asked for. Two bounds: one that may refuse whatever does
not suit it, and one that must take the same part of every kind of pod for as long as it can, as a scheduler
must that refuses nothing that fits. Real nodes do not pool their CPU, so both are out of reach.

Needs SciPy, which nothing else here does.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from extender.scoring import Ask
from tests.bench.packing import traces
from tests.bench.packing.variants import VARIANTS


def patterns(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """How many shares of each size (largest first) fill a card so that no more of the smallest fits."""

    def fill(i: int, left: int, counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if i == len(sizes):
            if not sizes or left < sizes[-1]:
                yield counts
            return
        for count in range(left // sizes[i], -1, -1):
            yield from fill(i + 1, left - count * sizes[i], (*counts, count))

    return fill(0, traces.CARD, ())


class _Rows:
    """A sparse system A x <= b, written one coefficient at a time."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, float]] = []
        self.limits: list[float] = []

    def add(self, row: list[tuple[int, float]], limit: float) -> None:
        self.entries += [(len(self.limits), column, value) for column, value in row]
        self.limits.append(limit)

    def solve(self, objective: Any, lower: Any, upper: Any) -> Any:
        from scipy import optimize, sparse  # type: ignore[import-not-found, import-untyped, unused-ignore]

        rows, columns, values = zip(*self.entries, strict=True)
        shape = (len(self.limits), len(objective))
        system = sparse.csr_matrix((values, (rows, columns)), shape=shape)
        answer = optimize.linprog(
            -objective, A_ub=system, b_ub=self.limits, bounds=np.c_[lower, upper], method="highs"
        )
        if answer.status:
            raise RuntimeError(f"the linear program has no solution: {answer.message}")
        return answer.x


def bounds(pods: list[traces.Pod], nodes: list[traces.Node], seed: int) -> tuple[float, float]:
    """(may refuse, must not refuse), in per cent of the cards."""
    order, _ = traces.arrivals(pods, nodes, seed, 1.0)
    total = sum(node.cards for node in nodes) * traces.CARD
    wanted = np.cumsum([pods[i].milli for i in order])
    arrived = Counter(pods[i].ask for i in order[: int(np.searchsorted(wanted, total)) + 1])
    kinds = list(Counter((node.model, node.cards, node.cpu) for node in nodes).items())
    asks = list(arrived)
    sizes = sorted({_share(ask) for ask in asks if _share(ask)}, reverse=True)
    fills = list(patterns(sizes))
    width = len(asks) + len(fills)
    rows = _Rows()
    size = len(kinds) * width + 1
    upper = np.full(size, np.inf)
    gain = np.zeros(size)
    for k, ((model, cards, cpu), count) in enumerate(kinds):
        at = k * width
        for a, ask in enumerate(asks):
            impossible = ask.cpu > cpu or (ask.cards and not ask.allows(model)) or ask.cards > cards
            upper[at + a] = 0 if impossible else count * (cards // ask.cards if ask.cards else 1e6)
            gain[at + a] = ask.cards * (traces.CARD if ask.whole else ask.mib or 0)
        rows.add([(at + a, ask.cpu) for a, ask in enumerate(asks)], cpu * count)
        whole = [(at + a, float(ask.cards)) for a, ask in enumerate(asks) if ask.whole]
        filled = [(at + len(asks) + f, 1.0) for f in range(len(fills))]
        rows.add(whole + filled, cards * count)
        for s, share in enumerate(sizes):
            uses = [(at + a, 1.0) for a, ask in enumerate(asks) if _share(ask) == share]
            gives = [
                (at + len(asks) + f, -float(fill[s])) for f, fill in enumerate(fills) if fill[s]
            ]
            rows.add(uses + gives, 0.0)
    everywhere = [[(k * width + a, 1.0) for k in range(len(kinds))] for a in range(len(asks))]
    for a, ask in enumerate(asks):
        rows.add(everywhere[a], arrived[ask])
    lower = np.zeros(size)
    free = gain @ rows.solve(gain, lower, upper)
    for a, ask in enumerate(asks):
        rows.add([(column, -1.0) for column, _ in everywhere[a]] + [(size - 1, arrived[ask])], 0.0)
    part = np.zeros(size)
    part[-1] = 1.0
    lower[-1] = rows.solve(part, lower, upper)[-1] * (1 - 1e-7)
    fair = gain @ rows.solve(gain, lower, upper)
    return 100 * free / total, 100 * fair / total


def _share(ask: Ask) -> int:
    return ask.mib or 0 if ask.cards == 1 and not ask.whole else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.packing.bound")
    parser.add_argument("--traces", metavar="FOLDER")
    parser.add_argument("--trace", action="append", metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=(42, 43, 44))
    options = parser.parse_args(arguments)
    try:
        folder = traces.folder(options.traces)
        nodes = traces.read_nodes(folder)
        print("| trace | at best | at best without refusing what fits |\n|---|---|---|")
        for name in options.trace or traces.names(folder):
            made = VARIANTS.get(name)
            pods = traces.read_pods(folder, "default" if made else name)
            found = [bounds(made(pods) if made else pods, nodes, seed) for seed in options.seeds]
            free, fair = (fmean(values) for values in zip(*found, strict=True))
            print(f"| {name} | {free:.2f} | {fair:.2f} |", flush=True)
    except traces.TracesMissing as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"{error}: the bound needs SciPy (pip install scipy)", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
