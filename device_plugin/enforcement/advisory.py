"""Variables that tell frameworks what their slice is. Pure.

They are advice: whoever writes the program can ignore them, and each process has them for itself,
so two kernels with the same cap can take twice as much. The watchdog is there for that. What they
do is to let an honest notebook run into its framework's own "out of memory", with a traceback, in
place of being ended from outside.

Every cap leaves out what CUDA itself takes for each process (context, kernels, libraries): a
framework's cap counts its own allocations only, and the slice has to hold both.
"""

from __future__ import annotations

from collections.abc import Collection

_MIB = 1024 * 1024
# A CUDA context with the usual libraries loaded takes 150 to 500 MiB on a T4 or A10.
CONTEXT_MIB = 300
# A tiny slice would have nothing left for tensors; there the context may overdraw it a little.
_MOST_FOR_CONTEXT = 4

# A container that sets one of these itself must not get the variable that stands before it.
CONFLICTS: dict[str, frozenset[str]] = {
    # jaxlib raises ValueError when both names of this setting are there.
    "XLA_PYTHON_CLIENT_MEM_FRACTION": frozenset({"XLA_CLIENT_MEM_FRACTION"}),
    # PyTorch takes either name of its allocator's settings, and ours would undo theirs.
    "PYTORCH_ALLOC_CONF": frozenset({"PYTORCH_CUDA_ALLOC_CONF"}),
    # A soft limit is nothing where spilling was switched off.
    "CUDF_SPILL_DEVICE_LIMIT": frozenset({"CUDF_SPILL"}),
}


def advisory_environment(
    card_memory_mib: int,
    slice_mib: int,
    percent: int = 0,
    cards: int = 1,
    own: Collection[str] = (),
) -> dict[str, str]:
    """The variables for a container with ``slice_mib`` MiB on each of ``cards`` cards.

    ``card_memory_mib`` is the memory of the smallest of these cards. ``percent`` is its share of
    compute, 0 where that is best effort. ``own`` are names that the container sets itself: they
    are left alone. Whole cards get the sizes and no caps.
    """
    env = {"GPU_MEM_LIMIT": str(slice_mib * _MIB)}
    if percent:
        env["GPU_PERCENT_LIMIT"] = str(percent)
    if cards > 1:
        env["GPU_COUNT"] = str(cards)
    if slice_mib < card_memory_mib:
        env |= _caps(card_memory_mib, slice_mib)
    taken = frozenset(own)
    return {
        name: value
        for name, value in env.items()
        if name not in taken and not CONFLICTS.get(name, frozenset()) & taken
    }


def usable_mib(slice_mib: int) -> int:
    """What of a slice a framework may fill: all but what CUDA takes for the process."""
    return max(1, slice_mib - min(CONTEXT_MIB, slice_mib // _MOST_FOR_CONTEXT))


def memory_fraction(card_memory_mib: int, slice_mib: int) -> str:
    """``usable_mib`` as a part of the card's memory, rounded down: '0.4468'."""
    tenths = max(1, usable_mib(slice_mib) * 10_000 // max(1, card_memory_mib))
    return f"{min(tenths, 10_000) / 10_000:.4f}"


def _caps(card_memory_mib: int, slice_mib: int) -> dict[str, str]:
    fraction = memory_fraction(card_memory_mib, slice_mib)
    usable = str(usable_mib(slice_mib) * _MIB)
    return {
        # For programs and notebooks that set a cap themselves, for example with
        # torch.cuda.set_per_process_memory_fraction(float(os.environ["GPU_MEM_FRACTION"])).
        "GPU_MEM_FRACTION": fraction,
        # JAX: the part of the card's total memory that it takes when it starts, and no more later.
        # https://docs.jax.dev/en/latest/gpu_memory_allocation.html
        # The newer name XLA_CLIENT_MEM_FRACTION is unknown to older versions; both are an error.
        "XLA_PYTHON_CLIENT_MEM_FRACTION": fraction,
        # PyTorch: the allocator raises torch.OutOfMemoryError above this part of the card.
        # https://docs.pytorch.org/docs/stable/notes/cuda.html (PYTORCH_ALLOC_CONF)
        # In force from 2.10 on; up to 2.8 this name is not read, 2.9 skips the key. The old name,
        # PYTORCH_CUDA_ALLOC_CONF, must not be used: up to 2.9 an unknown key in it is an error.
        "PYTORCH_ALLOC_CONF": f"per_process_memory_fraction:{fraction}",
        # TensorFlow: takes memory as it needs it, in place of all that is free. It has no variable
        # for a cap (tf.config.set_logical_device_configuration is the way to one).
        # https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        # CuPy: its pool raises OutOfMemoryError above so many bytes on each card.
        # https://docs.cupy.dev/en/stable/reference/environment.html
        "CUPY_GPU_MEMORY_LIMIT": usable,
        # RAPIDS cuDF: above so many bytes, data frames move to the host's memory.
        # https://docs.rapids.ai/api/cudf/stable/developer_guide/library_design/#spilling-to-host-memory
        "CUDF_SPILL": "on",
        "CUDF_SPILL_DEVICE_LIMIT": usable,
    }
