"""The line of pods that wait for a card: who is before whom, and what is kept for whom. Pure.

Order. By priority, then by turn. A pod's turn is when it came, but a person's (or a namespace's)
pods take their turns ``share`` seconds apart: the second of one person comes after the first of
everybody who came up to ``share`` seconds later, the third after twice that. A pod's turn never
moves back and pods that come later have later turns, so everybody's turn comes.

What is kept. The pods in the line are placed in thought, first to last, on what is free now:

* A pod that fits has that room kept for it until it is bound, for a bounded time, because
  kube-scheduler takes up to seconds to come back with it. Whoever is behind it may have what is
  left: a small pod goes by whenever the pods before it still fit after it.
* The first pod of those that compete for the same cards, if it fits nowhere and has waited for a
  while, has the card kept where the least has to end, so that small pods that come and go cannot
  keep a large one out for ever. Everything else may be used by the pods behind it. This is
  backfilling with one reservation (EASY), without the run times that notebooks do not have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gpushare.assignment import CardState
from gpushare.budget import NONE, Amounts
from gpushare.cards import Card
from gpushare.placement import Placement
from gpushare.reasons import Reason
from gpushare.request import PodRequest


class Turn(NamedTuple):
    """Where a pod stands: smaller is earlier. ``due`` and ``created`` are seconds since 1970."""

    rank: int
    due: float
    created: float
    uid: str

    @classmethod
    def of(cls, priority: int, due: float, created: float, uid: str) -> Turn:
        return cls(-priority, due, created, uid)


def due_times(created: Mapping[str, float], share: float) -> dict[str, float]:
    """When the turn of each of one owner's pods counts from; ``created`` is by uid, in seconds."""
    due: dict[str, float] = {}
    last = float("-inf")
    for uid, came in sorted(created.items(), key=lambda item: (item[1], item[0])):
        last = due[uid] = max(came, last + share)
    return due


class Member(Protocol):
    """A pod in the line. ``offered`` are the nodes it may go to, as far as we were told."""

    @property
    def uid(self) -> str: ...

    @property
    def turn(self) -> Turn: ...

    @property
    def request(self) -> PodRequest: ...

    @property
    def offered(self) -> tuple[str, ...] | None: ...


class Room(Protocol):
    """The cluster, as far as the line asks about it."""

    def fitting(self, nodes: Sequence[str] | None, request: PodRequest) -> Iterator[str]:
        """The nodes of these that have room as things are."""

    def states(self, node: str) -> list[CardState]: ...

    def place(
        self,
        node: str,
        uid: str,
        request: PodRequest,
        states: Sequence[CardState],
        more: Amounts,
    ) -> Placement | Reason: ...

    def asked(self, request: PodRequest) -> Amounts:
        """What a kubelet counts for it."""

    def target(
        self, nodes: Sequence[str] | None, request: PodRequest
    ) -> tuple[str, tuple[str, ...]] | None:
        """The node and the cards on which the least has to end for it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is kept for a pod: ``shares`` by card, in MiB and per cent, or all of the cards it drains."""

    uid: str
    turn: Turn
    node: str
    shares: Mapping[str, tuple[int, int]]
    asked: Amounts = NONE
    drains: bool = False


@dataclass(slots=True)
class Plan:
    """What is kept, in the order of the line."""

    claims: list[Claim] = field(default_factory=list)
    by_node: dict[str, list[Claim]] = field(default_factory=dict)

    def add(self, claim: Claim) -> None:
        self.claims.append(claim)
        self.by_node.setdefault(claim.node, []).append(claim)

    def before(self, node: str, turn: Turn | None) -> list[Claim]:
        """The claims on a node that are before ``turn``; all for None."""
        claims = self.by_node.get(node, [])
        if turn is None:
            return claims
        return claims[: bisect_left(claims, turn, key=lambda claim: claim.turn)]


def left_over(
    states: Iterable[CardState], claims: Iterable[Claim]
) -> tuple[list[CardState], Amounts]:
    """The cards less what is kept on them, and what the kubelet will be asked for it."""
    by_card = {state.card.uuid: state for state in states}
    more = NONE
    for claim in claims:
        more += claim.asked
        for uuid, (mib, percent) in claim.shares.items():
            state = by_card.get(uuid)
            if state is None:
                continue
            if claim.drains:
                mib, percent = max(0, state.free_mib), max(0, state.free_percent)
            by_card[uuid] = state.take(mib, percent)
    return list(by_card.values()), more


def plan(
    line: Iterable[Member],
    room: Room,
    may_claim: Callable[[Member, bool], bool],
    most: int = 32,
) -> Plan:
    """Place the pods of the line in thought. ``line`` is in order.

    ``may_claim`` is told each pod and whether it fits, and says whether something is kept for it.
    """
    made = Plan()
    left: dict[tuple[PodRequest, int], _Left] = {}
    draining: list[PodRequest] = []
    for member in line:
        if len(made.claims) >= most:
            break
        # Lists of nodes are long, and members with equal ones share one.
        key = (member.request, id(member.offered))
        if key not in left:
            left[key] = _Left(room.fitting(member.offered, member.request))
        claim = _claim(made, room, member, left[key])
        if claim is not None:
            if may_claim(member, True):
                made.add(claim)
            continue
        if may_claim(member, False) and not any(compete(member.request, r) for r in draining):
            target = room.target(member.offered, member.request)
            if target is not None:
                node, cards = target
                draining.append(member.request)
                shares = dict.fromkeys(cards, (0, 0))
                made.add(Claim(member.uid, member.turn, node, shares, drains=True))
    return made


class _Left:
    """The nodes that may still have room for one kind of pod, from the first that does.

    What is kept only grows along the line, so a node that fell out stays out.
    """

    def __init__(self, nodes: Iterator[str]) -> None:
        self._nodes = nodes
        self.node = next(nodes, None)

    def drop(self) -> None:
        self.node = next(self._nodes, None)


def _claim(made: Plan, room: Room, member: Member, left: _Left) -> Claim | None:
    while left.node is not None:
        node = left.node
        states, more = left_over(room.states(node), made.by_node.get(node, ()))
        found = room.place(node, member.uid, member.request, states, more)
        if isinstance(found, Placement):
            asked = room.asked(member.request)
            return Claim(member.uid, member.turn, node, found.footprint(), asked)
        left.drop()
    return None


def compete(one: PodRequest, other: PodRequest) -> bool:
    """Whether some card could serve both, as far as the names they give tell."""
    if one.uuids and other.uuids and not set(one.uuids) & set(other.uuids):
        return False
    if not one.models or not other.models:
        return True
    return any(_alike(a, b) for a in one.models for b in other.models)


def _alike(one: str, other: str) -> bool:
    """'A10' and 'NVIDIA A10' may be one card, 'T4' and 'A10' are not."""
    return _named(one).is_model(other) or _named(other).is_model(one)


def _named(model: str) -> Card:
    return Card("-", 0, 0, model, 0)


def places(line: Sequence[Member]) -> list[tuple[int, int]]:
    """Each pod's (place, of how many) among those that compete with it; ``line`` is in order."""
    wanted = [(member.request.models, member.request.uuids) for member in line]
    kinds = {kind: PodRequest((), *kind) for kind in wanted}
    rivals = {a: [b for b in kinds if compete(kinds[a], kinds[b])] for a in kinds}
    total, seen = Counter(wanted), Counter[tuple[tuple[str, ...], tuple[str, ...]]]()
    found = []
    for kind in wanted:
        rival = rivals[kind]
        found.append((1 + sum(seen[r] for r in rival), sum(total[r] for r in rival)))
        seen[kind] += 1
    return found
