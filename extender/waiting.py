"""Pods that wait for a card: their line, what is kept for them, and waking them when one is free.

kube-scheduler puts a pod that was refused aside until something happens that it knows to matter, or
five minutes have passed. It cannot know that a card became free, and where a pod's end does wake the
waiting ones, it may ask us before we have seen that end. So whenever a node has more to give, the
pods whose turn it is (``extender.line``) are touched: a condition in its status is an update of the
pod, which makes kube-scheduler try it again at once (since Kubernetes 1.32; QueueingHints, and
"Extender" as a rejecting plugin is woken by every event). Only pods/status is written, which
kube-scheduler's own service account may do anyway.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from extender.clock import Timer
from extender.facts import PodFact
from extender.line import Member, Plan, Turn, due_times, left_over, plan
from extender.line_room import ViewRoom
from extender.view import ClusterView
from gpushare.placement import Placement
from gpushare.pods import PodRef
from gpushare.reasons import Code, Reason
from gpushare.request import PodRequest

# For so many pods something is kept at once, and so many are woken; the others follow as these are
# bound. A thousand waiting pods must not become a thousand calls because one small slice was freed.
_BATCH = 32
# A pod is not woken again within this time, in seconds, unless it was refused meanwhile.
_PATIENCE = 2.0
# A pod that did not come in time is told again, and room kept for it once more, after so long.
_REST = 60.0
# kube-scheduler tries every pod again after five minutes at the latest. A pod that has not been
# seen for longer has no card emptied for it.
_ABSENT = 360.0
_OFFERS = 64


@dataclass(frozen=True, slots=True)
class Fairness:
    """How the line is kept; all in seconds.

    ``share``: how far apart the turns of one person's pods are. ``grace``: how long room is kept for
    a pod whose turn it is, from when it was told, until kube-scheduler brings it. ``drain``: how long
    the first in line waits before cards are emptied for it.
    """

    share: float = 600.0
    grace: float = 15.0
    drain: float = 300.0


_NO_TURN = Turn(0, 0.0, 0.0, "")


@dataclass(slots=True)
class Waiter:
    """A pod that waits. ``since`` and the others are the clock's, ``created`` is since 1970.

    ``refused`` is 0 until we said no. ``chance`` is when room was first kept for it since then, and
    ``passed`` when it had not come for it in time.
    """

    ref: PodRef
    request: PodRequest
    priority: int
    created: float
    since: float
    user: str = ""
    refused: float = 0.0
    woken: float = 0.0
    chance: float = 0.0
    passed: float = 0.0
    offered: tuple[str, ...] | None = None
    turn: Turn = _NO_TURN

    @property
    def uid(self) -> str:
        return self.ref.uid


class Waiting:
    """All unbound pods that ask for our resources, in the order in which they would be served."""

    def __init__(
        self,
        view: ClusterView,
        wake: Callable[[Waiter, str], Awaitable[None]],
        fairness: Fairness | None = None,
    ) -> None:
        self.view = view
        self.fairness = fairness or Fairness()
        self.pods: dict[str, Waiter] = {}
        # Called with 'waiting' or 'unwaiting', and the pod.
        self.on_change: list[Callable[[str, Waiter], None]] = []
        self._wake = wake
        self._room = ViewRoom(view)
        self._refused: dict[str, None] = {}
        # Everybody's pods, waiting or bound, by owner and uid: when they came.
        self._came: dict[str, dict[str, float]] = {}
        self._owner: dict[str, str] = {}
        self._stale: set[str] = set()
        self._offers: OrderedDict[tuple[str, ...], tuple[str, ...]] = OrderedDict()
        self._plan = Plan()
        self._known = (-1, -1)
        self._until = 0.0
        self._edits = 0
        self._timer: Timer | None = None
        self._nodes: dict[str, None] = {}
        self._stir = asyncio.Event()
        view.line = self
        view.on_pod.append(self._pod_changed)
        view.on_room.append(self._more_room)

    # -- the line --------------------------------------------------------------------------------

    def refused(self, fact: PodFact, nodes: Sequence[str]) -> None:
        """The filter said no to this pod on every node it was asked about."""
        waiter = self._joined(fact)
        if waiter is None:
            return
        waiter.refused = self.view.clock.now()
        waiter.chance = waiter.passed = 0.0
        waiter.offered = self._offer(nodes)
        self._refused[fact.ref.uid] = None
        self._edited()

    def queue(self) -> list[Waiter]:
        """By priority, then by turn."""
        self._take_turns()
        return sorted(self.pods.values(), key=lambda waiter: waiter.turn)

    def longest(self) -> float:
        """Seconds for which the pod that waits longest has waited since we saw it first."""
        now = self.view.clock.now()
        return max((now - waiter.since for waiter in self.pods.values()), default=0.0)

    def plan(self) -> Plan:
        """What is kept for whom, now."""
        if not self._refused:
            return Plan()
        known = (self.view.changes, self._edits)
        now = self.view.clock.now()
        if known != self._known or now >= self._until:
            self._until = now + _ABSENT
            self._take_turns()
            asking = [self.pods[uid] for uid in self._refused]
            asking.sort(key=lambda waiter: waiter.turn)
            self._plan = plan(asking, self._room, self._may_claim, _BATCH)
            self._known = (self.view.changes, self._edits)
        return self._plan

    @property
    def busy(self) -> bool:
        """Whether anybody waits who was refused."""
        return bool(self._refused)

    def admit(
        self, fact: PodFact, passed: Sequence[str], failed: Mapping[str, Reason]
    ) -> tuple[Sequence[str], Mapping[str, Reason]]:
        """The filter's answer, less what is kept for pods that are before this one."""
        made = self.plan()
        if not made.claims or not passed:
            return passed, failed
        waiter = self._joined(fact)
        if waiter is None:
            return passed, failed
        self._take_turns()
        kept = {
            name: reason
            for name in passed
            if name in made.by_node
            and isinstance(reason := self._beside(made, waiter, name), Reason)
        }
        if not kept:
            return passed, failed
        return [name for name in passed if name not in kept], {**failed, **kept}

    def place(
        self, node: str, uid: str, request: PodRequest, found: Placement
    ) -> Placement | Reason:
        """``found`` is where a pod may be bound; it is moved off what is kept for those before it."""
        waiter = self.pods.get(uid)
        if waiter is None or node not in self.plan().by_node:
            return found
        return self._beside(self._plan, waiter, node)

    def _beside(self, made: Plan, waiter: Waiter, node: str) -> Placement | Reason:
        claims = made.before(node, waiter.turn)
        states, more = left_over(self._room.states(node), claims)
        found = self.view.fit(node, waiter.uid, waiter.request, states, more)
        if isinstance(found, Placement):
            return found
        return Reason(Code.KEPT, {"ahead": len(claims)})

    def _may_claim(self, member: Member, fits: bool) -> bool:
        waiter, now = self.pods[member.uid], self.view.clock.now()
        if waiter.passed:
            if now < waiter.passed + _REST:
                self._until = min(self._until, waiter.passed + _REST)
                return False
            waiter.chance = waiter.passed = 0.0
        if fits:
            waiter.chance = waiter.chance or now
            over = waiter.chance + self.fairness.grace
        else:
            waiter.chance = 0.0
            start = waiter.since + self.fairness.drain
            over = waiter.refused + _ABSENT
            if now < start or now >= over:
                self._until = min(self._until, start) if now < start else self._until
                return False
        if now > over:
            waiter.passed = now
            over = now + _REST
        # Just behind that moment, so that it is over when it is looked at again.
        self._until = min(self._until, over + 0.001)
        return not waiter.passed

    # -- waking ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Wake pods as their turn comes, until cancelled."""
        while True:
            await self._stir.wait()
            self._stir.clear()
            nodes, self._nodes = list(self._nodes), {}
            made = self.plan()
            wanted = {claim.uid: claim.node for claim in made.claims if not claim.drains}
            wanted |= self._elsewhere(made, nodes)
            for uid, node in wanted.items():
                waiter, now = self.pods.get(uid), self.view.clock.now()
                if waiter is None:
                    continue
                if waiter.woken > waiter.refused and now - waiter.woken < _PATIENCE:
                    continue
                waiter.woken = now
                await self._wake(waiter, node)
            self._look_again(made)

    def _elsewhere(self, made: Plan, nodes: list[str]) -> dict[str, str]:
        """Pods that fit on a node with new room which they were not offered: it may be new itself."""
        found: dict[str, str] = {}
        fits: dict[tuple[PodRequest, int], str] = {}
        claimed = {claim.uid for claim in made.claims}
        for uid in self._refused if nodes else ():
            waiter = self.pods[uid]
            if uid in claimed or waiter.offered is None:
                continue
            key = (waiter.request, id(waiter.offered))
            if key not in fits:
                others = set(nodes).difference(waiter.offered)
                fits[key] = self.view.first_fit(sorted(others), waiter.request) if others else ""
            if fits[key]:
                found[uid] = fits[key]
                if len(found) >= _BATCH:
                    break
        return found

    def resume(self) -> None:
        """The first lists are read: pods may have been refused, and cards freed, before our time."""
        now = self.view.clock.now()
        for waiter in self.pods.values():
            waiter.refused = now
            self._refused[waiter.uid] = None
        self._edited()

    def _look_again(self, made: Plan) -> None:
        """The plan changes with time alone where somebody does not come in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._refused:
            return
        wait = self._until - self.view.clock.now()
        if any(not claim.drains for claim in made.claims):
            wait = min(wait, _PATIENCE)
        self._timer = self.view.clock.call_later(max(0.05, wait), self._stir.set)

    # -- who is in it ----------------------------------------------------------------------------

    def _pod_changed(self, uid: str, fact: PodFact | None) -> None:
        if fact is None:
            self._left(uid, self.view.pods.get(uid))
        elif fact.gated or fact.deleting or not fact.request:
            self._left(uid, None)
        else:
            self._joined(fact)

    def _joined(self, fact: PodFact) -> Waiter | None:
        uid = fact.ref.uid
        waiter = self.pods.get(uid)
        if waiter is None:
            if uid in self.view.ledger.slices or self.view.is_gone(uid) or not fact.request:
                return None
            now = self.view.clock.now()
            waiter = Waiter(fact.ref, fact.request, fact.priority, fact.created, now, fact.user)
            self.pods[uid] = waiter
            self._enter(fact)
            for tell in self.on_change:
                tell("waiting", waiter)
        elif waiter.request != fact.request and fact.request:
            # Annotations may be changed while it waits.
            waiter.request = fact.request
            self._edited()
        return waiter

    def _left(self, uid: str, bound: PodFact | None) -> None:
        """It waits no more. A bound pod still counts among its owner's."""
        waiter = self.pods.pop(uid, None)
        if waiter is not None:
            for tell in self.on_change:
                tell("unwaiting", waiter)
        if uid in self._refused:
            del self._refused[uid]
            self._edited()
        if bound is not None and bound.node and bound.request:
            self._enter(bound)
            return
        owner = self._owner.pop(uid, None)
        if owner is not None:
            self._came[owner].pop(uid, None)
            self._stale.add(owner)
            if not self._came[owner]:
                del self._came[owner]

    def _enter(self, fact: PodFact) -> None:
        uid = fact.ref.uid
        if uid not in self._owner:
            owner = self._owner[uid] = f"{fact.ref.namespace}/{fact.user}"
            self._came.setdefault(owner, {})[uid] = fact.created
            self._stale.add(owner)

    def _take_turns(self) -> None:
        """Bring the turns up to date of those whose owners' pods have changed."""
        if not self._stale:
            return
        for owner in self._stale:
            came = self._came.get(owner, {})
            if not any(uid in self.pods for uid in came):
                continue
            for uid, due in due_times(came, self.fairness.share).items():
                waiter = self.pods.get(uid)
                if waiter is not None:
                    waiter.turn = Turn.of(waiter.priority, due, waiter.created, uid)
        self._stale.clear()

    def _offer(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes as one shared value: a thousand pods are offered the same thousand nodes."""
        offer = tuple(nodes)
        known = self._offers.setdefault(offer, offer)
        self._offers.move_to_end(known)
        if len(self._offers) > _OFFERS:
            self._offers.popitem(last=False)
        return known

    def _more_room(self, node: str) -> None:
        self._nodes[node] = None
        self._stir.set()

    def _edited(self) -> None:
        self._edits += 1
        self._stir.set()
