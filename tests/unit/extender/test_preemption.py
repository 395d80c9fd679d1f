"""Whom the preempt verb would end: no more than needed, nobody useless, nobody more important."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.facts import FactReader
from extender.preemption import Proposal, preempt
from extender.view import ClusterView
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.request import Role
from gpushare.units import GIB
from tests.unit.extender.api_double import ApiDouble
from tests.unit.extender.conftest import RULES, HandClock, running
from tests.unit.extender.objects import NAMES, Object, bound, container, node, pod, t4

READER = FactReader(NAMES, GIB)


def cluster(*held: tuple[str, int, int, int], cards: int = 2, offered: Any = None) -> ClusterView:
    """One node ``n`` with pods as (name, card, GiB, priority)."""
    view = ClusterView(RULES, HandClock())
    its = tuple(t4("n", i) for i in range(cards))
    view.apply_node(READER.node(node("n", *its, offered=offered)))
    for name, card, gib, priority in held:
        put(view, name, card, gib, priority)
    return view


def put(view: ClusterView, name: str, card: int, gib: int, priority: int, **more: Any) -> None:
    share = Share(f"GPU-n-{card}", gib * 1024, 0)
    placed = Placement(name, "n", (ContainerPlacement("main", Role.APP, (share,)),))
    its = bound(pod(name, mem=gib, uid=name, priority=priority), "n", placed)
    its["metadata"].update(more)
    view.apply_pod(READER.pod(its))


def ask(view: ClusterView, mem: int, priority: int, *proposed: str, **more: Any) -> set[str] | None:
    request, _ = READER.request(pod("new", mem=mem, **more))
    found = preempt(view, request, priority, {"n": Proposal(proposed)})
    return set(found["n"].uids) if "n" in found else None


def test_one_pod_on_the_right_card_and_not_two_on_the_wrong_one():
    view = cluster(("a", 0, 7, 0), ("b", 0, 7, 0), ("c", 1, 12, 0))
    assert ask(view, 10, 5, "a") == {"c"}


def test_of_equal_numbers_the_less_important():
    view = cluster(("a", 0, 10, 3), ("b", 1, 10, 1))
    assert ask(view, 11, 5, "a") == {"b"}
    assert ask(view, 11, 2, "b") == {"b"}


def test_nobody_of_the_same_importance_and_nobody_where_it_would_not_help():
    view = cluster(("a", 0, 10, 5), ("b", 1, 6, 5), ("c", 1, 5, 0))
    assert ask(view, 10, 5, "c") is None
    assert ask(view, 9, 5, "c") == {"c"}
    assert ask(view, 20, 9, "a") is None


def test_what_is_proposed_for_other_reasons_stays_proposed():
    # The sums are ample, so kube-scheduler was short of something else when it chose "cpu".
    view = cluster(("a", 0, 10, 0), ("b", 1, 10, 0), offered={NAMES.gpu_mem: "99"})
    assert ask(view, 10, 5, "cpu") == {"cpu", "a"}
    assert ask(view, 4, 5, "cpu") == {"cpu"}


def test_what_is_proposed_for_the_sum_is_replaced_by_what_frees_a_card():
    view = cluster(("a", 0, 7, 0), ("b", 0, 7, 0), ("c", 1, 15, 1))
    assert ask(view, 11, 5, "a", "b") == {"c"}
    assert ask(view, 11, 1, "a", "b") == {"a", "b"}
    assert ask(view, 15, 5, "b") == {"c"}


def test_pods_that_are_leaving_already_are_waited_for():
    view = cluster(("b", 1, 10, 0))
    put(view, "a", 0, 15, 0, deletionTimestamp="2025-01-01T00:00:00Z")
    assert ask(view, 11, 5, "b") is None
    assert ask(view, 15, 5, "b") is None


def test_violations_are_kept_and_unjudged_victims_count_as_such():
    view = cluster(("a", 0, 10, 0), ("b", 1, 12, 0))
    request, _ = READER.request(pod("new", mem=11))
    found = preempt(view, request, 5, {"n": Proposal(("a",), 1)})
    assert found["n"] == Proposal(("a",), 1)
    found = preempt(view, request, 5, {"n": Proposal(("zzz",), 0)})
    assert found["n"].violations == len(found["n"].uids) == 1
    assert preempt(view, request, 5, {"unknown": Proposal(("a",))}) == {}


pods = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([2, 3, 5, 7]), st.integers(0, 3)), max_size=8
)


@settings(deadline=None)
@given(pods, st.sampled_from([3, 7, 10, 15]), st.integers(1, 4), st.integers(0, 2))
def test_no_smaller_set_would_do(held, mem, priority, number):
    view = ClusterView(RULES, HandClock())
    view.apply_node(READER.node(node("n", *(t4("n", i) for i in range(3)))))
    used = [0, 0, 0]
    for i, (card, gib, its) in enumerate(held):
        if used[card] + gib <= 15:
            used[card] += gib
            put(view, f"p{i}", card, gib, its)
    request, _ = READER.request(pod("new", mem=mem))
    lower = [u for u, f in view.pods.items() if f.priority < priority]

    def fits(uids: Any) -> bool:
        return isinstance(view.fit_without("n", request, uids), Placement)

    proposed = tuple(lower[:number])
    found = preempt(view, request, priority, {"n": Proposal(proposed)})
    if fits(()):
        assert found["n"].uids == proposed
        return
    best = next((k for k in range(1, len(lower) + 1)
                 if any(fits(c) for c in combinations(lower, k))), None)  # fmt: skip
    assert (best is None) == ("n" not in found)
    if best is not None and not fits(proposed):
        chosen = found["n"].uids
        assert fits(chosen)
        assert set(chosen) <= set(lower)
        needed = [u for u in chosen if u not in proposed]
        assert not any(fits([v for v in chosen if v != u]) for u in needed)
        if not proposed:
            assert len(chosen) == best


@pytest.mark.parametrize("lower_case", [False, True])
async def test_the_verb_takes_both_forms_and_both_casings(api: ApiDouble, lower_case: bool):
    api.put("nodes", node("n", t4("n", 0)))
    async with running(api) as extender:
        old = api.put("pods", pod("old", mem=10, priority=0))
        assert await extender.bind(old, "n") == ""
        await extender.caught_up()
        uid, new = old["metadata"]["uid"], pod("new", mem=10, priority=9)
        meta = {"n": {"Pods": [{"UID": uid}], "NumPDBViolations": 1}}
        whole = {"n": {"Pods": [old], "NumPDBViolations": 1}}
        for forms in (
            {"NodeNameToMetaVictims": meta, "NodeNameToVictims": None},
            {"NodeNameToVictims": whole},
        ):
            body: Object = {"Pod": new, **forms}
            if lower_case:
                body = {k[0].lower() + k[1:]: v for k, v in body.items()}
            answer = json.loads(extender.service.verbs.preempt(json.dumps(body).encode()))
            assert answer == {"NodeNameToMetaVictims": meta}
        nothing = {"NodeNameToMetaVictims": {}}
        for bad in (
            b"",
            b"{}",
            b'{"Pod":{}}',
            b'{"Pod":{},"NodeNameToVictims":{"n":{"Pods":[{}]}}}',
        ):
            assert json.loads(extender.service.verbs.preempt(bad)) == nothing
        plain = {"Pod": pod("cpu", container()), "NodeNameToMetaVictims": meta}
        answer = json.loads(extender.service.verbs.preempt(json.dumps(plain).encode()))
        assert answer == {"NodeNameToMetaVictims": meta}
