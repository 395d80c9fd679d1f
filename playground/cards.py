"""The simulated cards of the playground's nodes: which node has which, and what lies on its disk.

A node gets what NVIDIA's driver container and `nvidia-ctk cdi generate` leave on a real one:

    ROOT/driver   the driver root (/run/nvidia/driver on the node): the management library with its
                  state beside it, and device nodes, which here are /dev/null under other names
    ROOT/cdi      the node's CDI folder (/run/cdi) with NVIDIA's spec in it
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from playground.nvml import SONAME, library
from playground.simulated_cards import SimulatedCards
from playground.simulated_state import SimulatedCard, SimulatedState

DRIVER_ROOT = Path("/run/nvidia/driver")  # as a node and its pods see it
CDI_FOLDER = Path("/run/cdi")
CDI_SPEC = "nvidia.yaml"
LIBRARY_FOLDER = Path("usr/lib", f"{platform.machine()}-linux-gnu")
STATE_FOLDER = "gpushare-nvml"
_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_UUIDS = uuid.uuid5(uuid.NAMESPACE_DNS, "cards.playground.gpushare")

T4 = SimulatedCard(
    uuid="",
    minor=0,
    name="Tesla T4",
    memory=15360,
    reserved=399,
    pci_id=0x1EB810DE,
    pci_subsystem=0x12A210DE,
    cc_major=7,
    cc_minor=5,
    power_mw=14000,
    power_limit_mw=70000,
    retirement=True,
)
A10 = SimulatedCard(
    uuid="",
    minor=0,
    name="NVIDIA A10",
    memory=23028,
    reserved=495,
    pci_id=0x223610DE,
    pci_subsystem=0x148210DE,
    cc_major=8,
    cc_minor=6,
    power_mw=21000,
    power_limit_mw=150000,
    remapping=True,
)


def cards_of(node: str, model: SimulatedCard, buses: Sequence[int]) -> tuple[SimulatedCard, ...]:
    """One card of ``model`` per PCI bus number; uuids depend on the node's name and place alone."""
    half = (len(buses) + 1) // 2
    return tuple(
        replace(
            model,
            minor=minor,
            uuid=f"GPU-{uuid.uuid5(_UUIDS, f'{node}/{minor}')}",
            serial=f"{1320000000000 + uuid.uuid5(_UUIDS, node).int % 10**9 + minor}",
            pci_bus=bus,
            numa=minor // half,
        )
        for minor, bus in enumerate(buses)
    )


NODES: Mapping[str, tuple[SimulatedCard, ...]] = {
    "t4-1": cards_of("t4-1", T4, (0x3B, 0xD8)),
    "a10-1": cards_of("a10-1", A10, (0x17, 0x31, 0xB1, 0xCA)),
}


def prepare_node(
    node: str,
    root: Path,
    say: Callable[[str], None] = print,
    cards: Sequence[SimulatedCard] | None = None,
) -> list[tuple[Path, Path]]:
    """Lay out the node's cards under ``root``, fresh as after a reboot. Needs root.

    Returns the bind mounts (folder here, folder on the node) that the node's mount namespace needs
    before its container runtime starts. ``cards`` replaces the node's entry in NODES.
    """
    if cards is None:
        if node not in NODES:
            raise KeyError(f"no cards for node {node!r}: pass cards= or add it to NODES")
        cards = NODES[node]
    state = SimulatedState(cards=tuple(cards), pidns=os.stat("/proc/self/ns/pid").st_ino)
    _install_library(root / "driver", state.driver, library(say))
    _make_devices(root / "driver" / "dev", state.cards)
    for leftover in _state_path(root).parent.glob("compute-mode.*"):
        leftover.unlink()
    node_cards(root).write(state)
    cdi = root / "cdi"
    shutil.rmtree(cdi, ignore_errors=True)
    cdi.mkdir(parents=True)
    (cdi / CDI_SPEC).write_text(yaml.safe_dump(cdi_spec(state), sort_keys=False))
    return [(root / "driver", DRIVER_ROOT), (cdi, CDI_FOLDER)]


def node_cards(root: Path) -> SimulatedCards:
    """The cards of the node prepared under ``root``, to be changed while it runs."""
    return SimulatedCards(_state_path(root))


def _state_path(root: Path) -> Path:
    return root / "driver" / LIBRARY_FOLDER / STATE_FOLDER / "state"


def _install_library(driver: Path, version: str, built: Path) -> None:
    folder = driver / LIBRARY_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    real = folder / _versioned(version)
    if not real.exists() or real.read_bytes() != built.read_bytes():
        # Never written in place: running processes have the old file mapped.
        fresh = real.with_suffix(".new")
        shutil.copyfile(built, fresh)
        fresh.chmod(0o755)
        fresh.replace(real)
    link = folder / SONAME
    link.unlink(missing_ok=True)
    link.symlink_to(real.name)


def _versioned(version: str) -> str:
    return SONAME.removesuffix(".1") + "." + version


def _make_devices(dev: Path, cards: Sequence[SimulatedCard]) -> None:
    shutil.rmtree(dev, ignore_errors=True)
    dev.mkdir(parents=True)
    for name in (*_CONTROL_NODES, *(f"nvidia{card.minor}" for card in cards)):
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
        (dev / name).chmod(0o666)  # whatever the umask


def cdi_spec(state: SimulatedState, driver_root: Path = DRIVER_ROOT) -> dict[str, Any]:
    """The spec that `nvidia-ctk cdi generate` writes for a driver in a container.

    Devices are named by index, by uuid, and "all" for all of them, as with its default naming.
    What it has and this lacks are hooks: they run a program of NVIDIA's that refreshes the
    container's linker cache, which a library mounted under its final name does not need.
    """

    def node(name: str) -> dict[str, str]:
        return {"path": f"/dev/{name}", "hostPath": str(driver_root / "dev" / name)}

    def device(name: str, cards: Sequence[SimulatedCard]) -> dict[str, Any]:
        nodes = [node(f"nvidia{card.minor}") for card in cards]
        return {"name": name, "containerEdits": {"deviceNodes": nodes}}

    def mount(source: str, target: str) -> dict[str, Any]:
        return {
            "hostPath": str(driver_root / LIBRARY_FOLDER / source),
            "containerPath": str("/" / LIBRARY_FOLDER / target),
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }

    ordered = sorted(state.cards, key=lambda c: (c.pci_domain, c.pci_bus, c.pci_device))
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            *(device(str(index), [card]) for index, card in enumerate(ordered)),
            *(device(card.uuid, [card]) for card in ordered),
            device("all", ordered),
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [node(name) for name in _CONTROL_NODES],
            "mounts": [
                mount(_versioned(state.driver), SONAME),
                mount(STATE_FOLDER, STATE_FOLDER),
            ],
        },
    }
