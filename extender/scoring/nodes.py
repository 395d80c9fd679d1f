"""What is free on every card of every node, as arrays: a row is a node, a column is a card.

The owner calls ``set`` for each node whose state has changed. Rows may be reused; ``version`` tells
who has looked at a row before whether to look again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpushare.assignment import CardState

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# The free CPU of a node of which nobody said it: more than any node has, so that it never counts.
UNKNOWN_CPU = 1 << 40


@dataclass(frozen=True, slots=True)
class Rows:
    """Copies of some rows. Per card [rows, columns]: ``memory`` and ``free`` in MiB, ``percent`` free,
    ``usable`` (there and healthy), ``empty`` (nobody on it), ``model`` (a number). Per node: ``cpu``
    free, in mCPU."""

    memory: Ints
    free: Ints
    percent: Ints
    usable: Bools
    empty: Bools
    model: Ints
    cpu: Ints

    def __len__(self) -> int:
        return len(self.cpu)

    def milli(self) -> Floats:
        """What is free on each card, in thousandths of that card."""
        return _milli(self.free, self.memory, self.usable)


def _milli(free: Ints, memory: Ints, usable: Bools) -> Floats:
    share: Floats = np.maximum(free, 0) * 1000.0 / np.maximum(memory, 1)
    share[~usable] = 0.0
    return share


class NodeTable:
    """The arrays. ``model_names`` gives each number in ``model`` its name."""

    def __init__(self, rows: int = 64, columns: int = 4) -> None:
        # Number 0 is that of cards that are not there.
        self.model_names: list[str] = [""]
        self.model_memory: list[int] = [1]
        self._numbers: dict[str, int] = {"": 0}
        self.layout = 0
        """Changes when the arrays have grown or a model has come: what was derived is void."""
        self._make(rows, columns)

    def _make(self, rows: int, columns: int) -> None:
        def ints() -> Ints:
            return np.zeros((rows, columns), np.int64)

        self.memory, self.free, self.percent, self.model = ints(), ints(), ints(), ints()
        self.usable = np.zeros((rows, columns), np.bool_)
        self.empty = np.zeros((rows, columns), np.bool_)
        self.cpu = np.zeros(rows, np.int64)
        self.version = np.zeros(rows, np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, columns."""
        rows, columns = self.free.shape
        return rows, columns

    def model_number(self, name: str, memory: int) -> int:
        """The number of a model; ``memory`` is that of its cards, in MiB."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.model_names)
            self.model_names.append(name)
            self.model_memory.append(max(1, memory))
            self.layout += 1
        return number

    def set(
        self,
        row: int,
        *,
        memory: Sequence[int],
        free: Sequence[int],
        percent: Sequence[int],
        empty: Sequence[bool],
        usable: Sequence[bool],
        models: Sequence[str],
        cpu: int = UNKNOWN_CPU,
    ) -> None:
        """One node's state, in place of what the row held. The arrays grow as needed."""
        n = len(memory)
        self._grow(row + 1, n)
        numbers = [self.model_number(m, size) for m, size in zip(models, memory, strict=True)]
        self.usable[row] = self.empty[row] = False
        self.free[row] = self.percent[row] = 0
        if n:
            self.memory[row, :n] = memory
            self.free[row, :n] = free
            self.percent[row, :n] = percent
            self.empty[row, :n] = empty
            self.usable[row, :n] = usable
            self.model[row, :n] = numbers
        self.cpu[row] = cpu
        self.version[row] += 1

    def put(self, row: int, states: Sequence[CardState], cpu: int = UNKNOWN_CPU) -> None:
        """One node's state as the ledger has it."""
        self.set(
            row,
            memory=[s.card.memory for s in states],
            free=[s.free_mib for s in states],
            percent=[s.free_percent for s in states],
            empty=[s.empty for s in states],
            usable=[s.card.healthy for s in states],
            models=[s.card.model for s in states],
            cpu=cpu,
        )

    def clear(self, row: int) -> None:
        """The node is gone."""
        self.set(row, memory=(), free=(), percent=(), empty=(), usable=(), models=(), cpu=0)

    def take(self, row: int, columns: Sequence[int], mib: int, percent: int, cpu: int) -> None:
        """Take the same of each of the named cards, or give it back where the amounts are negative:
        for simulations, where nobody else keeps books. A card with all its memory free is empty."""
        cards = list(columns)
        self.free[row, cards] -= mib
        self.percent[row, cards] -= percent
        self.empty[row, cards] = self.free[row, cards] == self.memory[row, cards]
        self.cpu[row] -= cpu
        self.version[row] += 1

    def rows(self, which: Ints) -> Rows:
        """Copies of the rows ``which``."""
        return Rows(
            self.memory[which],
            self.free[which],
            self.percent[which],
            self.usable[which],
            self.empty[which],
            self.model[which],
            self.cpu[which],
        )

    def _grow(self, rows: int, columns: int) -> None:
        have_rows, have_columns = self.shape
        if rows <= have_rows and columns <= have_columns:
            return
        names = ("memory", "free", "percent", "model", "usable", "empty", "cpu", "version")
        old = {name: getattr(self, name) for name in names}
        self._make(
            max(have_rows, rows if rows <= have_rows else max(rows, 2 * have_rows)),
            max(have_columns, columns),
        )
        for name, array in old.items():
            getattr(self, name)[tuple(slice(n) for n in array.shape)] = array
        self.layout += 1
