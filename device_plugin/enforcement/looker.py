"""Looking at cards and processes, in a thread with a time limit: both can block."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from device_plugin.enforcement.accounts import ProcessInfo
from device_plugin.enforcement.cgroup import Owner
from device_plugin.enforcement.processes import Processes
from device_plugin.nvml_thread import NvmlThread
from device_plugin.usage.sample import CardActivity, CardSample


class Sampling(Protocol):
    """How cards are asked. Blocks."""

    def look(
        self, cards: Sequence[str], busy: bool = False
    ) -> tuple[list[CardSample], dict[str, CardActivity]]: ...


@dataclass(frozen=True, slots=True)
class Look:
    """All cards at one moment, and the processes on them that live."""

    samples: Sequence[CardSample] = ()
    activity: Mapping[str, CardActivity] = field(default_factory=dict)
    processes: Mapping[int, ProcessInfo] = field(default_factory=dict)


class Looker:
    """One look at a time. Every method raises NvmlStuck where the answer does not come."""

    def __init__(self, sampling: Sampling, processes: Processes, limit: float) -> None:
        self._sampling, self._processes, self._limit = sampling, processes, limit
        self._thread = NvmlThread("enforcement")

    async def look(self, cards: Sequence[str], busy: bool) -> Look:
        """Look at ``cards``; with ``busy`` also who computes."""
        return await self._thread.call(lambda: self._look(cards, busy), self._limit)

    async def first_processes(self, containers: Collection[Owner]) -> frozenset[int]:
        """The pids of these containers' first processes."""
        return await self._thread.call(
            lambda: self._processes.first_of_containers(containers), self._limit
        )

    async def signal(self, process: ProcessInfo, hard: bool, owner: Owner) -> None:
        """End a process. Raises Gone and PermissionError."""
        await self._thread.call(lambda: self._processes.signal(process, hard, owner), self._limit)

    def stop(self) -> None:
        """End the thread when it is free."""
        self._thread.stop()

    def _look(self, cards: Sequence[str], busy: bool) -> Look:
        samples, activity = self._sampling.look(cards, busy)
        pids = {pid for sample in samples for pid in sample.memory}
        return Look(samples, activity, self._processes.look(pids))
