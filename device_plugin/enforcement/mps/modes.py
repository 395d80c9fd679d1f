"""Compute modes through NVML."""

from __future__ import annotations

from typing import TypeVar

import pynvml

from device_plugin.enforcement.mps.host import HostError
from device_plugin.nvml_thread import NvmlStuck, NvmlThread

T = TypeVar("T")
_LIMIT = 10.0


class NvmlModes:
    """Asks and sets in a thread. Setting a mode needs root."""

    def __init__(self) -> None:
        self._thread = NvmlThread("modes")

    async def get(self, card: str) -> int:
        """The card's compute mode (nvmlComputeMode_t). Raises HostError."""
        return await self._call(card, None)

    async def set(self, card: str, mode: int) -> None:
        """Set it. Raises HostError."""
        await self._call(card, mode)

    async def _call(self, card: str, mode: int | None) -> int:
        def work() -> int:
            pynvml.nvmlInit()
            try:
                handle = pynvml.nvmlDeviceGetHandleByUUID(card)
                if mode is None:
                    return int(pynvml.nvmlDeviceGetComputeMode(handle))
                pynvml.nvmlDeviceSetComputeMode(handle, mode)
                return mode
            finally:
                pynvml.nvmlShutdown()

        try:
            return await self._thread.call(work, _LIMIT)
        except (pynvml.NVMLError, NvmlStuck) as error:
            what = "asked for" if mode is None else f"set to {mode}"
            raise HostError(
                f"the compute mode of {card} cannot be {what}: {error}; setting it needs root"
            ) from None
