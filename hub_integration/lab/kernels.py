"""Which kernel a process belongs to: itself, or the nearest of its parents that is a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of this server. ``title`` is its notebook's path, or its own name."""

    id: str
    title: str
    pid: int


def owner_of(
    pid: int, kernels: Mapping[int, Kernel], parent: Callable[[int], int]
) -> Kernel | None:
    """The kernel that ``pid`` belongs to. ``parent`` of a process that is gone is 0."""
    for _ in range(_DEEPEST):
        if pid in kernels:
            return kernels[pid]
        pid = parent(pid)
        if pid <= 1:
            break
    return None


def parent_of(pid: int) -> int:
    """From /proc; 0 if the process is gone or not to be seen."""
    try:
        status = Path("/proc", str(pid), "stat").read_text()
        # The name, in brackets, may hold anything; after it come the state and the parent.
        return int(status.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def kernels_of(manager: Any, sessions: Iterable[Mapping[str, Any]]) -> dict[int, Kernel]:
    """The running kernels of a jupyter_server by pid.

    A kernel that runs elsewhere (a gateway's, a remote provisioner's) has no pid and is left out.
    """
    titles = {
        session.get("kernel", {}).get("id", ""): str(session.get("path") or session.get("name"))
        for session in sessions
    }
    found: dict[int, Kernel] = {}
    for kernel_id in manager.list_kernel_ids():
        kernel = manager.get_kernel(kernel_id)
        pid = getattr(getattr(kernel, "provisioner", None), "pid", None)
        if isinstance(pid, int) and pid > 0:
            title = titles.get(kernel_id) or kernel.kernel_name
            found[pid] = Kernel(kernel_id, title, pid)
    return found
