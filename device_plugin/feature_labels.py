"""The labels that NVIDIA's gpu-feature-discovery gives a node, for nodes where it does not run. Pure.

Selectors, autoscalers and dashboards know them (gpu-feature-discovery's README, "Generated labels").
Where it runs, it is left alone: all keys are its own. Where somebody else has written one of them,
that one is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from device_plugin.physical_card import Driver, PhysicalCard

PREFIX = "nvidia.com/"
# It writes this one with all others, so it tells whether it has been here.
ITS_MARK = "nvidia.com/gfd.timestamp"
# Families by compute capability, as it names them.
_FAMILIES = {
    "6": "pascal",
    "7.0": "volta",
    "7.2": "volta",
    "7.5": "turing",
    "8.9": "ada-lovelace",
    "8": "ampere",
    "9": "hopper",
    "10": "blackwell",
    "12": "blackwell",
}
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def feature_labels(cards: Collection[PhysicalCard], driver: Driver) -> dict[str, str]:
    """What it would say. A node of several models has no one product, memory or capability."""
    if not cards:
        return {}
    # Not gpu.present: charts of NVIDIA's own device plugin are sent to nodes by it.
    labels = {"gpu.count": str(len(cards))}
    labels |= _numbered("cuda.driver.", ("major", "minor", "rev"), driver.version)
    labels |= _numbered("cuda.runtime.", ("major", "minor"), driver.cuda)
    models = {(card.model, card.memory, card.capability) for card in cards}
    if len(models) == 1:
        ((model, memory, capability),) = models
        labels["gpu.product"] = _ODD.sub("-", model).strip("-._")[:63]
        labels["gpu.memory"] = str(memory)
        labels |= _numbered("gpu.compute.", ("major", "minor"), capability)
        family = _FAMILIES.get(capability) or _FAMILIES.get(capability.partition(".")[0])
        labels |= {"gpu.family": family} if family else {}
    return {PREFIX + key: value for key, value in labels.items() if value}


def _numbered(stem: str, parts: Iterable[str], version: str) -> dict[str, str]:
    numbers = zip(parts, version.split("."), strict=False)
    return {stem + part: n for part, n in numbers if n.isascii() and n.isdigit() and len(n) < 10}


def to_write(
    wanted: Mapping[str, str], have: Collection[str], ours: Collection[str]
) -> tuple[dict[str, str | None], list[str]]:
    """What to change of the labels ``have`` (keys), and which keys are ours then.

    ``ours`` are those that we have written so far. None as a value: the label goes.
    """
    if ITS_MARK in have:
        return {}, []  # what we wrote it has replaced
    mine = {key: value for key, value in wanted.items() if key not in have or key in ours}
    gone: dict[str, str | None] = {key: None for key in ours if key in have and key not in mine}
    return {**gone, **mine}, sorted(mine)
