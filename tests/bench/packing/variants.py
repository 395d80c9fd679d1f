"""Workloads made from the default trace, for what the shared traces do not have.

Each is drawn by a fixed seed of its own, so it is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tests.bench.packing.traces import Pod

_SEED = 7


def mixture(
    sharing: float, several: float, cpu_only: float = 1.0
) -> Callable[[list[Pod]], list[Pod]]:
    """``sharing`` and ``several``: the parts of all requested milli that come from sharing pods and
    from pods of several cards. ``cpu_only``: how many pods without a card, times those there are."""

    def make(pods: list[Pod]) -> list[Pod]:
        rng = np.random.default_rng(_SEED)
        groups = [
            ([p for p in pods if p.ask.cards and p.ask.shares], sharing),
            ([p for p in pods if p.ask.cards > 1], several),
            ([p for p in pods if p.ask.cards == 1 and p.ask.whole], 1 - sharing - several),
        ]
        with_card = sum(len(group) for group, _ in groups)
        parts = [part / (sum(p.milli for p in group) / len(group)) for group, part in groups]
        made: list[Pod] = []
        for (group, _), part in zip(groups, parts, strict=True):
            count = round(with_card * part / sum(parts))
            made += [group[i] for i in rng.integers(len(group), size=count)]
        without = [p for p in pods if not p.ask.cards]
        count = round(len(without) * cpu_only)
        return made + [without[i] for i in rng.integers(len(without), size=count)]

    return make


def constrained(part: float, models: Mapping[str, float]) -> Callable[[list[Pod]], list[Pod]]:
    """``part`` of the one-card pods name models, drawn by the weights of ``models`` ("A|B")."""

    def make(pods: list[Pod]) -> list[Pod]:
        rng = np.random.default_rng(_SEED)
        names = list(models)
        weights = np.array(list(models.values())) / sum(models.values())
        return [
            replace(
                p, ask=replace(p.ask, models=tuple(str(rng.choice(names, p=weights)).split("|")))
            )
            if p.ask.cards == 1 and rng.random() < part
            else p
            for p in pods
        ]

    return make


# Roughly as common as the cards are.
_COMMON = {"G2": 0.5, "T4": 0.15, "V100M16|V100M32": 0.11, "G2|T4": 0.2, "P100": 0.04}
# More than their share for the models there are few of.
_SCARCE = {"T4": 0.4, "G2": 0.3, "V100M16|V100M32": 0.15, "P100": 0.08, "G3": 0.07}

VARIANTS: dict[str, Callable[[list[Pod]], list[Pod]]] = {
    "sharing60": mixture(0.6, 0.03),
    "sharing80": mixture(0.8, 0.015),
    "several20": mixture(0.2, 0.2),
    "several30": mixture(0.2, 0.3),
    "several50": mixture(0.15, 0.5),
    "cpuonly050": mixture(0.285, 0.073, 0.5),
    "cpuonly200": mixture(0.285, 0.073, 2.0),
    "models10": constrained(0.10, _SCARCE),
    "models33": constrained(0.33, _SCARCE),
    "models33common": constrained(0.33, _COMMON),
}
