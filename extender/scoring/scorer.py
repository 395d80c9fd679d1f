"""Marks for all nodes under one policy, looking again only at the nodes that have changed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from extender.scoring.ask import Ask
from extender.scoring.nodes import Bools, Floats, Ints, NodeTable
from extender.scoring.placing import card_fits, chosen
from extender.scoring.policies import Policy

# Kinds of pods whose examined rows are kept. One is about 110 bytes a card: 64 are 280 MB at 5,000
# nodes with 8 cards if all are in use, and a cluster seldom sees 64 different requests at a time.
_REMEMBERED = 64
# Rows examined at a time: the working arrays of a chunk stay in the processor's cache.
_CHUNK = 256


@dataclass(frozen=True, slots=True)
class Marks:
    """Per row: ``value``, -inf where the ask does not fit, and the card that the value assumes (a
    column; -1 where the ask leaves no choice)."""

    value: Floats
    card: Ints

    def best(self, among: Bools | None = None) -> int:
        """The row with the highest mark, the first of equals; -1 if the ask fits nowhere."""
        value = self.value if among is None else np.where(among, self.value, -np.inf)
        row = int(value.argmax()) if len(value) else -1
        return row if row >= 0 and value[row] > -np.inf else -1


@dataclass(slots=True)
class _Memory:
    """What a policy saw for one ask, and the version of each row when it looked."""

    allowed: Bools
    version: Ints
    seen: dict[str, np.ndarray]


class Scorer:
    """One policy over one table."""

    def __init__(self, table: NodeTable, policy: Policy, remembered: int = _REMEMBERED) -> None:
        self.table, self.policy, self.remembered = table, policy, remembered
        self._memories: OrderedDict[Ask, _Memory] = OrderedDict()
        self._layout = -1
        self._version: Ints = np.zeros(0, np.int64)

    def marks(self, ask: Ask, only: Ints | None = None) -> Marks:
        """A mark for every row of the table, or for the rows ``only``, in their order."""
        self._catch_up()
        memory = self._memories.get(ask)
        if memory is None:
            memory = self._memories[ask] = self._start(ask)
            if len(self._memories) > self.remembered:
                self._memories.popitem(last=False)
        else:
            self._memories.move_to_end(ask)
        self._refresh(ask, memory)
        seen = memory.seen
        if only is not None:
            seen = {name: values[only] for name, values in seen.items()}
        return Marks(*self.policy.mark(seen, ask))

    def cards(self, row: int, ask: Ask, marks: Marks | None = None) -> tuple[int, ...]:
        """The columns that the mark of ``row`` assumes; () where the ask does not fit there.

        ``marks`` are those of the ask, if they are at hand and nothing has changed since.
        """
        at = row
        if marks is None:
            marks, at = self.marks(ask, np.array([row])), 0
        if marks.value[at] == -np.inf:
            return ()
        if marks.card[at] >= 0:
            return (int(marks.card[at]),)
        rows = self.table.rows(np.array([row]))
        fits = card_fits(rows, ask, self._memories[ask].allowed)
        return tuple(np.flatnonzero(chosen(rows, ask, fits)[0]).tolist())

    def _catch_up(self) -> None:
        table = self.table
        if table.layout != self._layout:
            self._layout = table.layout
            self._memories.clear()
            self._version = np.full(table.shape[0], -1, np.int64)
        which = np.flatnonzero(self._version != table.version)
        if len(which):
            self.policy.changed(table, which)
            self._version[which] = table.version[which]

    def _start(self, ask: Ask) -> _Memory:
        allowed = np.array([ask.allows(name) for name in self.table.model_names], np.bool_)
        return _Memory(allowed, np.full(self.table.shape[0], -1, np.int64), {})

    def _refresh(self, ask: Ask, memory: _Memory) -> None:
        stale = np.flatnonzero(memory.version != self.table.version)
        for start in range(0, len(stale), _CHUNK):
            which = stale[start : start + _CHUNK]
            seen = self.policy.examine(self.table.rows(which), which, ask, memory.allowed)
            for name, values in seen.items():
                if name not in memory.seen:
                    shape = (len(memory.version), *values.shape[1:])
                    memory.seen[name] = np.zeros(shape, values.dtype)
                memory.seen[name][which] = values
            memory.version[which] = self.table.version[which]
