"""Where the numbers of the slice come from: the node's notice board, or else NVML and the limit.

The board is exact: the node sees every process of the pod. Without it (a node whose plugin shows no
boards) NVML in the container names at least the processes that this container can see.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from gpushare.board import Board, BoardCard, NoBoard, Process, read
from gpushare.cards import Card

LIMIT = "GPU_MEM_LIMIT"  # the slice in bytes, written into the container by the device plugin
_MIB = 1 << 20


def slice_now(path: Path, environment: Mapping[str, str], nvml: Any = None) -> Board:
    """The slice as it is now. Raises NoBoard with a sentence where there is none to see.

    ``nvml`` stands for the module pynvml in tests.
    """
    try:
        return read(path)
    except NoBoard:
        limit = environment.get(LIMIT, "")
        cards = _by_nvml(int(limit) // _MIB, nvml) if limit.isdecimal() else ()
        if not cards:
            raise
        return Board(environment.get("HOSTNAME", ""), 0.0, cards)


def _by_nvml(limit: int, nvml: Any) -> tuple[BoardCard, ...]:
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        numbers = range(nvml.nvmlDeviceGetCount())
        return tuple(_card(nvml, number, limit) for number in numbers)
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, number: int, limit: int) -> BoardCard:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
    model, uuid = str(nvml.nvmlDeviceGetName(handle)), str(nvml.nvmlDeviceGetUUID(handle))
    own = tuple(
        Process(p.pid, name, "", None if p.usedGpuMemory is None else p.usedGpuMemory // _MIB)
        for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if (name := _name(p.pid))
    )
    return BoardCard(
        uuid=uuid,
        index=number,
        model=Card(uuid, number, number, model, memory).short_model,
        memory_mib=memory,
        slice_mib=limit,
        limit_mib=limit,
        used_mib=sum(process.used_mib or 0 for process in own),
        processes=own,
    )


def _name(pid: int) -> str:
    """'' for a process that is not this container's, whose number may be of another."""
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return ""
