"""What would make room: which idle pods' restarts, or which additional card. Dry: nothing is touched.

A restart gives the slice back and starts the same pod again, wherever it then fits; a pod that would
fit nowhere afterwards is said to have to stop. The planner only answers for what is free and held now:
how long anybody waits follows from when people stop, which it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from gpushare.assignment import CardState, assign
from gpushare.cards import Card
from gpushare.placement import Placement
from gpushare.reasons import Reason
from gpushare.request import PodRequest

# A plan with more restarts than this is no favour to anybody.
MOST_RESTARTS = 4
_MAX_TRIES = 2000


@dataclass(frozen=True, slots=True)
class Holder:
    """A bound pod: what it asked for, where it is, and for how many seconds it has been idle."""

    pod: str
    request: PodRequest
    placement: Placement
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """One restart. ``to`` is the node it would come up on, '' if there is none left for it."""

    pod: str
    idle: float
    to: str

    def sentence(self) -> str:
        minutes = int(self.idle // 60)
        then = f"restart it; it fits on {self.to}" if self.to else "it would have to stop"
        return f"{self.pod}, idle for {minutes} min: {then}"


@dataclass(frozen=True, slots=True)
class Room:
    """How the waiting pod gets its place on ``node``: after ``moves``, none if it fits as things are."""

    pod: str
    node: str
    moves: tuple[Move, ...]

    def sentence(self) -> str:
        if not self.moves:
            return f"{self.pod} fits on {self.node} now"
        steps = "; ".join(move.sentence() for move in self.moves)
        return f"{self.pod} would fit on {self.node}: {steps}"

    def as_json(self) -> dict[str, object]:
        moves = [
            {"pod": m.pod, "idle_seconds": int(m.idle), "to": m.to or None} for m in self.moves
        ]
        return {"pod": self.pod, "node": self.node, "restarts": moves}


Nodes = Mapping[str, Sequence[CardState]]


def make_room(
    nodes: Nodes, holders: Iterable[Holder], pod: str, request: PodRequest, idle_after: float
) -> Room | None:
    """The least disturbing way to place ``request``, or None where idle pods are not in the way.

    Fewest pods that must stop, then fewest restarts, then the longest idle. ``idle_after``: seconds
    without use from which a pod counts as idle.
    """
    for name, states in sorted(nodes.items()):
        if isinstance(assign("", name, states, request), Placement):
            return Room(pod, name, ())
    idle = sorted((h for h in holders if h.idle >= idle_after), key=lambda h: (-h.idle, h.pod))
    found: list[tuple[tuple[int, int, float, str], Room]] = []
    for name in sorted(nodes):
        here = [h for h in idle if h.placement.node == name]
        found += _on_node(nodes, name, here, pod, request)
    return min(found, key=lambda entry: entry[0])[1] if found else None


def _on_node(
    nodes: Nodes, name: str, idle: Sequence[Holder], pod: str, request: PodRequest
) -> Iterable[tuple[tuple[int, int, float, str], Room]]:
    """The ways with the fewest restarts on one node."""
    tries = 0
    for count in range(1, min(len(idle), MOST_RESTARTS) + 1):
        ways: list[tuple[tuple[int, int, float, str], Room]] = []
        for leaving in combinations(idle, count):
            tries += 1
            if tries > _MAX_TRIES:
                return ways
            states = nodes[name]
            for holder in leaving:
                states = _changed(states, holder.placement, -1)
            placed = assign("", name, states, request)
            if isinstance(placed, Reason):
                continue
            after = {**nodes, name: _changed(states, placed, +1)}
            moves = _restarts(after, leaving)
            stops = sum(not move.to for move in moves)
            shortest = min(move.idle for move in moves)
            ways.append(((stops, count, -shortest, name), Room(pod, name, moves)))
        if ways:
            return ways
    return []


def _restarts(nodes: Nodes, leaving: Sequence[Holder]) -> tuple[Move, ...]:
    """Where each of the pods comes up again, one after the other."""
    left = dict(nodes)
    moves = []
    for holder in leaving:
        to = ""
        for name in sorted(left):
            placed = assign("", name, left[name], holder.request)
            if isinstance(placed, Placement):
                to, left[name] = name, _changed(left[name], placed, +1)
                break
        moves.append(Move(holder.pod, holder.idle, to))
    return tuple(moves)


def _changed(states: Sequence[CardState], placement: Placement, sign: int) -> list[CardState]:
    """The cards with the placement on them (+1) or off them (-1)."""
    footprint = placement.footprint()
    changed = []
    for state in states:
        mib, percent = footprint.get(state.card.uuid, (0, 0))
        if mib or percent:
            free, left = state.free_mib - sign * mib, state.free_percent - sign * percent
            # Memory-only slices leave 100 % free, so a card is empty when its memory is as well.
            empty = sign < 0 and left == 100 and free >= state.card.memory - state.card.taken
            state = replace(state, free_mib=free, free_percent=left, empty=empty)
        changed.append(state)
    return changed


@dataclass(frozen=True, slots=True)
class Addition:
    """What one more card of ``model`` would do: how many of the waiting pods would fit at once."""

    model: str
    served: int
    waiting: int

    def sentence(self) -> str:
        return f"one more {self.model} would take {self.served} of the {self.waiting} waiting pods"

    def as_json(self) -> dict[str, object]:
        return {"model": self.model, "served": self.served, "waiting": self.waiting}


def additions(nodes: Nodes, waiting: Sequence[PodRequest]) -> list[Addition]:
    """For each model there is, what one more card of it would do; the most useful first.

    Pods are taken in the order in which they wait, beside what is free already.
    """
    cards = {s.card.model: s.card for states in nodes.values() for s in states}
    now = _served(nodes, waiting)
    found = []
    for model in sorted(cards):
        new = Card(f"one more {model}", 0, 0, model, cards[model].memory, taken=cards[model].taken)
        # '~' sorts after all names of nodes, so what is free already is used first.
        more = {**nodes, "~": [CardState(new, new.memory - new.taken, 100, empty=True)]}
        found.append(Addition(new.short_model, _served(more, waiting) - now, len(waiting)))
    return sorted(found, key=lambda a: (-a.served, a.model))


def _served(nodes: Nodes, waiting: Sequence[PodRequest]) -> int:
    left = dict(nodes)
    served = 0
    for request in waiting:
        for name in sorted(left):
            placed = assign("", name, left[name], request)
            if isinstance(placed, Placement):
                left[name] = _changed(left[name], placed, +1)
                served += 1
                break
    return served
