"""The room of one node on this machine: its network and mount namespaces, and what is mounted there.

The host keeps its own /run, /var/lib/kubelet, /var/lib/cni and /var/log: a node has others there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from playground.commands import run
from playground.folders import Folders
from playground.mounts import is_pinned, make_pin_folder, pin_mount_namespace
from playground.nodes import Node

Bind = tuple[Path, Path]

# Folders at which programs write whatever they are told, so each node has its own ones there.
PRIVATE = ("/var/lib/kubelet", "/var/lib/cni", "/var/log")
CARDS = "cards"  # below a node's folder


def network_pin(folders: Folders, node: str) -> Path:
    return folders.namespaces / f"{node}.network"


def mount_pin(folders: Folders, node: str) -> Path:
    return folders.namespaces / f"{node}.mount"


def enter(folders: Folders, node: str) -> tuple[str, ...]:
    """What to put before a command so that it runs in the node.

    Not `ip netns exec`: that mounts /sys anew, and the control groups are gone.
    """
    pins = (f"--net={network_pin(folders, node)}", f"--mount={mount_pin(folders, node)}")
    return ("nsenter", *pins, "--")


def make_mount_space(folders: Folders, node: Node, say: Callable[[str], None]) -> bool:
    """Make the node's mount namespace, with its cards; False if it exists already."""
    pin = mount_pin(folders, node.name)
    if is_pinned(pin):
        return False
    root = folders.node(node.name)
    root.mkdir(parents=True, exist_ok=True)
    binds = [*_private_binds(root), *_card_binds(node, root / CARDS, say)]
    make_pin_folder(folders.namespaces)
    pin_mount_namespace(pin)
    run(["nsenter", f"--mount={pin}", "--", "/bin/sh", "-c", mount_script(folders, binds)])
    return True


def mount_script(folders: Folders, binds: Sequence[Bind]) -> str:
    """The shell commands that furnish a new mount namespace."""
    lines = [
        "set -e",
        # Keep no other node's namespaces open from here.
        f"umount --lazy --recursive {shlex.quote(str(folders.namespaces))}",
        "mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run",
        "[ -L /var/run ] || mount --bind /run /var/run",
    ]
    for source, target in binds:
        lines.append(f"mkdir -p {shlex.quote(str(target))}")
        lines.append(f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))}")
    # Containers may share mounts with their node (mountPropagation). Last, so that no two of these
    # mounts are peers, and what is mounted in one does not appear in the other.
    return "\n".join([*lines, "mount --make-rshared /"])


def _private_binds(root: Path) -> list[Bind]:
    binds = [(root / Path(target).name, Path(target)) for target in PRIVATE]
    for source, _ in binds:
        source.mkdir(exist_ok=True)
    return binds


def _card_binds(node: Node, root: Path, say: Callable[[str], None]) -> list[Bind]:
    from playground import cards  # it compiles a library: only where there is a real node

    return list(cards.prepare_node(node.name, root, say)) if node.name in cards.NODES else []
