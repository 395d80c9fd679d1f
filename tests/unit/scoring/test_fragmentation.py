"""Each term of our policy, on clusters where it alone decides."""

from __future__ import annotations

from extender.scoring import Ask, Scorer, Target, make_policy
from tests.unit.scoring.clusters import Cluster, Node

WHOLE = Ask(percent=100, whole=True)


def t4(*free: int, cpu: int = 1 << 30, percent: int = 100) -> Node:
    """A node with T4s of 15 units, so much of them free."""
    empty = [f == 15 for f in free]
    return Node("NVIDIA T4", cpu, list(free), [percent] * len(free), empty, [True] * len(free))


# Cards that only make the cluster large, so that one gap more or less is no crowd.
FULL = [t4(*[0] * 8) for _ in range(50)]


def choice(nodes: list[Node], ask: Ask, target: dict[Ask, float]) -> tuple[int, int]:
    table = Cluster([*nodes, *FULL]).table()
    scorer = Scorer(table, make_policy("fragmentation", Target.of(target)))
    marks = scorer.marks(ask)
    row = marks.best()
    return row, scorer.cards(row, ask, marks)[0]


def test_a_gap_that_nothing_fits_is_avoided() -> None:
    # 7 of 9 leaves two that nobody asks for; 7 of 15 leaves 8, which is another 7's place.
    target = {Ask(mib=7): 0.6, Ask(mib=8): 0.4}
    assert choice([t4(9), t4(15)], Ask(mib=7), target) == (1, 0)
    assert choice([t4(7), t4(15)], Ask(mib=7), target) == (0, 0)


def test_the_rarest_requests_do_not_keep_a_gap_alive() -> None:
    often = {Ask(mib=7): 0.5, Ask(mib=8): 0.2, Ask(mib=2): 0.3}
    seldom = {Ask(mib=7): 0.58, Ask(mib=8): 0.4, Ask(mib=2): 0.02}
    assert choice([t4(9), t4(15)], Ask(mib=7), often) == (0, 0)
    assert choice([t4(9), t4(15)], Ask(mib=7), seldom) == (1, 0)


def test_a_kind_of_gap_that_many_wait_in_is_not_made_once_more() -> None:
    target = {Ask(mib=2): 0.4, Ask(mib=3): 0.3, Ask(mib=6): 0.3}
    # 3 of 5 leaves 2, 3 of 9 leaves 6: both of use, until gaps of 2 are plenty.
    assert choice([t4(5), t4(9)], Ask(mib=3), target) == (0, 0)
    assert choice([t4(5), t4(9), *[t4(2)] * 6], Ask(mib=3), target) == (1, 0)


def test_cards_are_not_left_without_cpu() -> None:
    target = {WHOLE: 0.1, Ask(percent=100, whole=True, cpu=8000): 0.9}
    poor, rich = t4(15, 15, 15, cpu=24000), t4(15, 15, 15, cpu=64000)
    ask = Ask(percent=100, whole=True, cpu=16000)
    assert choice([poor, rich], ask, target)[0] == 1
    assert choice([rich, poor], ask, target)[0] == 0


def test_a_pod_that_may_go_anywhere_leaves_scarce_models_alone() -> None:
    t4s = [t4(15, 15) for _ in range(2)]
    a10 = [
        Node("NVIDIA A10", 1 << 30, [22, 22], [100, 100], [True, True], [True, True])
        for _ in range(6)
    ]
    only_t4 = Ask(percent=100, whole=True, models=("T4",))
    target = {WHOLE: 0.5, only_t4: 0.5}
    assert choice([*t4s, *a10], WHOLE, target)[0] >= 2
    assert choice([*t4s, *a10], only_t4, target)[0] < 2


def test_nodes_are_kept_empty_for_pods_of_several_cards() -> None:
    target = {WHOLE: 0.9, Ask(cards=4, percent=100, whole=True): 0.1}
    assert choice([t4(15, 15, 15, 15), t4(0, 0, 0, 15)], WHOLE, target) == (1, 3)


def test_per_cent_that_is_gone_makes_a_gap_useless_whatever_memory_is_left() -> None:
    target = {Ask(percent=50): 1.0}
    table = Cluster([t4(8, percent=10), t4(15)]).table()
    marks = Scorer(table, make_policy("fragmentation", Target.of(target))).marks(Ask(percent=50))
    assert marks.best() == 1
