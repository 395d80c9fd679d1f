"""Arbitrary cards, requests and pods, small enough to meet one another."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gpushare.assignment import CardState
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.request import ContainerRequest, Demand, PodRequest, Policy, Role

NAMES = Names()
MODELS = (("Tesla T4", 15360), ("NVIDIA A10", 23028), ("NVIDIA A100-SXM4-40GB", 40960))


@st.composite
def cards(draw: st.DrawFn, index: int = 0, node: str = "n") -> Card:
    model, memory = draw(st.sampled_from(MODELS))
    health = draw(st.sampled_from(["ok"] * 5 + ["XID 79"]))
    taken = draw(st.sampled_from([0] * 5 + [300]))
    return Card(f"{node}-{index}", index, index, model, memory, health, taken)


@st.composite
def states(draw: st.DrawFn, most: int = 3) -> list[CardState]:
    """Cards of one node, partly used; now and then in debt."""
    found = []
    for index in range(draw(st.integers(0, most))):
        card = draw(cards(index))
        if draw(st.booleans()):
            found.append(CardState(card, card.memory - card.taken, 100, empty=True))
        else:
            free = draw(st.integers(-1024, card.memory - card.taken))
            found.append(CardState(card, free, draw(st.integers(0, 100)), empty=False))
    return found


def demands() -> st.SearchStrategy[Demand]:
    mib = st.sampled_from([1, 2, 3, 5, 7, 11, 15, 22, 30]).map(lambda gib: gib * 1024)
    return st.one_of(
        st.builds(Demand, mib=mib, percent=st.just(0), cards=st.sampled_from([1, 1, 1, 2])),
        st.builds(Demand, mib=mib, percent=st.sampled_from([10, 50, 99])),
        st.builds(Demand, mib=st.none(), percent=st.sampled_from([1, 25, 50, 75, 99])),
        st.sampled_from([1, 2]).map(lambda k: Demand(None, 100, k, whole=True)),
    )


@st.composite
def requests(draw: st.DrawFn, most: int = 3) -> PodRequest:
    """What parse_request could give: initContainers first, as in a pod's spec."""
    count = draw(st.integers(1, most))
    roles = draw(st.lists(st.sampled_from([Role.APP, Role.APP, Role.SIDECAR, Role.INIT]),
                          min_size=count, max_size=count))  # fmt: skip
    roles.sort(key=lambda role: role is Role.APP)
    containers = tuple(
        ContainerRequest(f"c{i}", role, draw(demands())) for i, role in enumerate(roles)
    )
    models = draw(st.sampled_from([(), (), (), ("T4",), ("A10",), ("T4", "A10")]))
    uuids = draw(st.sampled_from([(), (), (), ("n-0",), ("n-1", "n-2")]))
    policy = draw(st.sampled_from([None, *Policy]))
    return PodRequest(containers, models, uuids, policy)


def json_values() -> st.SearchStrategy[Any]:
    """Anything that JSON can say."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
        ),
        max_leaves=20,
    )
