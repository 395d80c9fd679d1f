"""What limits processes in the driver, where anything does."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from device_plugin.enforcement.slices import Slice
from gpushare.placement import ContainerPlacement


class Limiter(Protocol):
    """A mechanism beside the watchdog."""

    async def before_start(self, its: Slice, placed: ContainerPlacement) -> dict[str, Any]:
        """The CDI edits that a container needs for it. Raises Refused where it cannot be limited."""
        ...

    async def before_end(self, card: str, pid: int) -> None:
        """A process that uses ``card`` is about to be ended by a signal."""
        ...

    def pids(self, card: str) -> Collection[int]:
        """Its own processes on ``card``."""
        ...

    def held_by(self, its: Slice, card: str) -> tuple[str, str]:
        """By what the memory and the compute of a slice are limited: words of usage.SliceUse."""
        ...

    def in_force(self, card: str) -> tuple[str, str]:
        """By what memory and compute of slices are limited on ``card`` as things stand."""
        ...

    def problems(self) -> list[str]:
        """What is wrong with it now."""
        ...


class NoLimiter:
    """Nothing limits processes; the watchdog is all there is."""

    def __init__(
        self, memory: str = "watchdog", compute: Callable[[str], str] = lambda card: "best-effort"
    ) -> None:
        self._memory, self._compute = memory, compute

    async def before_start(self, its: Slice, placed: ContainerPlacement) -> dict[str, Any]:
        return {}

    async def before_end(self, card: str, pid: int) -> None:
        return None

    def pids(self, card: str) -> Collection[int]:
        return ()

    def held_by(self, its: Slice, card: str) -> tuple[str, str]:
        # A card that nobody else is on needs no arbiter.
        return self._memory, "whole-card" if its.percent(card) == 100 else self._compute(card)

    def in_force(self, card: str) -> tuple[str, str]:
        return self._memory, self._compute(card)

    def problems(self) -> list[str]:
        return []
