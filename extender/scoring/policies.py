"""The table of policies, and the simple ones.

A policy looks at rows once per ask and change (``examine``, cached) and turns what it saw into marks
for all nodes at each decision (``mark``). Of equal marks the first row wins, so the owner's order of
rows is the tie-break.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from extender.scoring.ask import Ask
from extender.scoring.fgd import Fgd
from extender.scoring.fragmentation import Fragmentation
from extender.scoring.nodes import Bools, Floats, Ints, NodeTable, Rows
from extender.scoring.placing import card_fits, needs, node_fits
from extender.scoring.target import Target

# An array per name, all with one row per node.
Seen = dict[str, np.ndarray]

DEFAULT = "fragmentation"
# Larger than all free memory of a node in MiB, and small enough that sums of both stay exact.
_WEIGHT = float(1 << 24)


class Policy(Protocol):
    """What ``Scorer`` asks of a policy."""

    def examine(self, rows: Rows, which: Ints, ask: Ask, allowed: Bools) -> Seen:
        """All that can be kept of ``rows``, which are the table's rows ``which``, until they change."""
        ...

    def changed(self, table: NodeTable, which: Ints) -> None:
        """Rows of the table have changed; called before marks are asked for."""
        ...

    def mark(self, seen: Seen, ask: Ask) -> tuple[Floats, Ints]:
        """A mark for every node, higher is better, and the card it assumes (-1: no choice)."""
        ...


class Simple:
    """A policy that prefers the lowest (card's rank, node's rank) and knows only the node itself."""

    def __init__(
        self,
        card: Callable[[Floats], Floats],
        between_nodes: Callable[[Floats, Floats], Floats],
    ) -> None:
        self.card, self.between_nodes = card, between_nodes

    def examine(self, rows: Rows, which: Ints, ask: Ask, allowed: Bools) -> Seen:
        cards = card_fits(rows, ask, allowed)
        left = (rows.free - needs(rows, ask)).astype(np.float64)
        rank = np.where(cards, self.card(left), np.inf)
        column = rank.argmin(axis=1)
        best = left[np.arange(len(rows)), column] if ask.cards else np.zeros(len(rows))
        total = np.where(rows.usable, rows.free, 0).sum(axis=1).astype(np.float64)
        return {
            "fits": node_fits(rows, ask, cards),
            "card": column if ask.shares else np.full(len(rows), -1),
            "value": -self.between_nodes(best, total),
        }

    def changed(self, table: NodeTable, which: Ints) -> None:
        pass

    def mark(self, seen: Seen, ask: Ask) -> tuple[Floats, Ints]:
        return np.where(seen["fits"], seen["value"], -np.inf), seen["card"]


def _first_fit(target: Target) -> Policy:
    """The first node in order, there the tightest card."""
    return Simple(lambda left: left, lambda best, total: np.zeros_like(best))


def _binpack(target: Target) -> Policy:
    """The tightest card of all, then the fuller node."""
    return Simple(lambda left: left, lambda best, total: best * _WEIGHT + total)


def _spread(target: Target) -> Policy:
    """The freest card of all, then the emptier node."""
    return Simple(lambda left: -left, lambda best, total: -(best * _WEIGHT + total))


POLICIES: dict[str, Callable[[Target], Policy]] = {
    "fragmentation": Fragmentation,
    "fgd": Fgd,
    "binpack": _binpack,
    "spread": _spread,
    "first-fit": _first_fit,
}


def make_policy(name: str, target: Target) -> Policy:
    """The policy called ``name``. Raises ValueError that lists the names there are."""
    if name not in POLICIES:
        raise ValueError(f"policy {name!r} is not known: use one of {', '.join(POLICIES)}")
    return POLICIES[name](target)
