"""Which of the nodes that fit is best: kube-scheduler's 0 to 10.

One node alone gets 10, so that the decision is ours and not that of the scheduler's other plugins or
of chance; the rest follow by how well they suit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from extender.fleet import Fleet
from gpushare.request import PodRequest, Policy

BEST = 10


def score(fleet: Fleet, names: Sequence[str], request: PodRequest, policy: Policy) -> list[int]:
    """A score for each named node.

    binpack: the tightest card wins, then the fuller node. spread: the freest card, then the emptier
    node. Equal nodes: the one named first by its name, so that equal states give equal answers.
    """
    if not names:
        return []
    policy = request.policy or policy
    rest, total = fleet.remainders(names, request, policy)
    if policy is Policy.SPREAD:
        rest, total = -rest, -total
    order = np.lexsort((total, rest))
    best_rest, best_total = rest[order[0]], total[order[0]]
    equal = np.flatnonzero((rest == best_rest) & (total == best_total))
    best = min(equal.tolist(), key=lambda i: names[i])
    ranks = np.empty(len(names), np.int64)
    ranks[order] = np.arange(len(names))
    values = (BEST - 1) - ranks * (BEST - 1) // max(1, len(names) - 1)
    values[best] = BEST
    return [int(value) for value in values]
