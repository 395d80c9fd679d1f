"""What would make room for those who wait: GET /v1/plan. It only answers; nothing is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from extender.scoring.plan import Addition, Holder, Room, additions, make_room
from extender.usage import Usage
from extender.view import ClusterView
from extender.waiting import Waiting
from gpushare.assignment import CardState
from gpushare.request import PodRequest

# A plan is for people, who read the first lines of it.
_MOST_PODS = 20
_MOST_NODES = 200


@dataclass(frozen=True, slots=True)
class Question:
    """A picture of the cluster that can be thought about while the cluster goes on."""

    nodes: dict[str, Sequence[CardState]]
    holders: tuple[Holder, ...]
    waiting: tuple[tuple[str, PodRequest], ...]
    more: int


@dataclass(frozen=True, slots=True)
class Answer:
    """For each waiting pod how it would get its place, None where idle pods are not in the way; what
    one more card of each model would do; and how many waiting pods were left out."""

    rooms: tuple[tuple[str, Room | None], ...]
    additions: tuple[Addition, ...]
    more: int

    def as_json(self) -> dict[str, object]:
        return {
            "pods": [
                {
                    "pod": pod,
                    "sentence": room.sentence() if room else _nothing(pod),
                    "node": room.node if room else None,
                    "restarts": room.as_json()["restarts"] if room else [],
                }
                for pod, room in self.rooms
            ],
            "additions": [
                {**addition.as_json(), "sentence": addition.sentence()}
                for addition in self.additions
            ],
            "more": self.more,
        }


def _nothing(pod: str) -> str:
    return f"no restart of idle pods makes room for {pod}"


class Planner:
    """Takes the picture. ``clock`` gives seconds since 1970, as usage does."""

    def __init__(
        self,
        view: ClusterView,
        waiting: Waiting,
        usage: Usage,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.view, self.waiting, self.usage, self.clock = view, waiting, usage, clock

    def question(self) -> Question:
        """The nodes that take pods, who is on them and who waits, first in line first."""
        names = [name for name in self.view.node_names() if self._takes_pods(name)][:_MOST_NODES]
        states = self.view.ledger.nodes
        nodes: dict[str, Sequence[CardState]] = {name: states[name].states() for name in names}
        queue = self.waiting.queue()
        waiting = tuple((str(one.ref), one.request) for one in queue[:_MOST_PODS])
        return Question(nodes, tuple(self._holders(nodes)), waiting, len(queue) - len(waiting))

    def _takes_pods(self, name: str) -> bool:
        fact = self.view.node_fact(name)
        return bool(fact and fact.takes_pods)

    def _holders(self, nodes: dict[str, Sequence[CardState]]) -> list[Holder]:
        now, found = self.clock(), []
        for uid, held in self.view.ledger.slices.items():
            fact = self.view.pods.get(uid)
            if fact is None or not fact.request or held.placement.node not in nodes:
                continue
            idle = self._idle(uid, held.placement.node, held.placement.footprint(), now)
            found.append(Holder(str(held.pod), fact.request, held.placement, idle))
        return found

    def _idle(self, uid: str, node: str, cards: dict[str, tuple[int, int]], now: float) -> float:
        """Seconds since a program of the pod ran on any of its cards; 0 where nobody knows."""
        idle = []
        for card in cards:
            use = self.usage.slice(node, uid, card)
            if use is None:
                return 0.0
            idle.append(now - max(use.watched_since, use.last_kernel or 0.0))
        return max(0.0, min(idle, default=0.0))


def answer(question: Question, idle_after: float) -> Answer:
    """Think about it; pure. ``idle_after``: seconds without use from which a pod counts as idle."""
    rooms = tuple(
        (pod, make_room(question.nodes, question.holders, pod, request, idle_after))
        for pod, request in question.waiting
    )
    more_cards = additions(question.nodes, [request for _, request in question.waiting])
    return Answer(rooms, tuple(more_cards), question.more)
