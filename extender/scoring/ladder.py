"""Marks as kube-scheduler takes them: whole numbers from 0 to 10, the top one given once.

A unique top matters: among equal nodes kube-scheduler draws one by chance, and chance undoes most of what
a packing policy gains.
"""

from __future__ import annotations

import numpy as np

from extender.scoring.nodes import Floats, Ints

TOP = 10


def ladder(values: Floats, order: Ints) -> list[int]:
    """A score per value: ``TOP`` for the best alone, of equals the one that is lowest in ``order``.

    Of the others, equals get equal scores below it, by how many are better; what does not fit
    (-inf) gets 0.
    """
    scores = np.zeros(len(values), np.int64)
    fits = np.flatnonzero(values > -np.inf)
    if not len(fits):
        return scores.tolist()
    levels, level = np.unique(values[fits], return_inverse=True)
    steps = max(1, len(levels) - 1)
    scores[fits] = level * (TOP - 1) // steps if len(levels) > 1 else TOP - 1
    best = fits[level == len(levels) - 1]
    scores[best[order[best].argmin()]] = TOP
    return scores.tolist()
