"""What a playground could leave behind on the machine, as values that can be compared."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from playground import cgroups
from playground.folders import state_home
from playground.host import KUBELET_SETTINGS, RAISED
from playground.mounts import mount_points
from playground.node_space import PRIVATE


@dataclass(frozen=True)
class Machine:
    """The machine as a playground called ``name`` may have changed it."""

    interfaces: frozenset[str]
    routes: frozenset[str]
    firewall: str
    mounts: tuple[Path, ...]
    groups: frozenset[Path]
    processes: frozenset[str]
    folders: tuple[tuple[str, tuple[str, ...] | None], ...]
    settings: tuple[tuple[str, str], ...]
    state: tuple[str, ...] | None

    @classmethod
    def seen(cls, name: str) -> Machine:
        """Only what belongs to no other playground, which may go on beside."""
        return cls(
            interfaces=frozenset(link["ifname"] for link in _ip("link")),
            routes=frozenset(f"{route['dst']} {route.get('gateway')}" for route in _ip("route")),
            firewall=_firewall(),
            mounts=tuple(mount_points()),
            groups=frozenset(
                path
                for hierarchy in cgroups.hierarchies()
                for path in hierarchy.mount.glob("gpushare-playground-*")
            ),
            processes=_processes(state_home() / name),
            folders=tuple((folder, _names(Path(folder))) for folder in PRIVATE),
            settings=tuple(
                (n, Path("/proc/sys", n).read_text()) for n in (*KUBELET_SETTINGS, *RAISED)
            ),
            state=_names(state_home()),
        )


def _ip(what: str) -> list[dict[str, str]]:
    shown = subprocess.run(["ip", "-json", what], capture_output=True, text=True, check=True)
    listed: list[dict[str, str]] = json.loads(shown.stdout)
    return listed


def _firewall() -> str:
    rules = subprocess.run(["iptables", "-S"], capture_output=True, text=True, check=True).stdout
    nat = ["iptables", "-t", "nat", "-S"]
    return rules + subprocess.run(nat, capture_output=True, text=True, check=True).stdout


def _names(folder: Path) -> tuple[str, ...] | None:
    return tuple(sorted(os.listdir(folder))) if folder.exists() else None


def _processes(state: Path) -> frozenset[str]:
    """Processes that name a file of the playground's state; ended ones have no command line."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            if f"{state}/" in line:
                found.add(line)
    return frozenset(found)
