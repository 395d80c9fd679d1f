"""The cluster as the line asks about it: ``extender.line.Room`` on top of the view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.leaving import ways
from extender.view import ClusterView
from gpushare.assignment import CardState
from gpushare.budget import Amounts, amounts
from gpushare.placement import Placement
from gpushare.reasons import Reason
from gpushare.request import PodRequest

# To find the card that is to be emptied, so many nodes are looked at.
_MOST_NODES = 200


class ViewRoom:
    """What is free, and where the least has to end."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def fitting(self, nodes: Sequence[str] | None, request: PodRequest) -> Iterator[str]:
        names = self._view.node_names() if nodes is None else nodes
        return self._view.fitting(names, request)

    def states(self, node: str) -> list[CardState]:
        account = self._view.ledger.nodes.get(node)
        return account.states() if account is not None else []

    def place(
        self,
        node: str,
        uid: str,
        request: PodRequest,
        states: Sequence[CardState],
        more: Amounts,
    ) -> Placement | Reason:
        return self._view.fit(node, uid, request, states, more)

    def asked(self, request: PodRequest) -> Amounts:
        return amounts(request, self._view.rules.unit)

    def target(
        self, nodes: Sequence[str] | None, request: PodRequest
    ) -> tuple[str, tuple[str, ...]] | None:
        names = self._view.node_names() if nodes is None else nodes
        accounts = (self._view.ledger.nodes.get(name) for name in names[:_MOST_NODES])
        found = ways(request, (account for account in accounts if account is not None))
        return (found[0].node, found[0].cards) if found else None
