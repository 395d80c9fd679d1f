"""What a bound pod holds: nothing by forging, and never less than it runs with."""

from __future__ import annotations

import pytest

from extender.facts import FactReader
from extender.trust import judge
from gpushare.assignment import CardState
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.request import Role
from gpushare.units import GIB
from tests.unit.extender.objects import NAMES, bound, container, pod, started, t4

READER = FactReader(NAMES, GIB)
FREE = [CardState(t4("n", i), 15360, 100, empty=True) for i in range(2)]
BUSY = [CardState(t4("n", 0), 3000, 100, empty=False), CardState(t4("n", 1), 0, 100, empty=False)]


def placed(mib: int = 7168, percent: int = 0, card: str = "GPU-n-0", **changes) -> Placement:
    values = {"uid": "u", "node": "n", "name": "main", "role": Role.APP, **changes}
    container_placement = ContainerPlacement(
        values["name"], values["role"], (Share(card, mib, percent),)
    )
    return Placement(values["uid"], values["node"], (container_placement,))


def verdict(placement, states=FREE, *, runs=False, published=True, **asks):
    obj = bound(pod("p", uid="u", **(asks or {"mem": 7})), "n", placement)
    fact = READER.pod(started(obj) if runs else obj)
    assert fact is not None
    return judge(fact, states, published=published)


def test_a_placement_of_ours_is_believed():
    for runs in (False, True):
        result = verdict(placed(), runs=runs)
        assert result.holds == placed()
        assert not result.doubt
    half = placed(7680, 50)
    assert verdict(half, percent=50).holds == half


FORGED = [
    (None, "no placement"),
    ("{", "not JSON"),
    (placed(uid="other"), "another pod"),
    (placed(node="m"), "another node"),
    (placed(mib=1), "other amounts"),
    (placed(percent=1), "other amounts"),
    (placed(card="GPU-x"), "does not have"),
    (placed(name="other"), "other containers"),
    (placed(role=Role.INIT), "other containers"),
]


@pytest.mark.parametrize(("placement", "words"), FORGED)
def test_a_forged_one_takes_nothing_before_the_start(placement, words):
    result = verdict(placement)
    assert result.holds is None
    assert words in result.doubt
    assert result.provisional


@pytest.mark.parametrize(
    ("placement", "words"), [case for case in FORGED if case[1] != "does not have"]
)
def test_a_running_pod_is_counted_wherever_it_could_be(placement, words):
    result = verdict(placement, runs=True)
    assert words in result.doubt
    assert result.holds is not None
    assert result.holds.footprint() == {"GPU-n-0": (7168, 0), "GPU-n-1": (7168, 0)}


def test_a_running_pod_keeps_a_card_that_vanished_under_it():
    gone = placed(card="GPU-gone")
    assert verdict(gone, runs=True).holds == gone


def test_a_place_that_is_taken_is_not_believed_until_the_pod_runs():
    result = verdict(placed(), BUSY)
    assert result.holds is None
    assert result.provisional
    assert verdict(placed(), BUSY, runs=True).holds == placed()


def test_a_whole_card_needs_an_empty_one():
    whole = placed(15360, 100)
    shared = [CardState(t4("n", 0), 15360, 100, empty=False)]
    assert verdict(whole, percent=100).holds == whole
    assert verdict(whole, shared, percent=100).holds is None


def test_while_the_node_publishes_nothing_a_placement_counts_for_now():
    result = verdict(placed(), [], published=False)
    assert result.holds == placed()
    assert result.provisional


def test_per_cent_may_be_read_a_little_differently_by_another_driver():
    assert verdict(placed(7500, 50), runs=True, percent=50).holds == placed(7500, 50)
    assert verdict(placed(7500, 50), percent=50).holds is None
    everywhere = verdict(placed(100, 50), runs=True, percent=50).holds
    assert everywhere is not None
    assert len(everywhere.footprint()) == 2


def test_cards_that_the_pod_does_not_allow_are_no_place_for_it():
    only = {"mem": 7, "annotations": {NAMES.card_uuid: "GPU-n-1"}}
    assert "does not allow" in verdict(placed(), **only).doubt
    running = verdict(None, runs=True, **only).holds
    assert running is not None
    assert set(running.footprint()) == {"GPU-n-1"}


def test_several_cards_are_counted():
    two = Placement(
        "u", "n",
        (ContainerPlacement("main", Role.APP,
                            (Share("GPU-n-0", 7168, 0), Share("GPU-n-1", 7168, 0))),),
    )  # fmt: skip
    assert verdict(two, mem=7, annotations={NAMES.cards: "2"}).holds == two
    assert "number of cards" in verdict(placed(), mem=7, annotations={NAMES.cards: "2"}).doubt


def test_an_invalid_request_that_was_bound_by_hand_holds_nothing():
    obj = bound(pod("p", container(percent=150), uid="u"), "n", placed())
    fact = READER.pod(obj)
    assert fact is not None
    assert judge(fact, FREE, published=True).holds is None
