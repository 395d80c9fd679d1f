"""Reading the cards through NVML, often and cheaply.

nvidia-ml-py's own functions ask twice for each list and build an object for each process. Here the
same library functions fill one buffer that is used again, and the lists are unpacked in one go: a
look at eight cards with a hundred processes takes a few milliseconds less.

Calls: NVML API Reference Guide, "Device Queries": nvmlDeviceGet{Compute,Graphics,MPSCompute}
RunningProcesses (v3, v2; both with the longer nvmlProcessInfo_t), nvmlDeviceGetMemoryInfo_v2 and
nvmlDeviceGetMemoryInfo, nvmlDeviceGetProcessUtilization, nvmlDeviceGetUtilizationRates.
All of them block; none may run on the event loop.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import pynvml

from device_plugin.usage.sample import CardActivity, CardSample

_MIB = 1024 * 1024
# nvmlProcessInfo_v2_t: pid, bytes, GPU instance, compute instance.
_PROCESS = struct.Struct("IxxxxQII")
# nvmlProcessUtilizationSample_t: pid, time stamp in µs, SM, memory, encoder, decoder.
_SAMPLE = struct.Struct("IxxxxQIIII")
_NOT_AVAILABLE = 2**64 - 1
_FIRST_ROOM = 256
_LISTS = ("Compute", "Graphics", "MPSCompute")
_UNSUPPORTED = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
    }
)


class Sampler:
    """Looks at cards. To be used from one thread.

    The library is held for the time of a look only: NVML counts its cards when the first user
    starts it, and another part of this program restarts it to have them counted anew.
    """

    def __init__(self) -> None:
        self._room = _FIRST_ROOM
        self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)
        self._functions: dict[str, Any] = {}
        self._since: dict[str, int] = {}
        # Calls that this card's driver does not know are not made again: (card, call).
        self._lacking: set[tuple[str, str]] = set()

    def look(
        self, cards: Sequence[str], busy: bool = False
    ) -> tuple[list[CardSample], dict[str, CardActivity]]:
        """One sample of each card, and with ``busy`` its activity since it was last asked for.

        A card that cannot be asked says so in its sample, and has no activity. Raises nothing.
        """
        samples: list[CardSample] = []
        activity: dict[str, CardActivity] = {}
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return [CardSample(card, problem=f"NVML: {error}") for card in cards], {}
        try:
            for card in cards:
                try:
                    handle = pynvml.nvmlDeviceGetHandleByUUID(card)
                    samples.append(self._look(card, handle))
                    if busy:
                        activity[card] = self._activity(card, handle)
                except pynvml.NVMLError as error:
                    if not samples or samples[-1].card != card:
                        samples.append(CardSample(card, problem=f"NVML: {error}"))
        finally:
            with contextlib.suppress(pynvml.NVMLError):  # a dead driver cannot be closed
                pynvml.nvmlShutdown()
        return samples, activity

    def _activity(self, card: str, handle: Any) -> CardActivity:
        return CardActivity(self._card_percent(card, handle), self._process_percents(card, handle))

    def _look(self, card: str, handle: Any) -> CardSample:
        total, used, reserved = self._memory(card, handle)
        memory: dict[int, int | None] = {}
        for kind in _LISTS:
            for pid, mib in self._listed(card, handle, kind).items():
                # One process may be in several lists: it is the same memory each time.
                known = memory.get(pid)
                memory[pid] = mib if known is None else max(known, mib or 0)
        return CardSample(card, total, used, reserved, memory)

    def _memory(self, card: str, handle: Any) -> tuple[int, int, int]:
        if (card, "memory v2") not in self._lacking:
            try:
                info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
                # From version 2 on "used" leaves out what is reserved.
                reserved = info.reserved // _MIB
                return info.total // _MIB, info.used // _MIB + reserved, reserved
            except pynvml.NVMLError as error:
                if error.value not in _UNSUPPORTED:
                    raise
                self._lacking.add((card, "memory v2"))
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return info.total // _MIB, info.used // _MIB, 0

    def _listed(self, card: str, handle: Any, kind: str) -> dict[int, int | None]:
        for version in ("_v3", "_v2"):
            name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
            if (card, name) in self._lacking:
                continue
            try:
                count = self._fill(name, handle)
            except pynvml.NVMLError as error:
                if error.value not in _UNSUPPORTED:
                    raise
                self._lacking.add((card, name))
                continue
            rows = _PROCESS.iter_unpack(memoryview(self._buffer)[: count * _PROCESS.size])
            return {
                pid: None if size == _NOT_AVAILABLE else -(-size // _MIB)
                for pid, size, _, _ in rows
            }
        return {}

    def _process_percents(self, card: str, handle: Any) -> dict[int, int] | None:
        name = "nvmlDeviceGetProcessUtilization"
        if (card, name) in self._lacking:
            return None
        try:
            since = self._since.get(card, 0)
            count = self._fill(name, handle, ctypes.c_ulonglong(since))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                return {}  # nobody did anything
            if error.value not in _UNSUPPORTED:
                raise
            self._lacking.add((card, name))
            return None
        busy: dict[int, int] = {}
        for row in _SAMPLE.iter_unpack(memoryview(self._buffer)[: count * _SAMPLE.size]):
            pid, stamp, sm = row[0], row[1], row[2]
            if stamp > since and sm <= 100:
                busy[pid] = max(busy.get(pid, 0), sm)
                self._since[card] = max(self._since.get(card, 0), stamp)
        return busy

    def _card_percent(self, card: str, handle: Any) -> int:
        if (card, "utilization") in self._lacking:
            return 0
        try:
            return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except pynvml.NVMLError as error:
            if error.value not in _UNSUPPORTED:
                raise
            self._lacking.add((card, "utilization"))
            return 0

    def _fill(self, name: str, handle: Any, *more: Any) -> int:
        """Call a function that fills a list; returns how many entries the buffer holds then."""
        function = self._functions.get(name)
        if function is None:
            # As nvidia-ml-py's own wrappers find theirs. Raises NVMLError where it is missing.
            function = self._functions[name] = pynvml._nvmlGetFunctionPointer(name)
        while True:
            count = ctypes.c_uint(self._room)
            code = function(handle, *self._arguments(name, count), *more)
            if code == pynvml.NVML_SUCCESS:
                return count.value
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                raise pynvml.NVMLError(code)
            self._room = max(count.value, self._room) * 2
            self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)

    def _arguments(self, name: str, count: ctypes.c_uint) -> tuple[Any, Any]:
        # The lists of processes take the count first, the samples the buffer first.
        if name.endswith("Utilization"):
            return self._buffer, ctypes.byref(count)
        return ctypes.byref(count), self._buffer
