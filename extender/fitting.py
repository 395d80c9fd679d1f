"""Does a pod fit on a node, where on it, and if not, why: the answer for one node at a time.

The vector answers of ``extender.fleet`` are a faster way to the same result; bind always asks here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpushare.assignment import CardState, assign
from gpushare.budget import NONE, Amounts, amounts, shortage
from gpushare.ledger import NodeAccount
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.reasons import Code, Reason
from gpushare.request import PodRequest, Policy
from gpushare.units import Unit


@dataclass(slots=True)
class Budget:
    """What the kubelet of a node offers, and what the pods bound or being bound there ask of it."""

    offered: Amounts = NONE
    asked: Amounts = NONE
    cpu_offered: int = 0
    """In mCPU; 0 where it is not known. Only for scores: kube-scheduler counts it for sure."""
    cpu_asked: int = 0
    """By pods that ask for our resources; of others nothing is known here."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The cluster's settings that decide an answer."""

    names: Names
    unit: Unit
    policy: Policy
    adopt_before: float = 0.0


def fit(
    rules: Rules,
    node: NodeAccount | None,
    budget: Budget,
    uid: str,
    request: PodRequest,
    states: Sequence[CardState] | None = None,
    more: Amounts = NONE,
    prefer: Sequence[str] = (),
) -> Placement | Reason:
    """The placement that the pod would get on the node, or why it can't.

    ``states`` are the node's cards where less of them may be given than is free, and ``more`` is
    what is asked of its kubelet beside the budget: both promised to others. ``prefer`` are the cards
    that the policy wants most.
    """
    obstacle = node_obstacle(rules, node)
    if obstacle is not None:
        return obstacle
    assert node is not None
    cards = node.states() if states is None else states
    found = assign(uid, node.name, cards, request, rules.policy, prefer)
    if isinstance(found, Reason):
        return found
    want = amounts(request, rules.unit)
    return shortage(want, budget.offered, budget.asked + more, rules.names) or found


def node_obstacle(rules: Rules, node: NodeAccount | None) -> Reason | None:
    """What keeps every pod off the node."""
    if node is None:
        return Reason(Code.NO_CARDS)
    if node.problem:
        return Reason(Code.BAD_NODE, {"problem": node.problem})
    if not node.cards:
        return Reason(Code.NO_CARDS)
    if node.unit != rules.unit:
        return Reason(Code.UNIT_MISMATCH, {"node_unit": str(node.unit), "unit": str(rules.unit)})
    return None
