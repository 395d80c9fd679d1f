"""The table of cards and slices, as lines of text; pure, so that tests can read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

State = Mapping[str, Any]

COLUMNS = ("NODE", "CARD", "MODEL", "SLICES", "ALLOCATED", "USED", "HEALTH")
WIDE = (*COLUMNS, "UUID")
UNKNOWN = "-"


def rows(nodes: Iterable[State], *, wide: bool = False) -> list[tuple[str, ...]]:
    """One row per card, and one for each node that has none, with what is the matter."""
    table = []
    for node in nodes:
        if not node["cards"]:
            problem = node.get("problem") or "publishes no cards"
            table.append(_padded((node["name"], "", "", "", "", "", problem), wide))
        for card in node["cards"]:
            row = (
                node["name"],
                str(card["index"]),
                card.get("short_model") or card["model"],
                _slices(card, wide),
                _allocated(card),
                _used(card.get("used_mib")),
                card["health"],
            )
            table.append((*row, card["uuid"]) if wide else row)
    return table


def summary(state: State, nodes: Sequence[State]) -> str:
    """'cluster: 24/118 GiB allocated (20%), 9.3 GiB used, 1 waiting'."""
    cards = [card for node in nodes for card in node["cards"]]
    total = sum(card["memory_mib"] for card in cards)
    held = sum(card["allocated_mib"] for card in cards)
    parts = [f"{gib(held)}/{gib(total)} GiB allocated ({_percent(held, total)})"]
    used = [card["used_mib"] for card in cards if card.get("used_mib") is not None]
    if used:
        parts.append(f"{gib(sum(used))} GiB used")
    waiting = state.get("totals", {}).get("waiting", 0)
    if waiting:
        parts.append(f"{waiting} waiting")
    return f"cluster: {', '.join(parts)}"


def plain(header: Sequence[str], table: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, two spaces apart, for pipes and files."""
    lines = [tuple(header), *(tuple(row) for row in table)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def gib(mib: int) -> str:
    """A size in GiB, with one decimal where it needs one."""
    return str(mib // 1024) if mib % 1024 == 0 else f"{mib / 1024:.1f}"


def _padded(row: tuple[str, ...], wide: bool) -> tuple[str, ...]:
    return (*row, "") if wide else row


def _slices(card: State, wide: bool) -> str:
    return ", ".join(_slice(card, s, wide) for s in card["slices"]) or UNKNOWN


def _slice(card: State, held: State, wide: bool) -> str:
    name = f"{held['namespace']}/{held['pod']}" if wide else held.get("user") or held["pod"]
    if held["percent"] == 100 and held["mib"] == card["memory_mib"]:
        size = "whole card"
    else:
        percent = f" {held['percent']}%" if held["percent"] else ""
        size = f"{gib(held['mib'])}{percent}"
    mark = " (leaving)" if held.get("leaving") else " (binding)" if held.get("reserved") else ""
    return f"{name} {size}{mark}"


def _allocated(card: State) -> str:
    held, total = card["allocated_mib"], card["memory_mib"]
    percent = card.get("allocated_percent", 0)
    compute = f", {percent}% compute" if percent else ""
    return f"{gib(held)}/{gib(total)} GiB {_percent(held, total)}{compute}"


def _used(mib: int | None) -> str:
    return UNKNOWN if mib is None else f"{gib(mib)} GiB"


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)}%" if whole else "0%"
