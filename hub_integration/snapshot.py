"""The cluster's cards at one moment, as the extender's state API tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpushare.capacity import Capacity, Kind
from gpushare.cards import HEALTHY

_MAX_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is free, and how many pods wait for a slice."""

    capacity: Capacity
    waiting: int = 0


def read_snapshot(data: Any) -> Snapshot:
    """The answer of ``GET /v1/nodes``. Raises ValueError that says what is wrong with it."""
    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    if not isinstance(nodes, list) or len(nodes) > _MAX_NODES:
        raise ValueError("the answer has no list of nodes")
    waiting = data.get("waiting")
    try:
        capacity = Capacity(_kinds(node) for node in nodes)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a node or card lacks a field, or has it wrong: {error!r}") from None
    return Snapshot(capacity, len(waiting) if isinstance(waiting, list) else 0)


def _kinds(node: Mapping[str, Any]) -> Iterator[Kind]:
    """The node's cards; none of a node whose cards cannot be used."""
    return iter(()) if node.get("problem") else map(_kind, node["cards"])


def _kind(card: Mapping[str, Any]) -> Kind:
    # In full where it is told: 'NVIDIA A10' and 'A10' are the same card to a catalogue.
    model = card.get("product") or card["model"]
    numbers = card["memory_mib"], card["free_mib"], card["free_percent"]
    if not all(type(number) is int for number in numbers):
        raise TypeError(f"sizes are {numbers}")
    memory, free_mib, free_percent = numbers
    empty = card["empty"] if "empty" in card else not card["slices"]
    health = card.get("health", HEALTHY)
    return Kind(str(model), memory, str(health), free_mib, free_percent, bool(empty))
