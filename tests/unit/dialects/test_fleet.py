"""The answer for many nodes at once is the answer for each, in every dialect."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.fitting import Rules
from extender.view import ClusterView
from gpushare import cards
from gpushare.cards import NodeCards
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.pods import PodRef
from gpushare.reasons import Reason
from gpushare.request import Policy, parse_request
from gpushare.units import GIB
from tests.unit.extender.conftest import HandClock
from tests.unit.extender.objects import a10, t4
from tests.unit.extender.objects import node as plain_node
from tests.unit.extender.objects import pod as plain_pod

NAMES = Names(dialects=("aliyun", "nano", "elastic", "hami"))
COUNTED = [resource.name for resource in NAMES.foreign if resource.counted]

limits = st.one_of(
    st.fixed_dictionaries({"aliyun.com/gpu-mem": st.integers(1, 24)}),
    st.fixed_dictionaries({"nano-gpu/gpu-percent": st.sampled_from([1, 30, 100, 200])}),
    st.fixed_dictionaries(
        {"elasticgpu.io/gpu-memory": st.integers(1, 24_000), "elasticgpu.io/gpu-core": st.just(10)}
    ),
    st.fixed_dictionaries(
        {"nvidia.com/gpu": st.integers(1, 2)},
        optional={
            "nvidia.com/gpumem": st.integers(1, 24_000),
            "nvidia.com/gpucores": st.integers(1, 100),
        },
    ),
    st.fixed_dictionaries(
        {"nvidia.com/gpu": st.just(1), "nvidia.com/gpumem-percentage": st.integers(1, 100)}
    ),
    st.fixed_dictionaries({"gpushare/gpu-mem": st.integers(1, 24)}),
)
choices = st.sampled_from(
    [{}, {"nvidia.com/use-gputype": "A10"}, {"nvidia.com/nouse-gputype": "A10"}]
)
nodes = st.lists(
    st.tuples(
        st.lists(st.sampled_from([t4, a10]), max_size=3),
        # What each kubelet offers of the dialects' resources, and which of them are served at all.
        st.fixed_dictionaries({name: st.integers(0, 50_000) for name in COUNTED}),
        st.sets(st.sampled_from(COUNTED)),
    ),
    min_size=1,
    max_size=4,
)


def pod(name: str, asked: dict[str, int], annotations: dict[str, str]) -> Any:
    wanted = {key: str(count) for key, count in asked.items()}
    container = {"name": "main", "resources": {"limits": wanted}}
    return plain_pod(name, container, annotations=annotations)


def made(name: str, kinds: Any, offered: dict[str, int], served: set[str]) -> Any:
    its = tuple(kind(name, i) for i, kind in enumerate(kinds))
    found = plain_node(name, *its)
    if its:
        text = cards.encode(NodeCards(its, also=tuple(sorted(served))))
        found["metadata"]["annotations"][NAMES.cards] = text
    found["status"]["allocatable"] |= {key: str(count) for key, count in offered.items()}
    return found


@given(nodes, st.lists(st.tuples(limits, choices), min_size=1, max_size=12))
def test_many_at_once(layout: Any, pods: Any) -> None:
    view = ClusterView(Rules(NAMES, GIB, Policy.BINPACK), HandClock())
    for i, one in enumerate(layout):
        view.apply_node(view.reader.node(made(f"n{i}", *one)))
    names = [f"n{i}" for i in range(len(layout))]
    for number, (asked, wishes) in enumerate(pods):
        request = parse_request(pod(f"p{number}", asked, wishes), NAMES)
        single = {name: view.fit(name, "", request) for name in names}
        passed, failed = view.fit_many(names, request)
        assert list(passed) == [n for n, found in single.items() if isinstance(found, Placement)]
        for name, reason in failed.items():
            expected = single[name]
            assert isinstance(expected, Reason)
            assert (reason.code, reason.sentence()) == (expected.code, expected.sentence())
        if passed:
            view.reserve(PodRef("ns", f"p{number}", f"u{number}"), passed[0], request)
    for one in view.ledger.nodes.values():
        for state in one.states():
            assert state.free_mib >= 0
            assert state.free_percent >= 0
