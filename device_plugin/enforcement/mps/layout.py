"""Where MPS's pipes, logs and shared memory of each card are, and how a container sees them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

# MPS's own default: a client whose environment was emptied still finds it.
PIPES_IN_CONTAINER = "/tmp/nvidia-mps"  # noqa: S108
PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE = "CUDA_MPS_LOG_DIRECTORY"
MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PERCENT_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@dataclass(frozen=True, slots=True)
class CardFolders:
    """The folders of one card's daemon. ``shm`` is what it and its clients have as /dev/shm."""

    pipes: Path
    logs: Path
    shm: Path

    @property
    def pid_file(self) -> Path:
        """Written by the daemon."""
        return self.pipes / "nvidia-cuda-mps-control.pid"

    @property
    def mode_file(self) -> Path:
        """Ours: the card's compute mode before the daemon was started."""
        return self.logs / "compute-mode-before"


def folders(root: Path, shm_root: Path, card: str) -> CardFolders:
    """The folders of ``card``; other cards have others."""
    return CardFolders(root / card / "pipe", root / card / "log", shm_root / card)


def daemon_environment(where: CardFolders, card: str) -> dict[str, str]:
    """The environment of a card's daemon. It sees one card, so that card is device 0."""
    return {
        PIPE_VARIABLE: str(where.pipes),
        LOG_VARIABLE: str(where.logs),
        "CUDA_VISIBLE_DEVICES": card,
    }


def client_edits(where: CardFolders, mib: int, percent: int) -> dict[str, Any]:
    """The CDI edits that make a container a client of the daemon, with its own limits.

    ``percent`` 0: as much compute as there is. A process can set the variables otherwise before it
    starts CUDA; what the server sets it cannot pass.
    """
    env = [
        f"{PIPE_VARIABLE}={PIPES_IN_CONTAINER}",
        # The client counts devices as its daemon does.
        f"{MEMORY_VARIABLE}=0={mib}M",
    ]
    if percent:
        env.append(f"{PERCENT_VARIABLE}={percent}")
    bind = ["rw", "nosuid", "nodev", "noexec", "bind"]
    mounts = [
        {"hostPath": str(where.pipes), "containerPath": PIPES_IN_CONTAINER, "options": bind},
        {"hostPath": str(where.shm), "containerPath": "/dev/shm", "options": bind},  # noqa: S108
    ]
    return {"env": env, "mounts": mounts}
