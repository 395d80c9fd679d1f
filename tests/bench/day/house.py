"""The cards and who holds them: the product's ledger, and its scoring over the same books."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.scoring import NodeTable, Scorer, Workload, make_policy
from extender.scoring.ask import ask_of
from gpushare.assignment import CardState, assign
from gpushare.budget import NONE, Amounts
from gpushare.cards import Card, NodeCards
from gpushare.ledger import Ledger
from gpushare.placement import Placement
from gpushare.pods import PodRef
from gpushare.reasons import Reason
from gpushare.request import PodRequest
from tests.bench.day.parameters import Kind

_MAKERS = {"T4": "Tesla", "A10": "NVIDIA"}


class House:
    """All nodes. It is also the ``Room`` that the extender's line asks about."""

    def __init__(self, pool: Sequence[Kind], policy: str, workload: Workload) -> None:
        self.ledger = Ledger(on_change=self._changed)
        self.table = NodeTable()
        self.policy, self.workload = policy, workload
        self.rows: dict[str, int] = {}
        self._names: list[str] = []
        self._target = workload.target(0.0)
        self.scorer = Scorer(self.table, make_policy(policy, self._target))
        for kind in pool:
            for first in range(0, kind.cards, kind.per_node):
                cards = range(first, min(first + kind.per_node, kind.cards))
                self._publish(f"{kind.model.lower()}-{first // kind.per_node:02}", kind, cards)

    def _publish(self, name: str, kind: Kind, cards: range) -> None:
        self.rows[name] = len(self._names)
        self._names.append(name)
        model = f"{_MAKERS.get(kind.model, 'NVIDIA')} {kind.model}"
        published = tuple(
            Card(f"GPU-{kind.model}-{number}", index, index, model, kind.memory_mib)
            for index, number in enumerate(cards)
        )
        self.ledger.publish(name, NodeCards(published))

    def _changed(self, node: str) -> None:
        self.table.put(self.rows[node], self.states(node))

    def asked(self, request: PodRequest) -> Amounts:
        return NONE

    def learn(self, request: PodRequest, minutes: float) -> None:
        """Somebody has asked: scores look at what is asked for."""
        self.workload.observe(ask_of(request), minutes * 60)
        target = self.workload.target(minutes * 60)
        if target is not self._target:
            self._target = target
            self.scorer = Scorer(self.table, make_policy(self.policy, target))

    def choose(self, uid: str, request: PodRequest) -> Placement | None:
        """Where the policy puts it, None where nothing is free."""
        ask = ask_of(request)
        marks = self.scorer.marks(ask)
        row = marks.best()
        if row < 0:
            return None
        node = self._names[row]
        states = self.states(node)
        wanted = [states[column].card.uuid for column in self.scorer.cards(row, ask, marks)]
        placed = assign(uid, node, states, request, prefer=wanted)
        return placed if isinstance(placed, Placement) else None

    def hold(self, uid: str, placement: Placement) -> None:
        self.ledger.hold(PodRef("notebooks", uid, uid), placement)

    def release(self, uid: str) -> None:
        self.ledger.release(uid)

    # What the line asks

    def fitting(self, nodes: Sequence[str] | None, request: PodRequest) -> Iterator[str]:
        marks = self.scorer.marks(ask_of(request))
        best_first = sorted(range(len(self._names)), key=lambda row: -marks.value[row])
        return (self._names[row] for row in best_first if marks.value[row] > float("-inf"))

    def states(self, node: str) -> list[CardState]:
        return self.ledger.nodes[node].states()

    def place(
        self,
        node: str,
        uid: str,
        request: PodRequest,
        states: Sequence[CardState],
        more: Amounts,
    ) -> Placement | Reason:
        ask = ask_of(request)
        wanted = [states[c].card.uuid for c in self.scorer.cards(self.rows[node], ask)]
        return assign(uid, node, states, request, prefer=wanted)

    def target(
        self, nodes: Sequence[str] | None, request: PodRequest
    ) -> tuple[str, tuple[str, ...]] | None:
        best = max(
            (
                (state.free_mib, name, state.card.uuid)
                for name in self._names
                for state in self.states(name)
                if request.allows(state.card)
            ),
            default=None,
        )
        return (best[1], (best[2],)) if best else None
