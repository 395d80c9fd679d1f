"""What watching costs: run as a program, prints JSON. Eight cards and many pods on the stand-in
library, real processes, the real loop of looks; CPU time of this process, library included."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from device_plugin.enforcement.enforcer import Enforcer
from device_plugin.enforcement.looker import Looker
from device_plugin.enforcement.notices import NoticeBoards
from device_plugin.enforcement.outbox import Outbox
from device_plugin.enforcement.processes import Processes
from device_plugin.enforcement.settings import Enforcement
from device_plugin.enforcement.teller import Teller
from device_plugin.usage.book import UsageBook
from device_plugin.usage.sampler import Sampler
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.units import GIB
from playground.cards import A10, cards_of
from playground.nvml import library
from playground.simulated_cards import SimulatedCards
from playground.simulated_state import SimulatedProcess, SimulatedState

from .making import container_id, pod_slice, uid

CARDS, LOOKS = 8, 60


def main(pods: int) -> None:
    # As in earnest: what the plugin writes is on a tmpfs.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        folder = Path(name)
        sleeper = [sys.executable, "-ISc", "import time; time.sleep(600)"]
        processes = [subprocess.Popen(sleeper) for _ in range(pods)]
        try:
            print(json.dumps(asyncio.run(measure(folder, [p.pid for p in processes]))))
        finally:
            for process in processes:
                process.kill()


async def measure(folder: Path, pids: list[int]) -> dict[str, float]:
    cards = cards_of("cost", A10, tuple(range(0x10, 0x10 + CARDS)))
    (folder / "dev").mkdir()
    for device in ("nvidiactl", *(f"nvidia{n}" for n in range(CARDS))):
        (folder / "dev" / device).touch()
    held = tuple(
        # start=0: whether they live is the node's question here, not the library's.
        SimulatedProcess(cards[n % CARDS].uuid, pid, 1000, "compute", start=0, sm=3)
        for n, pid in enumerate(pids)
    )
    state = SimulatedCards(folder / "nvml" / "state")
    state.write(SimulatedState(devices=str(folder / "dev"), cards=cards, processes=held))
    os.environ["GPUSHARE_NVML_STATE"] = str(state.path)
    ctypes.CDLL(str(library(lambda _: None)))
    slices = {}
    for n, pid in enumerate(pids, 1):
        slices[uid(n)] = pod_slice(n, 1500, card=cards[(n - 1) % CARDS].uuid)
        _into_pod(folder / "proc" / str(pid), pid, n)
    boards = NoticeBoards(folder / "boards")
    for pod in slices:
        boards.edits(pod)
    names = Names()
    shown = {c.uuid: Card(c.uuid, c.minor, c.minor, c.name, c.memory) for c in cards}
    enforcer = Enforcer(
        Enforcement(),
        names,
        GIB,
        lambda: slices,
        lambda: shown,
        Looker(Sampler(), Processes(folder / "proc"), 10.0),
        Teller(Outbox(None, "cost", names), boards),  # type: ignore[arg-type]
        UsageBook(),
        boards,
    )
    await enforcer.look()
    assert len(enforcer.cases) == 0
    assert sum(len(s.account.pods) for s in enforcer.states.values()) == len(pids)
    began, wall = time.process_time(), time.perf_counter()
    for _ in range(LOOKS):
        await enforcer.look()
    cpu, wall = time.process_time() - began, time.perf_counter() - wall
    # What happens every few seconds only (activity, boards) falls outside of so short a run: apart.
    extra = time.process_time()
    for _ in range(10):
        enforcer._last_busy = float("-inf")
        boards._written_at.clear()
        boards._written.clear()
        await enforcer.look()
    full = (time.process_time() - extra) / 10
    return {
        "pods": len(pids),
        "cards": CARDS,
        "cpu_ms_per_look": round(1000 * cpu / LOOKS, 3),
        "cpu_ms_of_a_full_look": round(1000 * full, 3),
        "wall_ms_per_look": round(1000 * wall / LOOKS, 3),
        "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _into_pod(there: Path, pid: int, pod: int) -> None:
    there.mkdir(parents=True)
    for file in ("stat", "status"):
        (there / file).write_text(Path(f"/proc/{pid}/{file}").read_text())
    (there / "cgroup").write_text(f"0::/kubepods/pod{uid(pod)}/{container_id(pod)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
