"""Programs in pods that use a card: real processes in real containers, whose memory on the card is
what the test says it is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes.stream import stream

from device_plugin.enforcement.cgroup import owners
from playground.cards import node_cards
from playground.cluster import Cluster
from playground.simulated_cards import SimulatedCards
from tests.cluster.binder import NODE
from tests.cluster.pods import IMAGE, NAMES, Pods

# A notebook server with kernels: pid 1, and ``count`` children that wait to be ended.
_KERNELS = """
import signal, subprocess, sys
kernel = [sys.executable, "-c", "import signal; signal.pause()"]
kernels = [subprocess.Popen(kernel) for _ in range(int(sys.argv[1]))]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
while True:
    signal.pause()
"""


def notebook(name: str, mem: int, kernels: int = 0) -> dict[str, Any]:
    """A container with a slice and so many kernels."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", _KERNELS, str(kernels)],
        "resources": {"limits": {NAMES.gpu_mem: str(mem)} if mem else {}},
    }


class Programs:
    """The processes of pods on the node, and what they hold of its cards."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self.cards: SimulatedCards = node_cards(Cluster().cards_root(NODE))

    def pids(self, pod: str, at_least: int = 1, timeout: float = 60) -> list[int]:
        """The pids of the pod's processes as the node sees them, oldest first."""
        uid = self._pods.read(pod).metadata.uid
        deadline = time.monotonic() + timeout
        while True:
            found = [pid for pid in _all_pids() if _in_container(pid, uid)]
            if len(found) >= at_least:
                return sorted(found, key=_start)
            assert time.monotonic() < deadline, f"{pod}: {len(found)} processes, not {at_least}"
            time.sleep(0.2)

    def hold(self, pid: int, mib: int, card: int = 0, sm: int = 0) -> None:
        """The process holds so much of the card now."""
        with self.cards.edit() as edit:
            edit.add_process(card, pid, mib, sm=sm)

    def hold_all(self, pids: Iterable[int], mib: int, card: int = 0) -> None:
        """All of them at once: no look at the card falls in between."""
        with self.cards.edit() as edit:
            for pid in pids:
                edit.add_process(card, pid, mib)

    def run(self, pod: str, command: list[str]) -> str:
        """Run a command in the pod, as `kubectl exec` does; its output."""
        return str(
            stream(
                self._pods.core.connect_get_namespaced_pod_exec,
                pod,
                self._pods.namespace,
                command=command,
                stderr=True,
                stdin=False,
                stdout=True,
                tty=False,
            )
        )

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """At the end nobody holds anything."""
        try:
            yield
        finally:
            with self.cards.edit() as edit:
                for process in edit.state.processes:
                    edit.remove_process(process.pid)
                edit.clear_faults()


def alive(pid: int) -> bool:
    """Whether the process runs; one that nobody waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid: int, timeout: float = 90) -> float:
    """The seconds until the process ended."""
    began = time.monotonic()
    while alive(pid):
        assert time.monotonic() - began < timeout, f"process {pid} is still there"
        time.sleep(0.05)
    return time.monotonic() - began


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _in_container(pid: int, uid: str) -> bool:
    try:
        found = owners(Path(f"/proc/{pid}/cgroup").read_text())
        program = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return False
    return any(o.pod_uid == uid and o.container_id for o in found) and program != "pause"


def _start(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 1 << 62
