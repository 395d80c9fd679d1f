"""Our policy: lose as little as possible of what the cluster is usually asked for.

Amounts are in thousandths of a card. With the target workload's classes m and their popularity p_m
(of the pods with a card), a placement on a node gains

    gain =   lost before - lost after
           + waiting before - waiting after
           + STARVED * (starved before - starved after)
           + SCARCE * wanted * slack of the card's model
           - FILL * empty cards on the node

rounded down to steps of ``STEP``; of equal nodes the first in the owner's fixed order wins.

lost      What is free on cards that hardly anything fits: fewer than ``RARE`` of the sharing requests
          (of all one-card requests where the card is empty), counting the node's CPU and the model.
waiting   A gap that is not lost waits for a pod that fits it. One gap of a kind is no harm, many are:
          a gap of size r counts as r * min(1, CROWD * N / sqrt(B)), N being the gaps of the same size
          in the whole cluster (this one counted half) and B its cards. Spread over many sizes, gaps
          find their pods: this is the idea of the sum-of-squares rule for bin packing, whose waste
          grows no faster than sqrt(n) where the sizes can be packed without waste at all
          (J. Csirik, D. S. Johnson, C. Kenyon, J. B. Orlin, P. W. Shor, R. R. Weber, "On the
          sum-of-squares algorithm for bin packing", J. ACM 53, 2006); the lost gaps are left out of
          it, as they must be where the sizes cannot. A square root, because that is how much chance
          leaves open of one kind.
starved   What the classes could not use of all that is free, for want of CPU or, where a class takes k
          cards at a time, of k free cards side by side:
          sum of p_m * max(0, R - d_m * k_m * min(free CPU / CPU of m, free cards of m // k_m)).
slack     1 - demand / supply of a model: the demand spread over the models that may serve it, in
          proportion to what is idle of them. Pods that may go anywhere leave scarce models alone.
empty     The node that has fewer empty cards is filled first, so that nodes stay empty for pods that
          take many cards.

The first two terms replace FGD's expected fragmentation (see ``fgd``), which judges each node alone
and so leaves the same gap everywhere. docs/benchmarks/packing.md has what each constant is worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from extender.scoring.ask import Ask
from extender.scoring.nodes import Bools, Floats, Ints, NodeTable, Rows
from extender.scoring.placing import after, card_fits, chosen, node_fits, touched
from extender.scoring.target import Target, TargetArrays

RARE = 0.05
CROWD = 2.0
STARVED = 0.125
SCARCE = 0.1
FILL = 2.5
STEP = 40.0
# Sums of the same numbers differ in their last digits by the order in which they are added up, which
# must not decide anything.
_EXACT = 1e-7
# More pods than any node takes.
_PLENTY = 1e9


class Fragmentation:
    """The policy, with the cluster-wide sums it needs: gaps by size, idle cards by model."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._layout = -1

    def changed(self, table: NodeTable, which: Ints) -> None:
        if table.layout != self._layout:
            self._start(table)
        rows = table.rows(which)
        fits = self._t.card_fits(rows)
        live = self._live(rows, fits, rows.cpu)
        milli = rows.milli()
        self._count(which, -1)
        self._free[which] = np.where(rows.usable, np.maximum(rows.free, 0), 0)
        self._gap[which] = live & ~rows.empty & (rows.free > 0)
        self._model[which] = rows.model
        self._usable[which] = rows.usable
        self._count(which, +1)
        self._live_now[which] = live
        self._lost[which] = np.where(live, 0.0, milli).sum(axis=1)
        several = fits[:, :, self._several].sum(axis=1)[:, None, :]
        self._starved[which] = self._short(rows, rows.cpu, milli.sum(axis=1)[:, None], several)[
            :, 0
        ]
        self._slack = self._slack_now()

    def _start(self, table: NodeTable) -> None:
        self._layout = table.layout
        self._t = TargetArrays(self.target, table.model_names, table.model_memory)
        load = self._t.weight[:, None] * self._t.cards[:, None] * self._t.milli
        allowed = self._t.allowed
        load = np.where(allowed, load, 0).sum(axis=1) / np.maximum(allowed.sum(axis=1), 1)
        self._load: Floats = load / load.sum() if load.sum() > 0 else load
        total = self._t.weight.sum()
        self._popularity: Floats = self._t.weight / total if total > 0 else self._t.weight
        self._partial = self._share_of(~self._t.whole & (self._t.cards == 1))
        self._single = self._share_of(self._t.cards >= 1)
        self._several = np.flatnonzero(self._t.cards > 1)
        self._free: Ints = np.zeros(table.shape, np.int64)
        self._gap: Bools = np.zeros(table.shape, np.bool_)
        self._model: Ints = np.zeros(table.shape, np.int64)
        self._usable: Bools = np.zeros(table.shape, np.bool_)
        self._live_now: Bools = np.zeros(table.shape, np.bool_)
        self._lost: Floats = np.zeros(table.shape[0])
        self._starved: Floats = np.zeros(table.shape[0])
        self._gaps: Ints = np.zeros(1 + max(int(table.memory.max(initial=0)), 1), np.int64)
        self._cards = 0
        self._idle: Ints = np.zeros(len(table.model_names), np.int64)
        self._memory: Ints = np.array(table.model_memory, np.int64)

    def _share_of(self, classes: Bools) -> Floats:
        """The popularity of each class among ``classes``."""
        weight = np.where(classes, self._t.weight, 0.0)
        total = weight.sum()
        return weight / total if total > 0 else weight

    def _count(self, which: Ints, sign: int) -> None:
        gaps = self._gap[which]
        np.add.at(self._gaps, self._size(self._free[which][gaps]), sign)
        self._cards += sign * int(self._usable[which].sum())
        np.add.at(self._idle, self._model[which].ravel(), sign * self._free[which].ravel())

    def _size(self, free: Ints) -> Ints:
        """Where gaps of this many MiB are counted."""
        size: Ints = np.clip(free, 0, len(self._gaps) - 1)
        return size

    def examine(self, rows: Rows, which: Ints, ask: Ask, allowed: Bools) -> dict[str, np.ndarray]:
        cards = card_fits(rows, ask, allowed)
        node = node_fits(rows, ask, cards)
        before, fits = rows.milli(), self._t.card_fits(rows)
        seen: dict[str, np.ndarray] = {}
        if ask.shares:
            then = touched(rows, ask)
            left, fits_then = then.milli(), self._t.card_fits(then)
            live_then = self._live(then, fits_then, then.cpu)
            lost = np.where(self._live(rows, fits, then.cpu), 0.0, before)
            lost = lost.sum(axis=1)[:, None] - lost + np.where(live_then, 0.0, left)
            wanted = before - left
            free = before.sum(axis=1)[:, None] - wanted
            several = fits[:, :, self._several].astype(np.int64)
            several = several.sum(axis=1)[:, None] - several + fits_then[:, :, self._several]
            seen["fits"] = cards & node[:, None]
            seen["gap"] = np.where(self._live_now[which] & ~rows.empty, before, 0.0)
            seen["gap_then"] = np.where(live_then, left, 0.0)
            seen["size"], seen["size_then"] = self._size(rows.free), self._size(then.free)
            seen["model"] = rows.model
        else:
            then = after(rows, ask, chosen(rows, ask, cards))
            left, fits_then = then.milli(), self._t.card_fits(then)
            live_then = self._live(then, fits_then, then.cpu)
            lost = np.where(live_then, 0.0, left).sum(axis=1)[:, None]
            free = left.sum(axis=1)[:, None]
            wanted = before.sum(axis=1)[:, None] - free
            several = fits_then[:, :, self._several].sum(axis=1)[:, None]
            seen["fits"] = node[:, None]
            seen["model"] = _first_model(rows, cards)
        starved = self._short(rows, then.cpu, free, several)
        empty = (rows.empty & rows.usable).sum(axis=1)
        seen["gain"] = self._lost[which][:, None] - lost - FILL * empty[:, None]
        seen["gain"] += STARVED * (self._starved[which][:, None] - starved)
        seen["wanted"] = wanted
        return seen

    def mark(self, seen: dict[str, np.ndarray], ask: Ask) -> tuple[Floats, Ints]:
        # In place, because this is done for all cards at every decision.
        if ask.cards:
            mark = SCARCE * seen["wanted"]
            mark *= self._slack.take(seen["model"], mode="clip")
            mark += seen["gain"]
        else:
            mark = seen["gain"].copy()
        if ask.shares:
            # A gap counts half where it is, and as one more where it would be.
            part = self._crowd(seen["size"], -0.5)
            part *= seen["gap"]
            mark += part
            part = self._crowd(seen["size_then"], +0.5)
            part *= seen["gap_then"]
            mark -= part
        mark /= STEP
        mark += _EXACT
        np.floor(mark, out=mark)
        np.putmask(mark, ~seen["fits"], -np.inf)
        card = mark.argmax(axis=1)
        value = mark[np.arange(len(mark)), card]
        return value, card if ask.shares else np.full(len(mark), -1)

    def _crowd(self, size: Ints, shift: float) -> Floats:
        """What of gaps of these sizes counts: more where there are many of a size."""
        crowd = self._gaps.take(size, mode="clip").astype(np.float64)
        crowd += shift
        crowd *= CROWD / np.sqrt(max(self._cards, 1))
        np.minimum(crowd, 1.0, out=crowd)
        return crowd

    def _live(self, rows: Rows, fits: Bools, cpu: Ints) -> Bools:
        """[rows, columns]: whether enough of the requests would fit on the card."""
        enough = self._t.cpu_fits(cpu)[:, :, None]
        share = np.where(
            rows.empty,
            (fits @ (self._single[:, None] * enough))[:, :, 0],
            (fits @ (self._partial[:, None] * enough))[:, :, 0],
        )
        live: Bools = share >= RARE - _EXACT
        return live

    def _short(self, rows: Rows, cpu: Ints, free: Floats, several: Ints) -> Floats:
        """[rows, options] for ``free`` [rows, options] and the cards that fit each class of several
        cards [rows, options, classes]. The node's first card stands for its model."""
        t, model = self._t, rows.model[:, 0]
        pods = cpu[:, None] / np.maximum(t.cpu, 1)
        pods[:, t.cpu == 0] = _PLENTY
        size = t.cards * t.milli.T[model]
        possible = t.allowed.T[model] & (rows.usable.sum(axis=1)[:, None] >= t.cards)
        weight = np.where(possible, self._popularity, 0.0)
        some: Any = np.flatnonzero((t.cpu > 0) & (t.cards == 1))
        usable = (pods * size)[:, some]
        short = np.maximum(free[:, :, None] - usable[:, None, :], 0.0)
        starved: Floats = np.einsum("nom,nm->no", short, weight[:, some])
        if len(self._several):
            some = self._several
            runs = np.minimum(several // t.cards[some], pods[:, None, some])
            short = np.maximum(free[:, :, None] - runs * size[:, None, some], 0.0)
            starved += np.einsum("nom,nm->no", short, weight[:, some])
        return starved

    def _slack_now(self) -> Floats:
        """1 - demand / supply per model, at least -1: past that, scarcer makes no difference."""
        idle = self._idle * 1000.0 / self._memory
        supply = self._t.allowed @ idle
        part = np.divide(self._load, supply, out=np.zeros_like(supply), where=supply > 0)
        return np.maximum(1.0 - idle.sum() * (part @ self._t.allowed), -1.0)


def _first_model(rows: Rows, cards: Bools) -> Ints:
    """[rows, 1]: the model of the first card that fits."""
    return np.take_along_axis(rows.model, cards.argmax(axis=1)[:, None], axis=1)
