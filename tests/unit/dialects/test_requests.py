"""A request means the same in whatever dialect it is asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.assignment import CardState, assign
from gpushare.budget import amounts
from gpushare.cards import Card
from gpushare.dialects.table import DIALECTS
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.reasons import Reason, Refusal
from gpushare.request import asks, parse_request

NAMES = Names(dialects=("aliyun", "nano", "elastic", "hami"))
CARDS = [
    CardState(Card("GPU-t4", 0, 0, "Tesla T4", 15360), 15360, 100, True),
    CardState(Card("GPU-a10", 1, 1, "NVIDIA A10", 23028), 23028, 100, True),
]


def pod(*limits: dict[str, int], init: dict[str, int] | None = None, **annotations: str) -> Any:
    containers = [
        {"name": f"c{i}", "resources": {"limits": {k: str(v) for k, v in one.items()}}}
        for i, one in enumerate(limits)
    ]
    first = [{"name": "first", "resources": {"limits": init}}] if init else []
    return {
        "metadata": {"annotations": {k.replace("__", "/"): v for k, v in annotations.items()}},
        "spec": {"containers": containers, "initContainers": first},
    }


def footprint(obj: Any, names: Names = NAMES) -> dict[str, tuple[int, int]] | str:
    """What the pod would hold of which card, or the code of why it fits nowhere."""
    found = assign("u", "n", CARDS, parse_request(obj, names))
    return found.code if isinstance(found, Reason) else found.footprint()


mebibytes = st.integers(1, 24 * 1024)
percents = st.integers(1, 99)


@given(st.lists(st.integers(1, 24), min_size=1, max_size=3), st.integers(0, 24))
def test_memory_in_gib(units: list[int], first: int) -> None:
    ways = [
        footprint(pod(*({resource: n} for n in units), init={resource: first}))
        for resource in ("gpushare/gpu-mem", "aliyun.com/gpu-mem")
    ]
    assert ways[0] == ways[1]


@given(mebibytes, percents)
def test_memory_and_compute_in_mib(mib: int, percent: int) -> None:
    from gpushare.units import Unit

    ours = pod({"gpushare/gpu-mem": mib, "gpushare/gpu-percent": percent})
    found = assign("u", "n", CARDS, parse_request(ours, NAMES, Unit(1)))
    native = found.code if isinstance(found, Reason) else found.footprint()
    assert native == footprint(
        pod({"elasticgpu.io/gpu-memory": mib, "elasticgpu.io/gpu-core": percent})
    )
    hami = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": percent}
    assert native == footprint(pod(hami))


@given(mebibytes)
def test_memory_alone_in_mib(mib: int) -> None:
    in_mib = Names(dialects=("aliyun:MiB", "elastic", "hami"))
    ways = (
        {"aliyun.com/gpu-mem": mib},
        {"elasticgpu.io/gpu-memory": mib},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib},
    )
    assert len({str(footprint(pod(limits), in_mib)) for limits in ways}) == 1


@given(percents)
def test_per_cent_of_a_card(percent: int) -> None:
    ways = (
        {"gpushare/gpu-percent": percent},
        {"nano-gpu/gpu-percent": percent},
        {"elasticgpu.io/gpu-core": percent},
        {
            "nvidia.com/gpu": 1,
            "nvidia.com/gpumem-percentage": percent,
            "nvidia.com/gpucores": percent,
        },
    )
    assert len({str(footprint(pod(limits))) for limits in ways}) == 1


@given(st.integers(1, 3))
def test_whole_cards(cards: int) -> None:
    ways = (
        {"gpushare/gpu-percent": 100 * cards},
        {"nano-gpu/gpu-percent": 100 * cards},
        {"elasticgpu.io/gpu-core": 100 * cards},
        {"elasticgpu.io/gpu-core": 100 * cards + 50, "elasticgpu.io/gpu-memory": 7},
        {"nvidia.com/gpu": cards},
        {"nvidia.com/gpu": cards, "nvidia.com/gpumem": 100, "nvidia.com/gpucores": 100},
    )
    assert len({str(footprint(pod(limits))) for limits in ways}) == 1
    alone = Names(dialects=("nvidia",))
    assert footprint(pod({"nvidia.com/gpu": cards}), alone) == footprint(pod(ways[0]))


def test_memory_without_compute_leaves_the_compute_to_others() -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}
    assert footprint(pod(limits)) == {"GPU-t4": (7680, 0)}
    assert footprint(pod({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30})) == {
        "GPU-t4": (15360, 30)
    }


def test_several_cards() -> None:
    assert footprint(pod({"aliyun.com/gpu-mem": 4}, gpushare__cards="2")) == {
        "GPU-t4": (4096, 0),
        "GPU-a10": (4096, 0),
    }
    two = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4096}
    assert footprint(pod(two)) == {"GPU-t4": (4096, 0), "GPU-a10": (4096, 0)}


def test_hami_chooses_cards_by_annotations() -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    key = "nvidia.com__{}-gputype".format
    assert footprint(pod(limits, **{key("use"): "A10"})) == {"GPU-a10": (1000, 0)}
    assert footprint(pod(limits, **{key("nouse"): "T4"})) == {"GPU-a10": (1000, 0)}
    only = {"nvidia.com__nouse-gpuuuid": "GPU-t4,GPU-a10"}
    assert footprint(pod(limits, **only)) == "wrong-model"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (
            {"gpushare/gpu-mem": 1, "aliyun.com/gpu-mem": 1},
            "container 'c0' asks for its slice in two ways at once: "
            "gpushare/gpu-mem, aliyun.com/gpu-mem; keep one of them",
        ),
        ({"nano-gpu/gpu-percent": 5, "elasticgpu.io/gpu-core": 5}, "keep one of them"),
        ({"nano-gpu/gpu-percent": 150}, "use at most 100, or 100 or 200"),
        ({"nvidia.com/gpumem": 5}, "add nvidia.com/gpu: 1"),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 130}, "use 1 to 100"),
        (
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1, "nvidia.com/gpumem-percentage": 1},
            "leave out one of them",
        ),
        ({"aliyun.com/gpu-mem": 10**12}, "larger than any card"),
        ({"nvidia.com/gpu": 500}, "more than any node has"),
    ],
)
def test_what_is_refused(limits: dict[str, int], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_request(pod(limits), NAMES)
    assert words in str(refused.value)


def test_containers_of_one_pod_may_ask_differently() -> None:
    obj = pod({"aliyun.com/gpu-mem": 2}, {"gpushare/gpu-mem": 3}, {"nano-gpu/gpu-percent": 10})
    request = parse_request(obj, NAMES)
    assert [c.dialect for c in request.containers] == ["aliyun", "", "nano"]
    want = amounts(request)
    assert (want.mem, want.percent) == (3, 0)
    assert want.foreign == (("aliyun.com/gpu-mem", 2), ("nano-gpu/gpu-percent", 10))


def test_what_is_not_switched_on_is_nobody_s() -> None:
    obj = pod({"aliyun.com/gpu-mem": 2})
    assert not asks(obj, Names())
    assert not parse_request(obj, Names())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("aliyn",), "dialect 'aliyn' is not known: use aliyun, nano"),
        (("nvidia", "hami"), "dialects nvidia and hami both have nvidia.com/gpu"),
        (("nano:GiB",), "nano counts no memory"),
        (("aliyun:lots",), "unit 'lots' is not known"),
        (("aliyun", "aliyun:MiB"), "both have aliyun.com/gpu-mem"),
    ],
)
def test_settings_that_cannot_be(settings: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Names(dialects=settings)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from([r.name for d in DIALECTS.values() for r in d.resources]),
        st.integers(-5, 10**20) | st.text(max_size=5),
        max_size=3,
    ),
    st.dictionaries(
        st.sampled_from(["nvidia.com/use-gputype", "hami.io/gpu-scheduler-policy", NAMES.cards]),
        anything,
    ),
)
def test_nothing_that_a_tenant_writes_breaks_the_reading(limits: Any, annotations: Any) -> None:
    obj = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    try:
        found = assign("u", "n", CARDS, parse_request(obj, NAMES))
    except Refusal:
        return
    assert isinstance(found, Placement | Reason)
