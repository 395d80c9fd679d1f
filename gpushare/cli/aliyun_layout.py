"""``gpushare inspect --layout aliyun``: to the byte what Alibaba Cloud's ``kubectl inspect gpushare`` prints.

For scripts that cut that tool's output. Its columns come from a tab writer: a cell ends with a tab,
and what follows the last tab of a line belongs to no column. Nodes and pods are in a fixed order,
where that tool's order is random.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare.units import Unit

State = Mapping[str, Any]

_PADDING = 2
_UNKNOWN = "unknown"


def overview(nodes: Sequence[State], unit_mib: int) -> str:
    """One line a node, with what is allocated on each of its cards."""
    width = max((len(node["cards"]) for node in nodes), default=0)
    columns = "".join(f"GPU{i}(Allocated/Total)\t" for i in range(width))
    rows = []
    for node in nodes:
        pairs = {c["index"]: f"{_used(c, unit_mib)}/{_size(c, unit_mib)}" for c in node["cards"]}
        cells = "".join(f"{pairs.get(i, '0/0')}\t" for i in range(width))
        held, total = _sums([node], unit_mib)
        rows.append(f"{node['name']}\t{_address(node)}\t{cells}{held}/{total}\n")
    rule = "-" * (len(rows[0]) + 20 if rows else 0)
    held, total = _sums(nodes, unit_mib)
    return aligned(
        f"NAME\tIPADDRESS\t{columns}GPU Memory({Unit(unit_mib)})\n{''.join(rows)}{rule}\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        f"{held}/{total} ({_percent(held, total)}%)\t\n"
    )


def details(nodes: Sequence[State], unit_mib: int) -> str:
    """A block a node, with one line for each pod and card."""
    text, rule = "", ""
    for node in nodes:
        rows = "".join(_pods(node, unit_mib))
        # As long as the first node's lines are together: so it is there.
        rule = rule or "-" * (len(rows) + 10)
        columns = "".join(f"GPU{i}(Allocated)\t" for i in range(len(node["cards"])))
        held, total = _sums([node], unit_mib)
        text += (
            f"\nNAME:\t{node['name']}\nIPADDRESS:\t{_address(node)}\n\n"
            f"NAME\tNAMESPACE\t{columns}\n{rows}"
            f"Allocated :\t{held} ({_percent(held, total)}%)\t\nTotal :\t{total} \t\n{rule}\n"
        )
    held, total = _sums(nodes, unit_mib)
    cluster = f"{held}/{total} ({_percent(held, total)}%)"
    return aligned(f"{text}\n\nAllocated/Total GPU Memory In Cluster:\t{cluster}\t\n")


def aligned(text: str) -> str:
    """``text`` as that tab writer writes it: cells that stand below each other are equally wide."""
    lines = [line.split("\t") for line in text.split("\n")]
    for column in range(max(len(cells) for cells in lines)):
        for first, last in _blocks([len(cells) - 1 > column for cells in lines]):
            width = max(len(cells[column]) for cells in lines[first:last]) + _PADDING
            for cells in lines[first:last]:
                cells[column] = cells[column].ljust(width)
    return "\n".join("".join(cells) for cells in lines)


def _blocks(there: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The runs of True, as (first, one after the last)."""
    first = None
    for i, one in enumerate([*there, False]):
        if one and first is None:
            first = i
        elif not one and first is not None:
            yield first, i
            first = None


def _pods(node: State, unit_mib: int) -> Iterator[str]:
    for place, card in enumerate(node["cards"]):
        for held in card["slices"]:
            cells = ["0"] * len(node["cards"])
            cells[place] = str(_up(held["mib"], unit_mib))
            marked = "".join(f"{cell}\t" for cell in cells)
            yield f"{held['pod']}\t{held['namespace']}\t{marked}\n"


def _address(node: State) -> str:
    return str(node.get("address") or _UNKNOWN)


def _used(card: State, unit_mib: int) -> int:
    return sum(_up(held["mib"], unit_mib) for held in card["slices"])


def _size(card: State, unit_mib: int) -> int:
    return Unit(unit_mib).units(card["memory_mib"])


def _up(mib: int, unit_mib: int) -> int:
    """Units that are in use: a part of one is used up as a whole."""
    return -(-mib // unit_mib)


def _sums(nodes: Sequence[State], unit_mib: int) -> tuple[int, int]:
    cards = [card for node in nodes for card in node["cards"]]
    return sum(_used(c, unit_mib) for c in cards), sum(_size(c, unit_mib) for c in cards)


def _percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 0
