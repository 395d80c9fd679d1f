"""How many of a choice fit now, and where one would go: POST /v1/fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from extender.schemas import Fit, FitRequest, Where
from extender.view import ClusterView
from gpushare.capacity import Capacity, kind
from gpushare.placement import Placement
from gpushare.request import ContainerRequest, Demand, PodRequest, Role

# Scores for the named nodes, higher is better.
Rank = Callable[[Sequence[str], PodRequest], Mapping[str, int]]


class BadFit(ValueError):
    """A question that cannot be answered. The text says what to ask instead."""


class Fitting:
    """Answers from the view; the counts are made once per change of the cluster."""

    def __init__(self, view: ClusterView, rank: Rank) -> None:
        self.view = view
        self.rank = rank
        self._version = -1
        self._names: list[str] = []
        self._capacity = Capacity(())

    def answer(self, asked: FitRequest) -> Fit:
        """Raises BadFit."""
        request = _request(asked)
        self._look()
        return Fit.model_construct(
            id=asked.id,
            count=self._capacity.room(request).free,
            where=self._where(request),
            largest_mib=self._largest(request),
        )

    def _look(self) -> None:
        if self._version == self.view.changes:
            return
        self._names = [
            name
            for name in self.view.node_names()
            if (fact := self.view.node_fact(name)) is not None and fact.takes_pods
        ]
        nodes = self.view.ledger.nodes
        self._capacity = Capacity(
            [kind(state) for state in nodes[name].states()] for name in self._names
        )
        self._version = self.view.changes

    def _where(self, request: PodRequest) -> Where | None:
        names = list(self.view.fitting(self._names, request))
        if not names:
            return None
        scores = self.rank(names, request)
        best = max(range(len(names)), key=lambda i: scores.get(names[i], 0))
        found = self.view.fit(names[best], "", request)
        if not isinstance(found, Placement):
            return None
        card = found.containers[0].shares[0].card
        return Where.model_construct(node=names[best], card=card)

    def _largest(self, request: PodRequest) -> int:
        """The most memory that is free on one card of those that the request may use, in MiB."""
        nodes = self.view.ledger.nodes
        return max(
            (
                state.free_mib
                for name in self._names
                for state in nodes[name].states()
                if state.card.healthy and request.allows(state.card)
            ),
            default=0,
        )


def _request(asked: FitRequest) -> PodRequest:
    if not asked.mib and not asked.percent:
        raise BadFit(f"request {asked.id!r} asks for nothing: give mib or percent")
    if asked.percent > 100 and asked.percent % 100:
        raise BadFit(f"request {asked.id!r}: percent is at most 100, or a multiple of 100")
    if asked.percent >= 100:
        if asked.mib:
            raise BadFit(f"request {asked.id!r}: whole cards come with their memory; leave out mib")
        demand = Demand(None, 100, asked.percent // 100 * asked.cards, whole=True)
    else:
        demand = Demand(asked.mib or None, asked.percent, asked.cards)
    return PodRequest((ContainerRequest("-", Role.APP, demand),), tuple(asked.models))
