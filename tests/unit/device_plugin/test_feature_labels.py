"""gpu-feature-discovery's labels, where it does not run."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from device_plugin.feature_labels import ITS_MARK, feature_labels, to_write
from device_plugin.physical_card import Driver, PhysicalCard

T4 = PhysicalCard("GPU-a", 0, 0, "Tesla T4", 15360, capability="7.5")
A10 = PhysicalCard("GPU-b", 1, 1, "NVIDIA A10", 23028, capability="8.6")
DRIVER = Driver("570.133.20", "12.8")
KEYS = st.sampled_from(["nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.family"])


def test_one_model() -> None:
    assert feature_labels([T4, T4], DRIVER) == {
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.family": "turing",
        "nvidia.com/gpu.compute.major": "7",
        "nvidia.com/gpu.compute.minor": "5",
        "nvidia.com/cuda.driver.major": "570",
        "nvidia.com/cuda.driver.minor": "133",
        "nvidia.com/cuda.driver.rev": "20",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "8",
    }


def test_several_models_have_no_one_product() -> None:
    labels = feature_labels([T4, A10], DRIVER)
    assert labels["nvidia.com/gpu.count"] == "2"
    assert not any("product" in key or "memory" in key for key in labels)


@given(st.text(max_size=90), st.text(max_size=20), st.text(max_size=20))
def test_whatever_the_driver_says_the_labels_are_legal(model: str, version: str, cuda: str) -> None:
    odd = PhysicalCard("GPU-a", 0, 0, model, 1024, capability=cuda)
    for value in feature_labels([odd], Driver(version, cuda)).values():
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value)


def test_where_it_runs_it_is_left_alone() -> None:
    wanted = feature_labels([T4], DRIVER)
    assert to_write(wanted, [ITS_MARK, *wanted], list(wanted)) == ({}, [])


@given(st.sets(KEYS), st.sets(KEYS), st.sets(KEYS))
def test_only_ours_are_changed(wants: set[str], have: set[str], ours: set[str]) -> None:
    write, mine = to_write(dict.fromkeys(wants, "x"), have, ours & have)
    strangers = have - ours
    assert not strangers & write.keys()
    assert set(mine) == wants - strangers
    after = (have | {k for k, v in write.items() if v}) - {k for k, v in write.items() if v is None}
    assert after == wants | strangers
    assert to_write(dict.fromkeys(wants, "x"), after, mine)[1] == mine
