"""FGD, fragmentation gradient descent, as published: the baseline that ours is measured against.

Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023. A node's fragmentation is what the next pod could not use of it, expected
over the target workload:

    F(n) = R(n) - sum of p_m * (what is free on cards that fit m), over the classes m that fit on n

with R what is free in all, in thousandths of a card. The pod goes where F grows least, by
int(100 * sigmoid((F before - F after) / 1000)).
"""

from __future__ import annotations

import numpy as np

from extender.scoring.ask import Ask
from extender.scoring.nodes import Bools, Floats, Ints, NodeTable, Rows
from extender.scoring.placing import after, card_fits, chosen, node_fits, touched
from extender.scoring.target import Target, TargetArrays


class Fgd:
    """The policy. All that it says of a node follows from that node alone."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._arrays = TargetArrays(target, [""], [1])
        self._layout = -1

    def changed(self, table: NodeTable, which: Ints) -> None:
        if table.layout != self._layout:
            self._layout = table.layout
            self._arrays = TargetArrays(self.target, table.model_names, table.model_memory)

    def examine(self, rows: Rows, which: Ints, ask: Ask, allowed: Bools) -> dict[str, np.ndarray]:
        cards = card_fits(rows, ask, allowed)
        before = self._fragmentation(rows)
        if ask.shares:
            then = np.where(cards, self._after_share(rows, ask), np.inf)
        else:
            picked = chosen(rows, ask, cards)
            then = self._fragmentation(after(rows, ask, picked))[:, None]
        # What is equal on paper must not fall to either side of a step by rounding errors.
        grown = np.round(then - before[:, None], 7)
        score = np.floor(100.0 / (1.0 + np.exp(grown / 1000.0)))
        column = score.argmax(axis=1)
        return {
            "fits": node_fits(rows, ask, cards),
            "card": column if ask.shares else np.full(len(rows), -1),
            "value": score[np.arange(len(rows)), column],
        }

    def mark(self, seen: dict[str, np.ndarray], ask: Ask) -> tuple[Floats, Ints]:
        return np.where(seen["fits"], seen["value"], -np.inf), seen["card"]

    def _fragmentation(self, rows: Rows) -> Floats:
        t, free = self._arrays, rows.milli()
        fits = t.card_fits(rows)
        can = (fits.sum(axis=1) >= t.cards) & t.cpu_fits(rows.cpu)
        usable = np.einsum("ng,ngm->nm", free, fits) * can
        fragmentation: Floats = free.sum(axis=1) - usable @ t.weight
        return fragmentation

    def _after_share(self, rows: Rows, ask: Ask) -> Floats:
        """[rows, columns]: the fragmentation with the ask on each of the cards in turn."""
        t = self._arrays
        then = touched(rows, ask)
        old, new = rows.milli()[:, :, None], then.milli()[:, :, None]
        fits, fits_then = t.card_fits(rows), t.card_fits(then)
        count = fits.sum(axis=1)[:, None, :] - fits.astype(np.int64) + fits_then
        usable = (old * fits).sum(axis=1)[:, None, :] - old * fits + new * fits_then
        usable *= (count >= t.cards) & t.cpu_fits(then.cpu)[:, None, :]
        total = old.sum(axis=1) - old[:, :, 0] + new[:, :, 0]
        fragmentation: Floats = total - usable @ t.weight
        return fragmentation
