"""What holds for every policy: marks agree with the ledger's own answers and never depend on the past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.scoring import POLICIES, Ask, NodeTable, Scorer, Target, make_policy
from extender.scoring.ask import ask_of
from gpushare.assignment import assign
from gpushare.cards import Card
from gpushare.reasons import Reason
from gpushare.request import ContainerRequest, Demand, PodRequest, Role
from tests.unit.scoring import clusters as make
from tests.unit.scoring.clusters import Cluster, Node

policies = pytest.mark.parametrize("policy", sorted(POLICIES))
TARGET = Target.of(
    {Ask(mib=7): 5, Ask(mib=3, cpu=2000): 3, Ask(2, percent=100, whole=True, cpu=8000): 1}
)


def request_of(ask: Ask) -> PodRequest:
    demand = Demand(ask.mib, ask.percent, ask.cards, ask.whole)
    return PodRequest((ContainerRequest("notebook", Role.APP, demand),), models=ask.models)


@policies
@settings(deadline=None)
@given(cluster=make.clusters, ask=make.with_cards, target=make.targets)
def test_marks_are_given_exactly_where_the_ask_fits(
    policy: str, cluster: Cluster, ask: Ask, target: Target
) -> None:
    table = cluster.table()
    scorer = Scorer(table, make_policy(policy, target))
    marks = scorer.marks(ask)
    for row, node in enumerate(cluster.nodes):
        found = assign("uid", "node", node.states(), request_of(ask))
        fits = not isinstance(found, Reason) and node.cpu >= ask.cpu
        assert (marks.value[row] > -np.inf) == fits
        cards = scorer.cards(row, ask, marks)
        assert len(cards) == len(set(cards)) == (ask.cards if fits else 0)
        demand = request_of(ask).containers[0].demand
        assert all(node.states()[card].fits(demand) for card in cards)


@policies
@settings(deadline=None)
@given(
    cluster=make.clusters,
    target=make.targets,
    steps=st.lists(st.tuples(st.integers(0, 7), st.none() | make.nodes(), make.asks), max_size=12),
)
def test_looking_only_at_what_changed_gives_the_same_as_looking_at_everything(
    policy: str,
    cluster: Cluster,
    target: Target,
    steps: list[tuple[int, Node | None, Ask]],
) -> None:
    table = cluster.table()
    scorer = Scorer(table, make_policy(policy, target), remembered=3)
    for row, node, ask in steps:
        if node is None:
            table.clear(row)
        else:
            node.put(table, row)
        marks = scorer.marks(ask)
        fresh = Scorer(table, make_policy(policy, target)).marks(ask)
        assert marks.value.tolist() == fresh.value.tolist()
        assert marks.card.tolist() == fresh.card.tolist()


@policies
def test_the_first_of_equal_nodes_is_best(policy: str) -> None:
    node = Node("NVIDIA T4", 8000, [15, 15], [100, 100], [True, True], [True, True])
    marks = Scorer(Cluster([node] * 4).table(), make_policy(policy, TARGET)).marks(Ask(mib=7))
    assert marks.best() == 0
    assert marks.best(np.array([False, True, True, False])) == 1
    assert marks.best(np.zeros(4, np.bool_)) == -1


@policies
def test_nothing_fits_on_no_nodes(policy: str) -> None:
    scorer = Scorer(NodeTable(1, 1), make_policy(policy, TARGET))
    assert scorer.marks(Ask(mib=1)).best() == -1


@policies
def test_an_empty_target_is_no_obstacle(policy: str) -> None:
    node = Node("NVIDIA T4", 8000, [15, 4], [100, 40], [True, False], [True, True])
    scorer = Scorer(Cluster([node]).table(), make_policy(policy, Target((), ())))
    assert scorer.marks(Ask(mib=3)).best() == 0


def test_an_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="fragmentation, fgd, binpack"):
        make_policy("tetris", TARGET)


def test_binpack_takes_the_tightest_card_and_spread_the_freest() -> None:
    nodes = [
        Node("NVIDIA A10", 8000, [22, 9], [100, 40], [True, False], [True, True]),
        Node("NVIDIA T4", 8000, [15, 8], [100, 50], [True, False], [True, True]),
    ]
    table = Cluster(nodes).table()
    for policy, row, card in (("binpack", 1, 1), ("spread", 0, 0), ("first-fit", 0, 1)):
        marks = Scorer(table, make_policy(policy, TARGET)).marks(Ask(mib=7))
        assert (marks.best(), marks.card[marks.best()]) == (row, card), policy


def test_a_table_grows_as_nodes_come() -> None:
    table = NodeTable(1, 1)
    scorer = Scorer(table, make_policy("fragmentation", TARGET))
    for row in range(9):
        cards = row % 3 + 1
        Node("NVIDIA T4", 8000, [15] * cards, [100] * cards, [True] * cards, [True] * cards).put(
            table, row
        )
        assert scorer.marks(Ask(mib=15)).best() >= 0
    assert (scorer.marks(Ask(mib=15)).value[:9] > -np.inf).all()


@given(ask=make.with_cards)
def test_the_ask_of_a_request_is_what_the_request_says(ask: Ask) -> None:
    demand = request_of(ask).containers[0].demand
    again = ask_of(request_of(ask), ask.cpu)
    assert again == ask
    for model in make.MODELS:
        card = Card("u", 0, 0, model, 1)
        assert again.allows(model) == request_of(ask).allows(card)
    assert again.shares == (demand.cards == 1 and not demand.whole)
