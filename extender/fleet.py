"""All cards of all nodes as arrays, so that one question to many nodes is one vector operation.

A row is a node, a column is a card. The ledger's ``on_change`` says which nodes have changed; their
rows are filled anew when somebody asks. ``table`` has the same rows, as scoring wants them.
``Fleet.ask`` answers for requests of one container; it gives exactly the answers of
``extender.fitting.fit``, which a property test holds it to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from extender.fitting import Budget, Rules, node_obstacle
from extender.scoring.nodes import UNKNOWN_CPU, NodeTable
from gpushare.assignment import CardState, explain
from gpushare.budget import amounts, shortage
from gpushare.cards import Card, models
from gpushare.ledger import NodeAccount
from gpushare.reasons import Code, Reason
from gpushare.request import Demand, PodRequest

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]

# Larger than any card and than any sum over the cards of a node, in MiB.
_HUGE = np.int64(1 << 40)


@dataclass(slots=True)
class _Arrays:
    """``memory``, ``free`` in MiB and ``percent`` free, per node and card; flags likewise.

    ``usable``: the card is there and healthy. ``room_mem`` and ``room_percent`` are what the node's
    kubelet has left to give; ``open`` says whether the node takes pods at all.
    """

    memory: _Ints
    free: _Ints
    percent: _Ints
    model: _Ints
    there: _Bools
    usable: _Bools
    empty: _Bools
    room_mem: _Ints
    room_percent: _Ints
    open: _Bools

    @classmethod
    def of(cls, rows: int, columns: int) -> _Arrays:
        def ints() -> _Ints:
            return np.zeros((rows, columns), np.int64)

        def bools() -> _Bools:
            return np.zeros((rows, columns), np.bool_)

        room = np.zeros(rows, np.int64)
        return cls(
            ints(), ints(), ints(), ints(), bools(), bools(), bools(),
            room, room.copy(), np.zeros(rows, np.bool_),
        )  # fmt: skip

    def grown(self, rows: int, columns: int) -> _Arrays:
        larger = _Arrays.of(rows, columns)
        for name in self.__slots__:
            old = getattr(self, name)
            getattr(larger, name)[tuple(slice(n) for n in old.shape)] = old
        return larger


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for the asked nodes, in their order: who fits, and why the others do not."""

    fits: _Bools
    failed: dict[str, Reason]


class Fleet:
    """The arrays, and which row is which node."""

    def __init__(self, rules: Rules, rows: int = 64, columns: int = 4) -> None:
        self.rules = rules
        self._row: dict[str, int] = {}
        self._unused: list[int] = list(range(rows - 1, -1, -1))
        self._arrays = _Arrays.of(rows, columns)
        self.table = NodeTable(rows, columns)
        self._stale: dict[str, tuple[NodeAccount | None, Budget]] = {}
        self._order: _Ints | None = None
        self._obstacles: dict[int, Reason] = {}
        self._states: dict[int, tuple[list[CardState], Budget]] = {}
        self._models: dict[str, int] = {}
        self._examples: list[Card] = []
        self._model_masks: dict[tuple[str, ...], _Bools] = {}
        self._model_texts: dict[int, str] = {}
        self._foreign: dict[str, _Ints] = {}

    def __len__(self) -> int:
        return len(self._row)

    def knows(self, node: str) -> bool:
        return node in self._row

    def remove(self, node: str) -> None:
        self._stale.pop(node, None)
        row = self._row.pop(node, None)
        if row is not None:
            self._order = None
            self.table.clear(row)
            self._arrays.open[row] = False
            self._arrays.there[row] = self._arrays.usable[row] = False
            self._obstacles.pop(row, None)
            self._states.pop(row, None)
            self._unused.append(row)

    def update(self, name: str, account: NodeAccount | None, budget: Budget) -> None:
        """The node's cards, what is free on them, or its budget may have changed."""
        self._stale[name] = (account, budget)
        if name not in self._row:
            self._row_of(name, 0)

    def _refresh(self) -> None:
        """Fill the rows of the nodes that have changed: once, however often they did."""
        stale, self._stale = self._stale, {}
        for name, (account, budget) in stale.items():
            self._fill(name, account, budget)

    def _fill(self, name: str, account: NodeAccount | None, budget: Budget) -> None:
        obstacle = node_obstacle(self.rules, account)
        states = account.states() if account is not None else []
        row = self._row_of(name, len(states))
        a = self._arrays
        a.open[row] = obstacle is None
        if obstacle is None:
            self._obstacles.pop(row, None)
        else:
            self._obstacles[row] = obstacle
        self._states[row] = (states, budget)
        n = len(states)
        a.there[row] = a.usable[row] = False
        if n:
            a.memory[row, :n] = [s.card.memory for s in states]
            a.free[row, :n] = [s.free_mib for s in states]
            a.percent[row, :n] = [s.free_percent for s in states]
            a.model[row, :n] = [self._model_of(s.card) for s in states]
            a.usable[row, :n] = [s.card.healthy for s in states]
            a.empty[row, :n] = [s.empty for s in states]
            a.there[row, :n] = True
            self._model_texts[row] = ", ".join(models(s.card for s in states))
        a.room_mem[row] = budget.offered.mem - budget.asked.mem
        a.room_percent[row] = budget.offered.percent - budget.asked.percent
        for resource in self.rules.names.foreign:
            room = budget.offered.of(resource.name) - budget.asked.of(resource.name)
            self._foreign_room(resource.name)[row] = room
        cpu = budget.cpu_offered - budget.cpu_asked if budget.cpu_offered else UNKNOWN_CPU
        self.table.put(row, states if obstacle is None else [], cpu)

    def covers(self, request: PodRequest) -> bool:
        """Whether ``ask`` can answer for such a request."""
        if len(request.containers) != 1 or request.uuids or request.avoids:
            return False
        return request.containers[0].demand.memory_percent is None

    def ask(self, names: Sequence[str], request: PodRequest, *, explain: bool = True) -> Answer:
        """Which of the named nodes take the pod, and unless not wanted why the others do not."""
        demand = request.containers[0].demand
        want = amounts(request, self.rules.unit)
        rows = self.rows(names)
        a = self._arrays
        # Where most nodes are asked, whole arrays are cheaper than picking rows out of them.
        pick = slice(None) if 2 * len(names) > len(self._row) else rows
        cards = _card_fits(a, pick, demand) & self._allowed(pick, request)
        enough = cards.any(axis=1) if demand.cards == 1 else cards.sum(axis=1) >= demand.cards
        fits = enough & a.open[pick]
        fits &= (a.room_mem[pick] >= want.mem) & (a.room_percent[pick] >= want.percent)
        for resource, count in want.foreign:
            fits &= self._foreign_room(resource)[pick] >= count
        if isinstance(pick, slice):
            fits = fits[rows]
        fits &= rows >= 0
        if not explain or fits.all():
            return Answer(fits, {})
        return Answer(fits, self._explain(names, rows, ~fits, request))

    def fresh_table(self) -> NodeTable:
        """The table, with every change in it."""
        self._refresh()
        return self.table

    def order(self) -> _Ints:
        """Each row's place among the nodes by name: a fixed order, the same in every replica."""
        if self._order is None or len(self._order) != len(self._arrays.open):
            order = np.zeros(len(self._arrays.open), np.int64)
            order[[self._row[name] for name in sorted(self._row)]] = np.arange(len(self._row))
            self._order = order
        return self._order

    def uuids(self, row: int, columns: Sequence[int]) -> tuple[str, ...]:
        """The cards in those columns of the row."""
        states = self._states[row][0]
        return tuple(states[column].card.uuid for column in columns)

    def rows(self, names: Sequence[str]) -> _Ints:
        """The row of each node, -1 for one that is not known."""
        self._refresh()
        get = self._row.get
        return np.fromiter(map(get, names, repeat(-1)), np.int64, len(names))

    def _row_of(self, name: str, columns: int) -> int:
        row = self._row.get(name)
        rows, have = self._arrays.free.shape
        if columns > have:
            self._arrays = self._arrays.grown(rows, max(columns, 2 * have))
        if row is None:
            if not self._unused:
                self._arrays = self._arrays.grown(2 * rows, self._arrays.free.shape[1])
                self._unused.extend(range(2 * rows - 1, rows - 1, -1))
            row = self._row[name] = self._unused.pop()
            self._order = None
        return row

    def _foreign_room(self, resource: str) -> _Ints:
        """What each row's kubelet has left of a resource of another system's dialect."""
        rows, room = len(self._arrays.open), self._foreign.get(resource)
        if room is None or len(room) < rows:
            have = room if room is not None else np.zeros(0, np.int64)
            room = np.concatenate([have, np.zeros(rows - len(have), np.int64)])
            self._foreign[resource] = room
        return room

    def _model_of(self, card: Card) -> int:
        number = self._models.get(card.model)
        if number is None:
            number = self._models[card.model] = len(self._models)
            self._examples.append(card)
            self._model_masks.clear()
        return number

    def _allowed(self, pick: slice | _Ints, request: PodRequest) -> _Bools:
        if not request.models:
            return self._arrays.there[pick]
        mask = self._model_masks.get(request.models)
        if mask is None:
            if len(self._model_masks) > 1000:
                self._model_masks.clear()
            mask = np.array([request.allows(card) for card in self._examples], np.bool_)
            self._model_masks[request.models] = mask
        if not len(mask):
            return self._arrays.there[pick]
        allowed: _Bools = mask[self._arrays.model[pick]] & self._arrays.there[pick]
        return allowed

    def _explain(
        self, names: Sequence[str], rows: _Ints, failing: _Bools, request: PodRequest
    ) -> dict[str, Reason]:
        """Reasons for the nodes that fail: in bulk for shortages, which are nearly all of them."""
        where = np.flatnonzero(failing)
        bulk = self._bulk(rows[where], request)
        reasons: dict[str, Reason] = {}
        one: dict[int, Reason] = {}
        for i, key in zip(where.tolist(), bulk.keys, strict=True):
            reason = one.get(key)
            if reason is None:
                if key < 0:
                    reasons[names[i]] = self._single(int(rows[i]), request)
                    continue
                reason = one[key] = bulk.reason(key)
            reasons[names[i]] = reason
        return reasons

    def _single(self, row: int, request: PodRequest) -> Reason:
        if row < 0:
            return Reason(Code.UNKNOWN_NODE)
        obstacle = self._obstacles.get(row)
        if obstacle is not None:
            return obstacle
        if request.models and not self._allowed(np.array([row]), request).any():
            values = {"wanted": request.wanted, "models": self._model_texts[row]}
            return Reason(Code.WRONG_MODEL, values)
        states, budget = self._states[row]
        reason = explain(states, request)
        if reason.code is Code.NO_COMBINATION:
            want = amounts(request, self.rules.unit)
            return shortage(want, budget.offered, budget.asked, self.rules.names) or reason
        return reason

    def _bulk(self, rows: _Ints, request: PodRequest) -> _Bulk:
        demand = request.containers[0].demand
        a = self._arrays
        allowed = self._allowed(rows, request) & a.usable[rows]
        count = allowed.sum(axis=1)
        plain = (rows >= 0) & a.open[rows] & (count >= max(1, demand.cards))
        if demand.whole:
            empty = (a.empty[rows] & allowed).sum(axis=1)
            plain &= empty < demand.cards
            keys = empty * 1000 + count
            make: Callable[[int], Reason] = lambda key: Reason(  # noqa: E731
                Code.NO_WHOLE_CARD,
                {"want": demand.cards, "empty": key // 1000, "cards": key % 1000},
            )
            return _Bulk(np.where(plain, keys, -1).tolist(), make)
        if demand.cards > 1:
            return _Bulk([-1] * len(rows), lambda _key: Reason(Code.NO_CARDS))
        need = _need(a.memory[rows], demand)
        free, percent = a.free[rows], a.percent[rows]
        want = np.where(allowed, need, 0).max(axis=1)
        # In the order in which ``assignment.explain`` looks for the obstacle.
        small = ~(allowed & (need <= a.memory[rows])).any(axis=1)
        short = ~(allowed & (need <= free)).any(axis=1)
        busy = ~(allowed & (need <= free) & (percent >= demand.percent)).any(axis=1)
        kinds = [small, short, busy]
        largest = np.where(allowed, a.memory[rows], 0).max(axis=1)
        freest = np.where(allowed, free, -_HUGE).max(axis=1)
        idlest = np.where(allowed, percent, -_HUGE).max(axis=1)
        kind = np.select(kinds, [_SMALL, _SHORT, _BUSY], -1)
        most = np.select(kinds, [largest, freest, idlest], -1)
        plain &= (kind >= 0) & (most >= 0) & (want < 1 << 29)
        keys = (want << 33) + (most << 2) + kind
        return _Bulk(np.where(plain, keys, -1).tolist(), lambda key: _shortage(key, demand))


_SMALL, _SHORT, _BUSY = range(3)


def _shortage(key: int, demand: Demand) -> Reason:
    """The reason that a key of ``Fleet._bulk`` stands for."""
    want, most, kind = key >> 33, (key >> 2) & ((1 << 31) - 1), key & 3
    if kind == _BUSY:
        return Reason(Code.NO_PERCENT, {"want": demand.percent, "most": most})
    code = Code.TOO_LARGE if kind == _SMALL else Code.NO_MEMORY
    return Reason(code, {"want_mib": want, "most_mib": most})


@dataclass(frozen=True, slots=True)
class _Bulk:
    """A key per failing node, -1 where it has to be looked at alone; and the reason that a key is."""

    keys: list[int]
    reason: Callable[[int], Reason]


def _need(memory: _Ints, demand: Demand) -> _Ints:
    """What the demand takes of each card, in MiB; as ``Demand.on``."""
    if demand.whole:
        return memory
    if demand.mib is None:
        return memory * demand.percent // 100
    return np.full_like(memory, demand.mib)


def _card_fits(a: _Arrays, pick: slice | _Ints, demand: Demand) -> _Bools:
    """As ``CardState.fits``."""
    if demand.whole:
        return a.usable[pick] & a.empty[pick]
    free = a.free[pick]
    need = a.memory[pick] * demand.percent // 100 if demand.mib is None else demand.mib
    fits = free >= need
    if demand.percent:
        fits &= a.percent[pick] >= demand.percent
    else:
        fits &= a.percent[pick] >= 0
    fits &= a.usable[pick]
    return fits
