"""The processes that use cards: who they are, whether they live, and ending them.

Every process that is looked at is held by a pidfd (Linux 5.3), so that a pid that comes back as
another process is never mistaken for the first, neither in the books nor when one is ended. On
older kernels the start time is read each time instead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from device_plugin.enforcement.accounts import ProcessInfo
from device_plugin.enforcement.cgroup import Owner, owners

log = logging.getLogger(__name__)

# A process that its container's manager moves between cgroups is looked at again after so many looks.
_LOOKS = 60


class Gone(Exception):
    """The process has ended, or another one has its pid."""


@dataclass(slots=True)
class _Known:
    info: ProcessInfo
    fd: int
    looks: int = 0


class Processes:
    """A table of processes, by pid. Not safe for several threads at once."""

    def __init__(self, proc: Path = Path("/proc"), *, pidfds: bool = True) -> None:
        self._proc = str(proc)
        self._pidfds = pidfds and hasattr(os, "pidfd_open")
        self._known: dict[int, _Known] = {}
        self._ended = select.poll()

    def look(self, pids: Collection[int]) -> dict[int, ProcessInfo]:
        """Describe those of ``pids`` that live. What is not asked for any more is forgotten."""
        for pid in self._known.keys() - set(pids):
            self._forget(pid)
        self._drop_ended()
        found = {}
        for pid in pids:
            known = self._known.get(pid) or self._open(pid)
            if known is not None:
                found[pid] = known.info
        return found

    def close(self) -> None:
        """Let go of all processes."""
        for pid in list(self._known):
            self._forget(pid)

    def first_of_containers(self, containers: Collection[Owner]) -> frozenset[int]:
        """The pids of the first processes of these containers: with one of them its container ends."""
        return frozenset(pid for _, pid in self.first_by_container(containers).values())

    def first_by_container(self, containers: Collection[Owner]) -> dict[Owner, tuple[int, int]]:
        """(Start in clock ticks after boot, pid) of the first process of each of these containers.

        A container's first process is its oldest: all others descend from it or were brought in
        later. Whole /proc is read for this, so it is for the rare case that something is ended.
        """
        oldest: dict[Owner, tuple[int, int]] = {}
        for pid in _numbers(self._proc):
            with contextlib.suppress(OSError, ValueError):
                for owner in owners(self._read(pid, "cgroup")):
                    if owner in containers:
                        start = _start(self._read(pid, "stat"))
                        oldest[owner] = min(oldest.get(owner, (start, pid)), (start, pid))
                        break
        return oldest

    def signal(self, process: ProcessInfo, hard: bool, owner: Owner) -> None:
        """End exactly this process: SIGTERM, or SIGKILL where ``hard``.

        It must still be the process that was looked at, and still be in ``owner``: both are checked
        again here. Raises Gone, and PermissionError where we may not.
        """
        fd = self._pidfd(process.pid)
        try:
            if _start_of(self._proc, process.pid) != process.start:
                raise Gone(f"process {process.pid} is another one now")
            if owner not in owners(self._read(process.pid, "cgroup")):
                raise Gone(f"process {process.pid} has left its container")
            number = signal.SIGKILL if hard else signal.SIGTERM
            if fd >= 0:
                signal.pidfd_send_signal(fd, number)
            else:
                os.kill(process.pid, number)
        except (ProcessLookupError, FileNotFoundError):
            raise Gone(f"process {process.pid} has ended") from None
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self, pid: int) -> _Known | None:
        fd = -1
        try:
            # The fd first: all that is read after it is of the process that the fd stands for,
            # if that still lives when the reading is done.
            fd = self._pidfd(pid)
            known = _Known(self._describe(pid), fd)
            if fd >= 0:
                self._ended.register(fd, select.POLLIN)
            self._known[pid] = known
        except (Gone, OSError, ValueError):
            if fd >= 0:
                os.close(fd)
            return None
        return known

    def _pidfd(self, pid: int) -> int:
        if not self._pidfds:
            return -1
        try:
            return os.pidfd_open(pid)
        except ProcessLookupError:
            raise Gone(f"process {pid} has ended") from None
        except OSError as error:
            log.info("processes are told apart by their start times: pidfd_open: %s", error)
            self._pidfds = False
            return -1

    def _describe(self, pid: int) -> ProcessInfo:
        stat = self._read(pid, "stat")
        info = ProcessInfo(
            pid=pid,
            start=_start(stat),
            name=stat.partition("(")[2].rpartition(")")[0],
            own_pid=_own_pid(self._read(pid, "status")) or pid,
            owners=owners(self._read(pid, "cgroup")),
        )
        if _start_of(self._proc, pid) != info.start:
            raise Gone(f"process {pid} was replaced while it was looked at")
        return info

    def _drop_ended(self) -> None:
        ended = {fd for fd, _ in self._ended.poll(0)} if self._known else set()
        for pid, known in list(self._known.items()):
            known.looks += 1
            gone = known.fd in ended or (
                known.fd < 0 and _started(self._proc, pid) != known.info.start
            )
            if gone or known.looks >= _LOOKS:
                self._forget(pid)

    def _forget(self, pid: int) -> None:
        known = self._known.pop(pid)
        if known.fd >= 0:
            self._ended.unregister(known.fd)
            os.close(known.fd)

    def _read(self, pid: int, name: str) -> str:
        with open(f"{self._proc}/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read()


def _numbers(proc: str) -> Iterable[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _start(stat: str) -> int:
    # A program's name may hold anything, also ') ': what counts follows the last one.
    return int(stat.rpartition(")")[2].split()[19])


def _start_of(proc: str, pid: int) -> int:
    with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return _start(file.read())


def _started(proc: str, pid: int) -> int:
    try:
        return _start_of(proc, pid)
    except (OSError, ValueError):
        return -1


def _own_pid(status: str) -> int:
    """Its pid in the innermost pid namespace: the last number of the line NSpid."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0
