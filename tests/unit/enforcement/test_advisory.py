"""Each variable is read here as its framework reads it; the sources are named at each parser."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_plugin.enforcement.advisory import CONFLICTS, advisory_environment, usable_mib

MIB = 1024 * 1024
T4, A10 = 15360, 23028

# --- the frameworks' own parsers, as they are in the named versions


def read_jax(env: Mapping[str, str]) -> float:
    """jaxlib 0.10 xla_client.generate_pjrt_gpu_plugin_options"""
    new = env.get("XLA_CLIENT_MEM_FRACTION", "")
    old = env.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    if old and new:
        raise ValueError("both names")
    return float(new or old)


def read_torch(env: Mapping[str, str]) -> float:
    """PyTorch 2.10 c10/cuda/CUDAAllocatorConfig.cpp: tokens between , : [ ], blanks skipped"""
    tokens = re.findall(r"[,:\[\]]|[^,:\[\]]+", env["PYTORCH_ALLOC_CONF"].replace(" ", ""))
    assert tokens[:2] == ["per_process_memory_fraction", ":"]
    assert len(tokens) == 3, "nothing else is set, so that nothing else is changed"
    value = float(tokens[2])
    assert 0.0 <= value <= 1.0
    return value


def read_tensorflow(env: Mapping[str, str]) -> bool:
    """TensorFlow gpu_bfc_allocator.cc: strcmp with "true" and "false", else an error is logged"""
    value = env["TF_FORCE_GPU_ALLOW_GROWTH"]
    assert value in ("true", "false")
    return value == "true"


def read_cupy(env: Mapping[str, str]) -> int:
    """CuPy 14 cupy.cuda.memory._parse_limit_string: '90%' is a part, else bytes"""
    value = env["CUPY_GPU_MEMORY_LIMIT"]
    assert not value.endswith("%")
    return int(value)


def read_cudf(env: Mapping[str, str]) -> int | None:
    """cuDF core/buffer/spill_manager and options: on/true/1, and a whole number of bytes"""
    if env["CUDF_SPILL"].lower().strip() not in ("true", "on"):
        return None
    return int(env["CUDF_SPILL_DEVICE_LIMIT"])


sizes = st.sampled_from([T4, A10, 40960, 81920]).flatmap(
    lambda card: st.tuples(st.just(card), st.integers(1, card - 1))
)


@given(sizes)
def test_every_cap_and_a_context_fit_into_the_slice(size: tuple[int, int]) -> None:
    card, mib = size
    env = advisory_environment(card, mib)
    room = usable_mib(mib)
    assert 0 < room <= mib
    assert mib < 1200 or room + 300 <= mib
    one_step = card / 10_000
    for fraction in (read_jax(env), read_torch(env), float(env["GPU_MEM_FRACTION"])):
        assert 0 < fraction <= 1
        assert fraction * card <= max(room, one_step) + 1e-6
        assert fraction * card > room - one_step - 1
    assert read_cupy(env) == read_cudf(env) == room * MIB
    assert read_tensorflow(env)
    assert int(env["GPU_MEM_LIMIT"]) == mib * MIB


def test_a_seven_gib_slice_of_a_t4() -> None:
    assert advisory_environment(T4, 7 * 1024) == {
        "GPU_MEM_LIMIT": "7516192768",
        "GPU_MEM_FRACTION": "0.4471",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4471",
        "PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.4471",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "CUPY_GPU_MEMORY_LIMIT": "7201619968",
        "CUDF_SPILL": "on",
        "CUDF_SPILL_DEVICE_LIMIT": "7201619968",
    }


def test_the_variable_that_breaks_old_pytorch_is_never_set() -> None:
    # Up to 2.9 an unknown key in PYTORCH_CUDA_ALLOC_CONF ends the program at its first use of CUDA.
    assert "PYTORCH_CUDA_ALLOC_CONF" not in advisory_environment(T4, 1024)


def test_a_whole_card_gets_its_size_and_no_caps() -> None:
    assert advisory_environment(T4, T4, 100, 2) == {
        "GPU_MEM_LIMIT": str(T4 * MIB),
        "GPU_PERCENT_LIMIT": "100",
        "GPU_COUNT": "2",
    }


def test_best_effort_compute_has_no_percent() -> None:
    assert "GPU_PERCENT_LIMIT" not in advisory_environment(T4, 1024)
    assert advisory_environment(T4, 1024, 25)["GPU_PERCENT_LIMIT"] == "25"


@pytest.mark.parametrize("name", sorted(advisory_environment(T4, 1024, 25, 2)))
def test_what_the_container_sets_itself_is_left_alone(name: str) -> None:
    assert name not in advisory_environment(T4, 1024, 25, 2, own=[name])


def test_conflicting_names_are_never_both_there() -> None:
    env = advisory_environment(T4, 1024, own=["XLA_CLIENT_MEM_FRACTION"])
    assert read_jax({**env, "XLA_CLIENT_MEM_FRACTION": "0.5"}) == 0.5
    for name, others in CONFLICTS.items():
        for other in others:
            assert name not in advisory_environment(T4, 1024, own=[other])


@given(sizes, st.integers(0, 100), st.integers(1, 8))
def test_no_value_breaks_a_cdi_spec(size: tuple[int, int], percent: int, cards: int) -> None:
    for name, value in advisory_environment(*size, percent, cards).items():
        assert re.fullmatch(r"[A-Z_]+", name)
        assert re.fullmatch(r"[a-z0-9_.:]+", value)
