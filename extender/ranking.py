"""Which of the nodes that fit is best, and which of its cards: the policies of ``extender.scoring`` as
the verbs ask them.

kube-scheduler takes whole scores from 0 to 10. One node alone gets 10, so that the decision is ours
and not that of chance among equals. The card that a score assumed is remembered until bind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import time

import numpy as np

from extender.fleet import Fleet
from extender.scoring import Ask, Scorer, Target, Workload, ladder, make_policy
from extender.scoring.ask import ask_of
from extender.scoring.nodes import Floats, Ints
from gpushare.request import PodRequest, Policy

# So many nodes get a score above 0: the one that is best counts, and some to fall back on.
_SHOWN = 100
# Pods between prioritize and bind.
_REMEMBERED = 4096
# What scores may keep of earlier looks, in cells (a card as one kind of pod sees it, 110 bytes).
_CELLS = 1_000_000


class Ranking:
    """Scores for the nodes of a fleet.

    ``policy`` is the cluster's. ``workload`` is what the cluster is usually asked for; pods are
    counted by ``asked``. ``wall`` gives the time of day, in seconds, because counts outlive us.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        workload: Workload | None = None,
        wall: Callable[[], float] = time,
    ) -> None:
        self.fleet, self.policy, self.wall = fleet, policy, wall
        self.workload = workload or Workload()
        self.counted = 0
        self._target = self.workload.target(wall())
        self._scorers: dict[Policy, tuple[Target, int, Scorer]] = {}
        self._chosen: OrderedDict[str, tuple[int, int, tuple[int, ...]]] = OrderedDict()

    def asked(self, request: PodRequest, cpu: int) -> None:
        """A pod has come that asks for cards: it counts, whatever becomes of it."""
        self.counted += 1
        self.workload.observe(_ask(request, cpu), self.wall())
        self.refresh()

    def refresh(self) -> None:
        """The counts have changed, and with them perhaps what the scores aim at."""
        self._target = self.workload.target(self.wall())

    def scores(
        self, names: Sequence[str], request: PodRequest, cpu: int = 0, uid: str = ""
    ) -> dict[str, int]:
        """The nodes with a score above 0: the best ``_SHOWN`` of the named ones, one of them with the
        highest score. To kube-scheduler the others have 0. ``cpu`` is what the pod requests, in mCPU.
        """
        if not names:
            return {}
        rows = self.fleet.rows(names)
        scorer, ask = self._scorer(request), _ask(request, cpu)
        # Of few nodes it is cheaper to look at them alone.
        if 2 * len(names) < len(self.fleet):
            value = scorer.marks(ask, np.maximum(rows, 0)).value
        else:
            value = scorer.marks(ask).value[rows]
        values = np.where(rows >= 0, value, -np.inf)
        order = np.where(rows >= 0, self.fleet.order()[rows], len(self.fleet.order()))
        if not (values > -np.inf).any():
            # kube-scheduler knows better than we do what is free, for a moment. It still needs one.
            values = np.zeros(len(names))
        among = _best(values, order)
        scores = ladder(values[among], order[among])
        row = int(rows[among[int(np.argmax(scores))]])
        if uid and row >= 0:
            columns = scorer.cards(row, ask)
            self._chosen[uid] = (row, int(self.fleet.table.version[row]), columns)
            if len(self._chosen) > _REMEMBERED:
                self._chosen.popitem(last=False)
        return {names[i]: score for i, score in zip(among.tolist(), scores, strict=True) if score}

    def prefer(self, uid: str, node: str, request: PodRequest, cpu: int = 0) -> tuple[str, ...]:
        """The cards (uuids) on the node that the policy wants for the pod: those that its score
        assumed, unless the node has changed since or was never scored."""
        row = int(self.fleet.rows([node])[0])
        if row < 0:
            return ()
        known, version, columns = self._chosen.pop(uid, (-1, -1, ()))
        if known != row or version != self.fleet.table.version[row]:
            columns = self._scorer(request).cards(row, _ask(request, cpu))
        return self.fleet.uuids(row, columns)

    def _scorer(self, request: PodRequest) -> Scorer:
        policy = request.policy or self.policy
        table = self.fleet.fresh_table()
        target, layout, scorer = self._scorers.get(policy, (None, -1, None))
        if scorer is None or target is not self._target or layout != table.layout:
            rows, columns = table.shape
            remembered = max(4, min(64, _CELLS // max(1, rows * columns)))
            scorer = Scorer(table, make_policy(policy.value, self._target), remembered)
            self._scorers[policy] = (self._target, table.layout, scorer)
        return scorer


def _best(values: Floats, order: Ints) -> Ints:
    """Indexes of the highest values, the best of all (of equals the first in order) among them."""
    if len(values) <= _SHOWN:
        return np.arange(len(values))
    top = np.flatnonzero(values == values.max())
    first = top[order[top].argmin()]
    among = np.argpartition(values, -_SHOWN)[-_SHOWN:]
    if first not in among:
        among[0] = first
    return among


def _ask(request: PodRequest, cpu: int) -> Ask:
    """CPU to two digits, rounded up: pods that differ by less are one kind."""
    step = 10 ** max(0, len(str(cpu)) - 2)
    return ask_of(request, -(-cpu // step) * step)
