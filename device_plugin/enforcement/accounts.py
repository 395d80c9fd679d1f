"""Whose the memory on a card is. Pure.

NVML names processes; their cgroups name pods. Everything a pod has on a card is one sum, however
many containers, kernels, terminals and nested runtimes its processes are in. What is left belongs
to no slice: a process of the host, a pod that was given nothing here, a monitor, an X server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from device_plugin.enforcement.cgroup import Owner, choose
from device_plugin.enforcement.slices import Slice


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A living process. ``start`` (clock ticks after boot) tells it from a later one of its pid.

    ``own_pid`` is its pid as the container sees it.
    """

    pid: int
    start: int
    name: str = ""
    own_pid: int = 0
    owners: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds of one card. ``mib`` is None where the driver does not tell."""

    process: ProcessInfo
    mib: int | None
    container: str = ""

    @property
    def known_mib(self) -> int:
        return self.mib or 0


@dataclass(slots=True)
class PodUse:
    """One pod on one card."""

    slice: Slice
    held: list[Held] = field(default_factory=list)

    @property
    def mib(self) -> int:
        return sum(h.known_mib for h in self.held)


@dataclass(frozen=True, slots=True)
class Stray:
    """A process that uses a card without a slice of it. ``pod_uid`` is '' for the host's own."""

    process: ProcessInfo
    mib: int
    pod_uid: str = ""
    expected: bool = False


@dataclass(slots=True)
class CardAccount:
    """One card: pods by uid, strays, and how many processes' memory the driver does not tell."""

    pods: dict[str, PodUse] = field(default_factory=dict)
    strays: list[Stray] = field(default_factory=list)
    untold: int = 0

    @property
    def stray_mib(self) -> int:
        return sum(stray.mib for stray in self.strays)


def account(
    card: str,
    memory: Mapping[int, int | None],
    processes: Mapping[int, ProcessInfo],
    slices: Mapping[str, Slice],
    expected: Collection[int] = (),
    elsewhere: Collection[str] = (),
) -> CardAccount:
    """Sort the processes of ``card`` to slices.

    ``memory`` maps pids to MiB, ``processes`` describes those that could be looked at, ``slices``
    is by pod uid. ``expected`` are pids of ours (MPS servers). ``elsewhere`` are further pods of
    this node, which matter only for telling nested pods from real ones.
    """
    book = CardAccount()
    known = slices.keys() | frozenset(elsewhere)
    for pid, mib in memory.items():
        info = processes.get(pid) or ProcessInfo(pid, 0)
        owner = choose(info.owners, known)
        book.untold += mib is None
        mine = slices.get(owner.pod_uid) if owner else None
        if owner is not None and mine is not None and card in mine.footprint:
            use = book.pods.setdefault(owner.pod_uid, PodUse(mine))
            use.held.append(Held(info, mib, mine.container_ids.get(owner.container_id, "")))
        else:
            uid = owner.pod_uid if owner else ""
            book.strays.append(Stray(info, mib or 0, uid, expected=pid in expected))
    return book


def biggest(held: Iterable[Held], inits: Collection[int]) -> Held | None:
    """The process to end: the one that holds most, a container's first process only if alone.

    ``inits`` are the pids of the first processes of containers: with such a one all of its
    container ends. Ties go to the youngest, whose work is least.
    """
    return max(
        held,
        key=lambda h: (h.process.pid not in inits, h.known_mib, h.process.start, h.process.pid),
        default=None,
    )
