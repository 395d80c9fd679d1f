"""Scores and the card at bind: what kube-scheduler is told is what the pod gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.fleet import Fleet
from extender.ranking import Ranking
from extender.scoring.ladder import TOP
from gpushare.request import ContainerRequest, Demand, PodRequest, Policy, Role
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import RULES, running
from tests.unit.extender.objects import NAMES, a10, container, node, pod, t4
from tests.unit.extender.test_fleet import fleets, single, state, view_of
from tests.unit.gpushare.strategies import requests


def scored(ranking: Ranking, names: list[str], request: PodRequest) -> dict[str, int]:
    return dict.fromkeys(names, 0) | ranking.scores(names, request)


def test_binpack_takes_the_tightest_card_and_spread_the_freest():
    view = view_of({"a": [state("a", 15360)], "b": [state("b", 4096)], "c": [state("c", 3072)]})
    wants, names = single(Demand(3072, 0)), ["a", "b", "c"]
    binpack = scored(Ranking(view.fleet, Policy.BINPACK), names, wants)
    assert binpack["c"] == TOP
    assert TOP > binpack["b"] > binpack["a"]
    spread = scored(Ranking(view.fleet, Policy.SPREAD), names, wants)
    assert spread["a"] == TOP
    assert TOP > spread["b"] > spread["c"]
    assert scored(Ranking(view.fleet, Policy.FIRST_FIT), names[::-1], wants)["a"] == TOP


@settings(deadline=None)
@given(fleets(), requests(), st.sampled_from(list(Policy)))
def test_scores_are_in_range_with_one_winner_in_any_order(nodes, request, policy):
    fleet = Fleet(RULES)
    for name, (account, budget) in nodes.items():
        fleet.update(name, account, budget)
    ranking = Ranking(fleet, policy)
    names = [*sorted(nodes), "never-seen"]
    scores = scored(ranking, names, request)
    assert all(0 <= value <= TOP for value in scores.values())
    assert list(scores.values()).count(TOP) == 1
    again = scored(ranking, names[::-1], request)
    assert max(again, key=again.__getitem__) == max(scores, key=scores.__getitem__)
    assert ranking.scores([], request) == {}


@pytest.mark.parametrize("policy", list(Policy))
async def test_the_pod_gets_the_card_that_the_score_assumed(api: ApiDouble, policy: Policy):
    api.put("nodes", node("t4-1", t4("t4-1", 0), t4("t4-1", 1)))
    api.put("nodes", node("a10-1", *(a10("a10-1", i) for i in range(4))))
    async with running(api) as extender:
        ranking = extender.service.ranking
        for number, mem in enumerate((7, 3, 5, 2, 11, 7, 3, 1, 5)):
            its = pod(f"p{number}", mem=mem, annotations={NAMES.policy: policy.value})
            its = api.put("pods", its)
            passed = extender.filter(its, "a10-1", "t4-1")["NodeNames"]
            scores = extender.prioritize(its, *passed)
            best = max(scores, key=scores.__getitem__)
            row, _, columns = ranking._chosen[its["metadata"]["uid"]]
            (card,) = extender.service.view.fleet.uuids(row, columns)
            assert await extender.bind(its, best) == ""
            held = extender.service.view.slice_of(its["metadata"]["uid"])
            assert held is not None
            assert list(held.placement.footprint()) == [card]


async def test_a_node_that_was_never_scored_is_packed_by_the_policy_as_well(api: ApiDouble):
    """kube-scheduler asks for no scores where only one node passes the filters."""
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    spread = {NAMES.policy: "spread"}
    async with running(api) as extender:
        for number, used in enumerate(({"GPU-n-0"}, {"GPU-n-0", "GPU-n-1"})):
            its = api.put("pods", pod(f"p{number}", mem=3, annotations=spread))
            assert await extender.bind(its, "n") == ""
            view = extender.service.view
            assert {c for s in view.ledger.slices.values() for c in s.placement.footprint()} == used


async def test_the_largest_container_gets_the_preferred_card(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0), t4("n", 1)))
    async with running(api) as extender:
        its = pod("p", container("small", mem=2), container("large", mem=12))
        its = api.put("pods", its)
        request, _ = extender.service.view.reader.request(its)
        ref = extender.service.view.pods.get("") or None
        assert ref is None
        found = extender.service.view.fit("n", "u", request, prefer=("GPU-n-1",))
        assert found.container("large").shares[0].card == "GPU-n-1"


async def test_a_pod_counts_once_however_often_it_is_tried(api: ApiDouble):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        workload = extender.service.ranking.workload
        before = sum(workload.weights().values())
        its = api.put("pods", pod("p", mem=7))
        for _ in range(3):
            extender.filter(its, "n")
        extender.filter(pod("refused", percent=150), "n")
        extender.filter(pod("none", container()), "n")
        assert sum(workload.weights().values()) == pytest.approx(before + 1, abs=0.001)


def test_cpu_of_the_pods_that_are_known_counts_in_scores():
    """Of two equal nodes the one without CPU left is no place for a pod that needs some."""
    view = view_of({"a": [state("a", 15360)], "b": [state("b", 15360)]})
    for name, cpu in (("a", 1000), ("b", 9000)):
        view._nodes[name].budget.cpu_offered = cpu
        view._changed(name)
    wants = PodRequest((ContainerRequest("main", Role.APP, Demand(3072, 0)),))
    ranking = Ranking(view.fleet, Policy.FRAGMENTATION)
    assert ranking.scores(["a", "b"], wants, 2000) == {"b": TOP}
    assert ranking.scores(["a"], wants, 2000) == {"a": TOP}
    assert len(ranking.scores(["a", "b"], wants, 0)) == 2


def test_of_many_nodes_the_best_are_named_and_the_first_of_equals_wins():
    view = view_of({f"n{i:03}": [state(f"c{i}", 15360 if i % 7 else 4096)] for i in range(300)})
    names = sorted(view.ledger.nodes)[::-1]
    ranking = Ranking(view.fleet, Policy.BINPACK)
    scores = ranking.scores(names, single(Demand(3072, 0)))
    assert 1 < len(scores) <= 100
    assert [name for name, score in scores.items() if score == TOP] == ["n000"]
    spread = Ranking(view.fleet, Policy.SPREAD).scores(names, single(Demand(3072, 0)))
    assert [name for name, score in spread.items() if score == TOP] == ["n001"]
