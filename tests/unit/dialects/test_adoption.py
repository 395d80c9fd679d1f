"""What other systems wrote on a pod, read back; and what was written by nobody who knows how."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare.cards import Card
from gpushare.dialects.speech import adopted, at_bind, told
from gpushare.dialects.table import DIALECTS
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.request import parse_request

NAMES = Names(dialects=("aliyun", "nano", "elastic"))
CARDS = {f"GPU-{i}": Card(f"GPU-{i}", i, i, "Tesla T4", 15360) for i in range(3)}


def pod(limits: dict[str, int], annotations: dict[str, Any]) -> Any:
    wanted = {key: str(count) for key, count in limits.items()}
    containers = [
        {"name": "side", "resources": {}},
        {"name": "main", "resources": {"limits": wanted}},
    ]
    return {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}


def taken_over(limits: dict[str, int], annotations: dict[str, Any]) -> Placement | None:
    made = pod(limits, annotations)
    request = parse_request(made, NAMES)
    return adopted(told(NAMES, made, request), request, "u", "n", CARDS)


@pytest.mark.parametrize(
    ("limits", "annotations", "cards"),
    [
        ({"aliyun.com/gpu-mem": 3}, {"ALIYUN_COM_GPU_MEM_IDX": "2"}, ["GPU-2"]),
        ({"nano-gpu/gpu-percent": 20}, {"nano-gpu/container-main": "1"}, ["GPU-1"]),
        (
            {"elasticgpu.io/gpu-core": 200},
            {"elasticgpu.io/container-main": "0,2"},
            ["GPU-0", "GPU-2"],
        ),
        (
            {"aliyun.com/gpu-mem": 3},
            {"scheduler.framework.gpushare.allocation": '{"1":{"0":3}}'},
            ["GPU-0"],
        ),
    ],
)
def test_taken_over(limits: dict[str, int], annotations: dict[str, str], cards: list[str]) -> None:
    found = taken_over(limits, annotations)
    assert found is not None
    assert list(found.footprint()) == cards


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        ({"aliyun.com/gpu-mem": 3}, {}),
        ({"aliyun.com/gpu-mem": 3}, {"ALIYUN_COM_GPU_MEM_IDX": "9"}),
        ({"nano-gpu/gpu-percent": 20}, {"nano-gpu/container-main": "-1"}),
        ({"nano-gpu/gpu-percent": 20}, {"nano-gpu/container-side": "1"}),
        ({"elasticgpu.io/gpu-core": 200}, {"elasticgpu.io/container-main": "0"}),
        ({"gpushare/gpu-mem": 3}, {"ALIYUN_COM_GPU_MEM_IDX": "0"}),
    ],
)
def test_not_taken_over(limits: dict[str, int], annotations: dict[str, str]) -> None:
    assert taken_over(limits, annotations) is None


KEYS = sorted(
    key.replace("*", "main") for dialect in DIALECTS.values() for key in dialect.protected
)
texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["0", "1,2", '{"1":{"0":3}}', '{"1":[]}', '{"x":{}}', "[" * 5000, "null"]),
    st.none(),
    st.integers(),
)


@given(st.dictionaries(st.sampled_from(KEYS), texts))
def test_no_annotation_breaks_the_reading(annotations: dict[str, Any]) -> None:
    for limits in ({"aliyun.com/gpu-mem": 3}, {"elasticgpu.io/gpu-core": 100}):
        found = taken_over(limits, annotations)
        assert found is None or set(found.footprint()) <= set(CARDS)


@given(
    st.sampled_from(["aliyun.com/gpu-mem", "nano-gpu/gpu-percent", "elasticgpu.io/gpu-core"]),
    st.integers(1, 14),
    st.sampled_from(sorted(CARDS)),
)
def test_what_we_write_reads_back(resource: str, count: int, uuid: str) -> None:
    made = pod({resource: count}, {})
    request = parse_request(made, NAMES)
    indexes = (("main", (CARDS[uuid].index,)),)
    placement = adopted(indexes, request, "u", "n", CARDS)
    assert placement is not None
    marks = at_bind(NAMES, request, placement, CARDS, 10**18)
    assert taken_over({resource: count}, dict(marks.annotations)) == placement
