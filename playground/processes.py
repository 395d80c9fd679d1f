"""The cluster's processes: started in the background, found again by a later command, ended.

A process is known by its number and the time at which it started (clock ticks since boot), so that
a number which another process got meanwhile is never taken for ours, and never killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playground import cgroups
from playground.endings import await_end
from playground.readiness import Check

_POLL = 0.1  # seconds between two tries of a readiness check
_TERM_PATIENCE = 5.0  # seconds that a process has to end by itself
_TAIL = 12


class ComponentFailed(Exception):
    """A component ended, or did not get ready in time; the text has the end of its log."""


@dataclass(frozen=True, slots=True)
class Component:
    """One process of the cluster, as data.

    ``enter`` goes before the command: how to get into the node's namespaces. ``group`` is the
    control group that it runs in, or None for the one of whoever starts it.
    """

    name: str
    command: tuple[str, ...]
    ready: Check
    enter: tuple[str, ...] = ()
    group: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 60  # seconds until it must be ready

    def command_line(self) -> list[str]:
        """What is started: join the control group, enter the namespaces, become the component."""
        if self.group is None:
            return [*self.enter, *self.command]
        join = "".join(f"echo 0 > '{f}/cgroup.procs'; " for f in cgroups.folders(self.group))
        shell = ("/bin/sh", "-c", f'set -e; {join}exec "$@"', "sh")
        return [*shell, *self.enter, *self.command]


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return parse_start_time(text)


def parse_start_time(stat: str) -> int | None:
    """Read /proc/PID/stat; None for a process that has ended and only waits to be collected."""
    # The program's name is in brackets and may itself have brackets and spaces.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the file of a started component says."""

    pid: int
    started: int
    boot: str
    command: tuple[str, ...]

    def alive(self, boot: str) -> bool:
        return self.boot == boot and start_time(self.pid) == self.started


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Processes:
    """The processes recorded in one folder, with their logs in another."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.logs = logs

    def names(self) -> list[str]:
        return sorted(f.stem for f in self.folder.glob("*.json"))

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def tail(self, name: str, lines: int = _TAIL) -> list[str]:
        """The last lines of a component's log."""
        try:
            with self.log(name).open("rb") as file:
                file.seek(max(0, self.log(name).stat().st_size - 64 * 1024))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def recorded(self, name: str) -> Recorded | None:
        try:
            data: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
            return Recorded(data["pid"], data["started"], data["boot"], tuple(data["command"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def pid(self, name: str) -> int | None:
        """The number of the running process, or None."""
        recorded = self.recorded(name)
        return recorded.pid if recorded and recorded.alive(boot_id()) else None

    def seconds(self, name: str) -> float | None:
        """For how long the component has been running."""
        recorded = self.recorded(name)
        if recorded is None:
            return None
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - recorded.started / os.sysconf("SC_CLK_TCK")

    def start(self, component: Component) -> int:
        """Start ``component``, without waiting until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        # Nothing of the caller's environment: a proxy set there, say, would come between components.
        environment = {"PATH": os.defpath + ":/usr/local/sbin:/usr/sbin:/sbin", "HOME": "/"}
        with self.log(component.name).open("ab") as log:
            process = subprocess.Popen(
                component.command_line(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env={**environment, **component.environment},
            )
        process.returncode = 0  # it outlives this object on purpose: no warning about that
        self._record(component, process.pid)
        return process.pid

    def _record(self, component: Component, pid: int) -> None:
        record = {
            "pid": pid,
            "started": start_time(pid) or 0,
            "boot": boot_id(),
            "command": component.command,
        }
        file = self.folder / f"{component.name}.json"
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(record))
        temporary.replace(file)

    def await_ready(self, component: Component) -> None:
        """Wait until ``component`` is ready.

        Raises ComponentFailed as soon as it has ended, or when its patience is over.
        """
        deadline = time.monotonic() + component.patience
        pid = self.pid(component.name)
        with contextlib.ExitStack() as stack:
            poll = select.poll()
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(pid)
                    stack.callback(os.close, descriptor)
                    poll.register(descriptor, select.POLLIN)
            while pid is not None:
                failure = component.ready.failure(pid)
                if failure is None:
                    return
                if time.monotonic() > deadline:
                    text = f"is not ready after {component.patience:g} s: {failure}"
                    raise ComponentFailed(self._report(component.name, text))
                if poll.poll(_POLL * 1000):  # the process has ended
                    break
        raise ComponentFailed(self._report(component.name, "has ended"))

    def _report(self, name: str, what: str) -> str:
        lines = "\n".join(f"  {line}" for line in self.tail(name))
        return f"{name} {what}\n{lines}\nThe whole log: {self.log(name)}"

    def stop(self, name: str, hard: bool = False) -> bool:
        """End a component (``hard``: by SIGKILL at once); False if it was not running."""
        pid = self.pid(name)
        if pid is None:
            return False
        for number in (signal.SIGKILL,) if hard else (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if await_end({pid}, _TERM_PATIENCE):
                break
        return True

    def kill_all(self) -> None:
        """End every recorded component at once, and wait until they have ended."""
        pids = {pid for name in self.names() if (pid := self.pid(name)) is not None}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await_end(pids, _TERM_PATIENCE)
