"""The layout of ``kubectl inspect gpushare``, for people and scripts that are used to it.

Amounts are in the cluster's unit, as there. What that table could not say is left as it was: cards
of different sizes each show their own total, and a card that is not there shows 0/0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpushare.cli.table import plain
from gpushare.units import Unit

State = Mapping[str, Any]
_RULE = "-" * 60


def overview(nodes: Sequence[State], unit_mib: int) -> list[str]:
    """One line a node: allocated and total of each of its cards, and of all."""
    width = max((card["index"] + 1 for node in nodes for card in node["cards"]), default=0)
    header = [
        "NAME",
        *(f"GPU{index}(Allocated/Total)" for index in range(width)),
        f"GPU Memory({Unit(unit_mib)})",
    ]
    rows = []
    for node in nodes:
        cells = ["0/0"] * width
        for card in node["cards"]:
            cells[card["index"]] = _pair(card["allocated_mib"], card["memory_mib"], unit_mib)
        rows.append([node["name"], *cells, _pair(*_sums([node]), unit_mib)])
    return [*plain(header, rows), _RULE, *_cluster(nodes, unit_mib)]


def details(nodes: Sequence[State], unit_mib: int) -> list[str]:
    """A block a node, with one line for each pod."""
    lines = []
    for node in nodes:
        indexes = [card["index"] for card in node["cards"]]
        header = ["NAME", "NAMESPACE", *(f"GPU{index}(Allocated)" for index in indexes)]
        held, total = _sums([node])
        lines += ["", f"NAME:       {node['name']}"]
        if node.get("problem"):
            lines.append(f"PROBLEM:    {node['problem']}")
        lines += ["", *plain(header, _pods(node, unit_mib))]
        lines.append(f"Allocated : {_units(held, unit_mib)} ({_percent(held, total)})")
        lines += [f"Total :     {_units(total, unit_mib)}", _RULE]
    return [*lines, *_cluster(nodes, unit_mib)]


def _pods(node: State, unit_mib: int) -> list[list[str]]:
    held: dict[tuple[str, str], list[int]] = {}
    for place, card in enumerate(node["cards"]):
        for one in card["slices"]:
            pod = held.setdefault((one["pod"], one["namespace"]), [0] * len(node["cards"]))
            pod[place] += one["mib"]
    return [
        [name, namespace, *(_units(mib, unit_mib) for mib in amounts)]
        for (name, namespace), amounts in sorted(held.items())
    ]


def _cluster(nodes: Sequence[State], unit_mib: int) -> list[str]:
    held, total = _sums(nodes)
    return [
        "Allocated/Total GPU Memory In Cluster:",
        f"{_pair(held, total, unit_mib)} ({_percent(held, total)})",
    ]


def _sums(nodes: Sequence[State]) -> tuple[int, int]:
    cards = [card for node in nodes for card in node["cards"]]
    return sum(c["allocated_mib"] for c in cards), sum(c["memory_mib"] for c in cards)


def _pair(held: int, total: int, unit_mib: int) -> str:
    return f"{_units(held, unit_mib)}/{_units(total, unit_mib)}"


def _units(mib: int, unit_mib: int) -> str:
    return str(Unit(unit_mib).units(mib))


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole}%" if whole else "0%"
