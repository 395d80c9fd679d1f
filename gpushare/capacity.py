"""How many more pods of one kind would fit now: what a form promises before anybody asks.

Agrees with ``assignment.assign`` by construction and by test, but counts instead of placing, and
counts equal cards once: a thousand nodes cost what their different states cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from gpushare.assignment import CardState
from gpushare.cards import Card
from gpushare.request import Demand, PodRequest


@dataclass(frozen=True, slots=True)
class Room:
    """How many fit now (``free``), and how many would fit on the same cards if all were empty."""

    free: int
    total: int

    def __add__(self, other: Room) -> Room:
        return Room(self.free + other.free, self.total + other.total)


NO_ROOM = Room(0, 0)


class Kind(NamedTuple):
    """All that counts of a card: cards of one kind are alike. Plain values, so cheap to count."""

    model: str
    memory: int
    health: str
    free_mib: int
    free_percent: int
    empty: bool

    @property
    def state(self) -> CardState:
        card = Card("-", 0, 0, self.model, self.memory, self.health)
        return CardState(card, self.free_mib, self.free_percent, self.empty)


def kind(state: CardState) -> Kind:
    card = state.card
    return Kind(
        card.model, card.memory, card.health, state.free_mib, state.free_percent, state.empty
    )


class Capacity:
    """The cards of a cluster at one moment, condensed for counting.

    For what a notebook is: one container that asks, of any card of some models. Cards that a
    request names by uuid are not told apart here.
    """

    def __init__(self, nodes: Iterable[Iterable[Kind]]) -> None:
        self._nodes = [list(kinds) for kinds in nodes]
        alike = Counter(chain.from_iterable(self._nodes))
        self._alike = [(one, one.state, n) for one, n in alike.items()]
        self._rooms: dict[PodRequest, Room] = {}
        self._admitted: dict[tuple[tuple[str, ...], ...], list[tuple[Kind, CardState, int]]] = {}

    @cached_property
    def _layouts(self) -> dict[tuple[tuple[Kind, int], ...], int]:
        """Equal nodes, counted once. Asked for only where several cards of one node are wanted."""
        layouts = Counter(tuple(sorted(Counter(kinds).items())) for kinds in self._nodes)
        return dict(layouts)

    @property
    def cards(self) -> int:
        """How many cards there are, healthy or not."""
        return sum(n for _, _, n in self._alike)

    def room(self, request: PodRequest) -> Room:
        """How many pods with ``request`` fit. Counted once for equal requests."""
        room = self._rooms.get(request)
        if room is None:
            room = self._rooms[request] = self._count(request)
        return room

    def memory(self, request: PodRequest) -> tuple[int, int]:
        """(free, total) MiB of the healthy cards that ``request``'s annotations admit."""
        free = total = 0
        for one, state, n in self._for(request):
            if state.card.healthy:
                free += max(0, one.free_mib) * n
                total += one.memory * n
        return free, total

    def _for(self, request: PodRequest) -> list[tuple[Kind, CardState, int]]:
        """The cards that ``request``'s annotations admit. Many requests name the same models."""
        key = request.models, request.uuids, request.avoids
        found = self._admitted.get(key)
        if found is None:
            found = [alike for alike in self._alike if request.allows(alike[1].card)]
            self._admitted[key] = found
        return found

    def largest_free(self, request: PodRequest) -> int:
        """MiB that are free on the emptiest of the healthy cards that ``request`` admits."""
        cards = [one.free_mib for one, state, _ in self._for(request) if state.card.healthy]
        return max(0, max(cards, default=0))

    def most_mib(self, request: PodRequest) -> int:
        """What a pod with ``request`` would hold on the largest cards it may have; 0 without any."""
        if not request.containers:
            return 0
        demand = request.containers[0].demand
        sizes = (demand.on(state.card)[0] for _, state, _ in self._for(request))
        return max(sizes, default=0) * demand.cards

    def _count(self, request: PodRequest) -> Room:
        if not request.containers:
            return NO_ROOM
        demand = request.containers[0].demand
        if demand.cards == 1:
            return _sum((_room(state, demand), n) for _, state, n in self._for(request))
        on_one = {one: (_room(state, demand), n) for one, state, n in self._for(request)}
        return _sum(
            (
                Room(
                    _groups([(room.free, n) for room, n in rooms], demand.cards),
                    _groups([(room.total, n) for room, n in rooms], demand.cards),
                ),
                nodes,
            )
            for layout, nodes in self._layouts.items()
            if (rooms := [(on_one[one][0], n) for one, n in layout if one in on_one])
        )


def _room(state: CardState, demand: Demand) -> Room:
    """On one card."""
    if not state.card.healthy:
        return NO_ROOM
    if demand.whole:
        return Room(int(state.empty), 1)
    mib, percent = demand.on(state.card)
    return Room(
        _times(state.free_mib, state.free_percent, mib, percent),
        _times(state.card.memory, 100, mib, percent),
    )


def _times(have_mib: int, have_percent: int, mib: int, percent: int) -> int:
    if not percent:
        return max(0, have_mib // mib) if mib else 0
    times = have_percent // percent
    return max(0, min(have_mib // mib, times) if mib else times)


def _groups(rooms: list[tuple[int, int]], size: int) -> int:
    """How many groups of ``size`` distinct cards can be made of cards with so much room each.

    ``rooms`` holds (room on one card, number of such cards). Exact: t groups exist if and only if
    the cards, each counted at most t times, offer t × size places.
    """
    low, high = 0, sum(room * n for room, n in rooms) // size
    while low < high:
        t = (low + high + 1) // 2
        if sum(min(room, t) * n for room, n in rooms) >= t * size:
            low = t
        else:
            high = t - 1
    return low


def _sum(rooms: Iterable[tuple[Room, int]]) -> Room:
    free = total = 0
    for room, n in rooms:
        free += room.free * n
        total += room.total * n
    return Room(free, total)
