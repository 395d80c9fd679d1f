"""Control groups for the playground's nodes, on machines with version 1, version 2 or both.

Every process of a node lives below the node's own group, containers included, so ending the group
ends the node, whatever became of the processes that started them.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from playground.endings import await_end

_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted control group hierarchy."""

    mount: Path
    version: int


def parse_hierarchies(mountinfo: str) -> list[Hierarchy]:
    """The hierarchies in a /proc/PID/mountinfo text. A machine may mount one of them twice."""
    found: dict[str, Hierarchy] = {}
    for line in mountinfo.splitlines():
        mounted, _, source = line.partition(" - ")
        kind, version = source.split(" ")[0], {"cgroup": 1, "cgroup2": 2}
        if kind in version:
            fields = mounted.split(" ")
            found.setdefault(fields[2], Hierarchy(Path(fields[4]), version[kind]))
    return list(found.values())


def hierarchies() -> list[Hierarchy]:
    return parse_hierarchies(Path("/proc/self/mountinfo").read_text())


def folders(group: str) -> list[Path]:
    """The folders of ``group`` ('playground/t4-1'), one in each hierarchy."""
    return [h.mount / group for h in hierarchies()]


def create(group: str) -> None:
    """Make ``group`` and its parents, fit to hold processes and further groups."""
    for hierarchy in hierarchies():
        folder = hierarchy.mount
        for part in Path(group).parts:
            if hierarchy.version == 2:
                _enable_controllers(folder)
            parent, folder = folder, folder / part
            folder.mkdir(exist_ok=True)
            if hierarchy.version == 1:
                _copy_cpuset(parent, folder)


def _enable_controllers(folder: Path) -> None:
    for controller in (folder / "cgroup.controllers").read_text().split():
        # One that can't be enabled here (real-time processes, say) must not cost the others.
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _copy_cpuset(parent: Path, folder: Path) -> None:
    # A version 1 cpuset starts empty, and takes no process before it has processors and memory.
    for name in _CPUSET_FILES:
        if (folder / name).exists() and not (folder / name).read_text().strip():
            (folder / name).write_text((parent / name).read_text())


def processes(group: str) -> set[int]:
    """The processes in ``group`` and all groups below it."""
    found: set[int] = set()
    for top in folders(group):
        for listing in top.rglob("cgroup.procs") if top.is_dir() else ():
            with contextlib.suppress(OSError):  # a group that was removed meanwhile
                found.update(int(pid) for pid in listing.read_text().split())
    return found - {0}


def kill(group: str, patience: float = 10) -> None:
    """End every process in and below ``group``; waits up to ``patience`` seconds for each round.

    Raises TimeoutError if a process survives SIGKILL (it hangs in the kernel).
    """
    for _ in range(20):  # a process may start another one while it is being listed
        pids = processes(group)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await_end(pids, patience)
    raise TimeoutError(f"processes of {group} do not end: {sorted(processes(group))}")


def remove(group: str) -> None:
    """Remove ``group`` and all groups below it. They must be empty."""
    for top in folders(group):
        if top.is_dir():
            for folder, _, _ in os.walk(top, topdown=False):
                os.rmdir(folder)
