"""What the cluster is usually asked for: classes of pods with their popularity, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extender.scoring.ask import Ask
from extender.scoring.nodes import Bools, Floats, Ints, Rows


@dataclass(frozen=True, slots=True)
class Target:
    """``asks`` and the popularity of each: the share of all pods that are like it."""

    asks: tuple[Ask, ...]
    popularity: tuple[float, ...]

    @classmethod
    def of(cls, weights: Mapping[Ask, float], limit: int = 0, cover: float = 1.0) -> Target:
        """The classes with a card, the most popular first, until they ``cover`` that part of all pods.

        Popularity counts pods without a card as well, where ``weights`` has them. With a ``limit``
        only so many classes are kept: those that are popular or ask for many cards at a time.
        """
        total = sum(weights.values()) or 1.0
        ordered = sorted(weights.items(), key=lambda item: -item[1])
        kept: list[tuple[Ask, float]] = []
        covered = 0.0
        for ask, weight in ordered:
            if weight <= 0:
                break
            kept.append((ask, weight))
            covered += weight
            if covered >= cover * total * (1 - 1e-9):
                break
        if cover < 1.0:
            total = covered
        classes = [(ask, weight / total) for ask, weight in kept if ask.cards]
        if limit and len(classes) > limit:
            load = sum(weight * ask.cards for ask, weight in classes)
            classes.sort(key=lambda c: -max(c[1], c[1] * c[0].cards / load))
            classes = classes[:limit]
        return cls(tuple(ask for ask, _ in classes), tuple(weight for _, weight in classes))


class TargetArrays:
    """A target against the models of one table. One array element per class."""

    def __init__(self, target: Target, models: Sequence[str], memory: Sequence[int]) -> None:
        asks = target.asks
        self.weight: Floats = np.array(target.popularity, np.float64)
        self.cards: Ints = np.array([ask.cards for ask in asks], np.int64)
        self.cpu: Ints = np.array([ask.cpu for ask in asks], np.int64)
        self.percent: Ints = np.array([0 if a.whole else a.percent for a in asks], np.int64)
        self.whole: Bools = np.array([ask.whole for ask in asks], np.bool_)
        self.allowed: Bools = np.array(
            [[ask.allows(name) for name in models] for ask in asks], np.bool_
        ).reshape(len(asks), len(models))
        # [classes, models]: what the class takes of a card, in MiB, and in thousandths of the card.
        self.need: Ints = np.array(
            [[need_on(ask, size) for size in memory] for ask in asks], np.int64
        ).reshape(len(asks), len(memory))
        self.milli: Floats = self.need * 1000.0 / np.array(memory, np.float64)
        # A whole card need not have all its memory free: the driver may keep some of it.
        least = np.where(self.whole[:, None], 0, self.need)
        self._least: Ints = np.where(self.allowed, least, np.iinfo(np.int64).max).T

    def __len__(self) -> int:
        return len(self.weight)

    def card_fits(self, rows: Rows) -> Bools:
        """[rows, columns, classes]: whether the card would take the class, CPU set aside."""
        fits: Bools = rows.free[:, :, None] >= self._least[rows.model]
        fits &= rows.percent[:, :, None] >= self.percent
        if self.whole.any():
            fits &= rows.empty[:, :, None] | ~self.whole
        fits &= rows.usable[:, :, None]
        return fits

    def cpu_fits(self, cpu: Ints) -> Bools:
        """[rows, classes]: whether the node has CPU enough for the class."""
        fits: Bools = cpu[:, None] >= self.cpu
        return fits


def need_on(ask: Ask, memory: int) -> int:
    """What ``ask`` takes of a card of ``memory`` MiB, in MiB; as ``gpushare.request.Demand.on``."""
    if ask.whole:
        return memory
    return memory * ask.percent // 100 if ask.mib is None else ask.mib
