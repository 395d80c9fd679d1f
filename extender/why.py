"""Why a pod waits: its place in the line, what each card lacks, and what would have to end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from extender.facts import PodFact
from extender.leaving import ways
from extender.line import left_over, places
from extender.view import ClusterView
from extender.waiting import Waiter, Waiting
from gpushare.assignment import CardState, explain
from gpushare.cards import Card
from gpushare.placement import Placement
from gpushare.reasons import Code, Reason
from gpushare.request import ContainerRequest, PodRequest
from gpushare.waiting import (
    MOST_REASONS,
    Leaver,
    Obstacle,
    PlacedCard,
    PlacedPod,
    RefusedPod,
    WaitingPod,
    WayOut,
    Why,
)
from gpushare.wording import wish

_MOST_WAITING = 1000
_MOST_TOLD = 4000
_MOST_WAYS = 3
_MOST_NODES = 200
_LONGEST = 1000


class Explainer:
    """Reads view and line. Equal requests are explained once, until something changes."""

    def __init__(self, view: ClusterView, waiting: Waiting) -> None:
        self.view = view
        self.waiting = waiting
        self._known: dict[PodRequest, tuple[tuple[Obstacle, ...], int, tuple[WayOut, ...]]] = {}
        self._version = -1

    async def line(self) -> list[WaitingPod]:
        """All that wait, in their order. The scheduler's verbs get their turn in between."""
        queue = self.waiting.queue()
        found = list(zip(queue, places(queue), strict=True))[:_MOST_WAITING]
        # A long line is told in fewer words about each.
        most = max(4, min(MOST_REASONS, _MOST_TOLD // max(1, len(found))))
        told = []
        for i, (waiter, place) in enumerate(found):
            if waiter.request not in self._known or i % 20 == 0:
                await asyncio.sleep(0)
            told.append(self._waiting(waiter, *place, most))
        return told

    def why(self, namespace: str, name: str) -> Why | None:
        """About one pod; None for a pod that is not known, or asks for nothing of ours."""
        fact = self.view.pod_named(namespace, name)
        if fact is None:
            return None
        ref = fact.ref
        held = self.view.slice_of(ref.uid)
        if held is not None:
            return self._placed(fact, held.placement)
        if fact.refusal is not None:
            sentence = fact.refusal.sentence()[:_LONGEST]
            return RefusedPod(ref.namespace, ref.name, ref.uid, sentence)
        if fact.node:
            doubt = self.view.doubts.get(ref.uid, "it was not placed by the gpushare scheduler")
            sentence = f"it is bound to {fact.node} and gets no card: {doubt}; delete it"
            return RefusedPod(ref.namespace, ref.name, ref.uid, sentence)
        queue = self.waiting.queue()
        for waiter, place in zip(queue, places(queue), strict=True):
            if waiter.uid == ref.uid:
                return self._waiting(waiter, *place)
        sentence = "it is not to be scheduled yet: it has scheduling gates, or is being deleted"
        return RefusedPod(ref.namespace, ref.name, ref.uid, sentence)

    def _placed(self, fact: PodFact, placement: Placement) -> PlacedPod:
        account = self.view.ledger.nodes.get(placement.node)
        cards = account.cards if account else {}
        held = []
        for uuid, (mib, percent) in placement.footprint().items():
            card = cards.get(uuid)
            index, model = (card.index, card.short_model) if card else (-1, "")
            held.append(PlacedCard(uuid, index, model, mib, percent))
        ref = fact.ref
        return PlacedPod(ref.namespace, ref.name, ref.uid, placement.node, tuple(held))

    def _waiting(self, waiter: Waiter, place: int, of: int, most: int = MOST_REASONS) -> WaitingPod:
        obstacles, more, ways_out = self._about(waiter.request)
        more += len(obstacles[most:])
        demand = _largest(waiter.request).demand
        return WaitingPod(
            namespace=waiter.ref.namespace,
            pod=waiter.ref.name,
            uid=waiter.uid,
            user=waiter.user,
            since=waiter.created,
            request=wish(waiter.request),
            mib=demand.mib or 0,
            percent=demand.percent,
            cards=demand.cards,
            models=waiter.request.models,
            place=place,
            of=of,
            reasons=self._with_kept(waiter, obstacles[:most]),
            more=more,
            would_end=ways_out,
        )

    def _with_kept(self, waiter: Waiter, found: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
        """Cards that would do, were they not kept for others."""
        made = self.waiting.plan()
        if not made.claims or all(obstacle.reason != _FREE for obstacle in found):
            return found
        left: dict[str, dict[str, CardState]] = {}
        told = []
        for obstacle in found:
            if obstacle.reason == _FREE and obstacle.node in made.by_node:
                if obstacle.node not in left:
                    account = self.view.ledger.nodes[obstacle.node]
                    claims = made.before(obstacle.node, waiter.turn)
                    states, _ = left_over(account.states(), claims)
                    left[obstacle.node] = {state.card.uuid: state for state in states}
                state = left[obstacle.node][obstacle.card]
                if not state.fits(_one_card(waiter.request).demand):
                    ahead = len(made.before(obstacle.node, waiter.turn))
                    sentence = Reason(Code.KEPT, {"ahead": ahead}).sentence()
                    obstacle = replace(obstacle, reason=sentence)
            told.append(obstacle)
        return tuple(told)

    def _about(self, request: PodRequest) -> tuple[tuple[Obstacle, ...], int, tuple[WayOut, ...]]:
        if self._version != self.view.changes or len(self._known) > 1000:
            self._known.clear()
            self._version = self.view.changes
        known = self._known.get(request)
        if known is None:
            known = self._known[request] = (*self._obstacles(request), self._ways(request))
        return known

    def _obstacles(self, request: PodRequest) -> tuple[tuple[Obstacle, ...], int]:
        """What is in the way on the cards that the pod may use; on all cards where it may use none."""
        allows = _Allowed(request)
        cards: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        for name in self.view.node_names():
            for card in self.view.ledger.nodes[name].cards.values():
                cards[allows(card)].append((name, card.uuid))
        wanted = cards[True] or cards[False]
        states: dict[str, dict[str, CardState]] = {}
        told = []
        for name, uuid in wanted[:MOST_REASONS]:
            if name not in states:
                account = self.view.ledger.nodes[name]
                states[name] = {state.card.uuid: state for state in account.states()}
            told.append(self._obstacle(name, states[name][uuid], request))
        return tuple(told), len(wanted) - len(told)

    def _obstacle(self, node: str, state: CardState, request: PodRequest) -> Obstacle:
        card = state.card
        return Obstacle(
            node, card.uuid, card.index, card.short_model, state.free_mib, state.free_percent,
            self._reason(node, state, request)[:_LONGEST],
        )  # fmt: skip

    def _reason(self, node: str, state: CardState, request: PodRequest) -> str:
        fact = self.view.node_fact(node)
        if fact is not None and not fact.takes_pods:
            return "the node takes no pods: it is cordoned or not ready"
        one = replace(request, containers=(_one_card(request),))
        if not (request.allows(state.card) and state.fits(one.containers[0].demand)):
            return explain((state,), one).sentence()
        found = self.view.fit(node, "", request)
        return found.sentence() if isinstance(found, Reason) else _FREE

    def _ways(self, request: PodRequest) -> tuple[WayOut, ...]:
        ledger = self.view.ledger
        names = self.view.node_names()
        if len(names) > _MOST_NODES:
            names = [name for name in names if self._takes_pods(name)][:_MOST_NODES]
        nodes = [ledger.nodes[name] for name in names if self._takes_pods(name)]
        found = ways(request, nodes, most=_MOST_WAYS)
        return tuple(
            WayOut(way.node, way.cards[0], tuple(self._leaver(uid, way.cards) for uid in way.uids))
            for way in found
            if way.uids
        )

    def _takes_pods(self, name: str) -> bool:
        fact = self.view.node_fact(name)
        return bool(fact and fact.takes_pods)

    def _leaver(self, uid: str, cards: tuple[str, ...]) -> Leaver:
        held, fact = self.view.ledger.slices[uid], self.view.pods.get(uid)
        footprint = held.placement.footprint()
        shares = [footprint[card] for card in cards if card in footprint]
        return Leaver(
            held.pod.namespace,
            held.pod.name,
            fact.user if fact else "",
            sum(mib for mib, _ in shares),
            max((percent for _, percent in shares), default=0),
        )


class _Allowed:
    """``PodRequest.allows``, which is the same for all cards of a model unless cards are named."""

    def __init__(self, request: PodRequest) -> None:
        self._request = request
        self._known: dict[str, bool] = {}

    def __call__(self, card: Card) -> bool:
        if self._request.uuids or self._request.avoids:
            return self._request.allows(card)
        known = self._known.get(card.model)
        if known is None:
            known = self._known[card.model] = self._request.allows(card)
        return known


_FREE = "has room now; the scheduler has been told"


def _largest(request: PodRequest) -> ContainerRequest:
    return max(
        request.containers,
        key=lambda c: (c.demand.whole, c.demand.cards, c.demand.mib or 0, c.demand.percent),
    )


def _one_card(request: PodRequest) -> ContainerRequest:
    largest = _largest(request)
    return replace(largest, demand=replace(largest.demand, cards=1))
