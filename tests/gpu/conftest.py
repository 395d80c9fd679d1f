"""Tests that need a real NVIDIA card: run them on a node that has one, as root.

    python -m pytest tests/gpu -ra

Without a card each of them is skipped, and says what is missing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pynvml
import pytest


def missing(mps: bool = False) -> str:
    """What keeps the tests from running here; '': nothing."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"no NVIDIA driver here: {error}"
    try:
        if pynvml.nvmlDeviceGetCount() == 0:
            return "the driver counts no card"
    finally:
        pynvml.nvmlShutdown()
    if shutil.which("nvcc") is None and not _torch():
        return "neither nvcc nor PyTorch with CUDA is here to make a program that uses the card"
    if mps and shutil.which("nvidia-cuda-mps-control") is None:
        return "nvidia-cuda-mps-control is not in PATH"
    if mps and os.geteuid() != 0:
        return "MPS daemons and compute modes need root"
    return ""


def _torch() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


@pytest.fixture
def card() -> str:
    """The uuid of card 0."""
    if reason := missing():
        pytest.skip(reason)
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
    finally:
        pynvml.nvmlShutdown()


@pytest.fixture
def mps_card(card: str) -> str:
    """The same, on a machine that can run MPS."""
    if reason := missing(mps=True):
        pytest.skip(reason)
    return card


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """A command that takes MIB of card 0, says how it went, and waits for a line: program + [MIB]."""
    if shutil.which("nvcc"):
        source, binary = tmp_path / "hold.cu", tmp_path / "hold"
        source.write_text(_CUDA)
        # A static binary: what a preloaded library could never catch.
        code = os.spawnlp(
            os.P_WAIT, "nvcc", "nvcc", "-cudart", "static", "-o", str(binary), str(source)
        )
        assert code == 0, "nvcc could not compile the program"
        return [str(binary)]
    script = tmp_path / "hold.py"
    script.write_text(_TORCH)
    import sys

    return [sys.executable, str(script)]


_CUDA = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__global__ void touch(char *p) { p[0] = 1; }
int main(int argc, char **argv) {
    size_t want = (size_t)atoll(argv[1]) << 20, free = 0, total = 0;
    char *p = nullptr;
    int sms = 0;
    bool managed = argc > 2;
    cudaError_t got = managed ? cudaMallocManaged(&p, want) : cudaMalloc(&p, want);
    if (managed && got == cudaSuccess) cudaMemset(p, 1, want);  // it comes to the card when used
    cudaMemGetInfo(&free, &total);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    printf("%s total=%zu sms=%d\n", got == cudaSuccess ? "ok" : cudaGetErrorName(got), total >> 20, sms);
    fflush(stdout);
    if (got == cudaSuccess)
        for (;;) {
            touch<<<1, 1>>>(p);
            cudaDeviceSynchronize();
            if (getchar() == EOF) break;
        }
    return 0;
}
"""
_TORCH = """
import sys, torch
want = int(sys.argv[1]) << 20
try:
    held = torch.empty(want, dtype=torch.uint8, device="cuda")
    held[:1024].zero_()
    torch.cuda.synchronize()
    said = "ok"
except torch.OutOfMemoryError:
    said = "cudaErrorMemoryAllocation"
total = torch.cuda.mem_get_info()[1] >> 20
sms = torch.cuda.get_device_properties(0).multi_processor_count
print(said, f"total={total} sms={sms}", flush=True)
sys.stdin.readline()
"""
