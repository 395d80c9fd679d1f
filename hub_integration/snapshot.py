"""The cluster's cards at one moment, as the extender's state API tells them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpushare.capacity import Capacity, Kind
from gpushare.cards import HEALTHY
from hub_integration.quota.ledger import Holding

_MAX_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is free, and how many pods wait for a slice."""

    capacity: Capacity
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A slice that a pod holds. ``leaving``: the pod is deleted and about to give it back."""

    holding: Holding
    leaving: bool


def read_snapshot(text: bytes) -> Snapshot:
    """The answer of ``GET /v1/nodes``. Raises ValueError that says what is wrong with it."""
    data, nodes = _nodes(text)
    try:
        capacity = Capacity(_kinds(node) for node in nodes)
    except (KeyError, TypeError, AttributeError) as error:
        raise _odd(error) from None
    return Snapshot(capacity, _waiting(data))


def read_holdings(text: bytes) -> tuple[Held, ...]:
    """All slices in the same answer."""
    _, nodes = _nodes(text)
    try:
        return tuple(
            _held(node, card, part)
            for node in nodes
            for card in node["cards"]
            for part in card["slices"]
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _odd(error) from None


def _nodes(text: bytes) -> tuple[Mapping[str, Any], list[Any]]:
    data = json.loads(text)
    nodes = data.get("nodes") if isinstance(data, Mapping) else None
    if not isinstance(nodes, list) or len(nodes) > _MAX_NODES:
        raise ValueError("the answer has no list of nodes")
    return data, nodes


def _odd(error: Exception) -> ValueError:
    return ValueError(f"a node, card or slice lacks a field, or has it wrong: {error!r}")


def _waiting(data: Mapping[str, Any]) -> int:
    totals, waiting = data.get("totals"), data.get("waiting")
    number = totals.get("waiting") if isinstance(totals, Mapping) else None
    if type(number) is int:
        return number
    return len(waiting) if isinstance(waiting, list) else 0


def _held(node: Mapping[str, Any], card: Mapping[str, Any], part: Mapping[str, Any]) -> Held:
    mib, percent = part["mib"], part["percent"]
    if type(mib) is not int or type(percent) is not int:
        raise TypeError(f"sizes are {mib!r} and {percent!r}")
    holding = Holding(
        uid=str(part["uid"]),
        card=str(card["uuid"]),
        user=str(part["user"]),
        namespace=str(part["namespace"]),
        pod=str(part["pod"]),
        node=str(node["name"]),
        model=str(card["model"]),
        mib=mib,
        percent=percent,
    )
    return Held(holding, bool(part.get("leaving")))


def _kinds(node: Mapping[str, Any]) -> Iterator[Kind]:
    """The node's cards; none of a node whose cards cannot be used."""
    return iter(()) if node.get("problem") else map(_kind, node["cards"])


def _kind(card: Mapping[str, Any]) -> Kind:
    # In full where it is told: 'NVIDIA A10' and 'A10' are the same card to a catalogue.
    model = card.get("product") or card["model"]
    memory, free_mib, free_percent = card["memory_mib"], card["free_mib"], card["free_percent"]
    if type(memory) is not int or type(free_mib) is not int or type(free_percent) is not int:
        raise TypeError(f"sizes are {memory!r}, {free_mib!r} and {free_percent!r}")
    empty = card["empty"] if "empty" in card else not card["slices"]
    health = card.get("health", HEALTHY)
    return Kind(str(model), memory, str(health), free_mib, free_percent, bool(empty))
