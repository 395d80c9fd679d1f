"""Choosing the node and the card: policies as a table of small pure functions over arrays.

``NodeTable`` holds what is free, ``Ask`` is what a pod wants, ``Target`` is what the cluster is
usually asked for (learned by ``Workload``), and ``Scorer`` gives every node a mark under one policy,
looking again only at the nodes that have changed since it was last asked.
"""

from extender.scoring.ask import Ask
from extender.scoring.ladder import ladder
from extender.scoring.nodes import NodeTable
from extender.scoring.policies import DEFAULT, POLICIES, make_policy
from extender.scoring.scorer import Marks, Scorer
from extender.scoring.target import Target
from extender.scoring.workload import Workload

__all__ = [
    "DEFAULT",
    "POLICIES",
    "Ask",
    "Marks",
    "NodeTable",
    "Scorer",
    "Target",
    "Workload",
    "ladder",
    "make_policy",
]
