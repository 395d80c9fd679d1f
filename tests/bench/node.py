"""The node's half on its own: container starts with 110 pods on the node, memory, and CPU when idle.

python -m tests.bench prestart node

The plugin is a process of its own, with its real loops, sockets and library calls; the kubelet and the
API server are this process, and the driver's library is the stand-in with eight cards.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from device_plugin.api import deviceplugin_pb2 as messages
from gpushare.placement import Share
from playground.cards import A10, cards_of, cdi_spec
from playground.nvml import SONAME, library
from playground.simulated_cards import SimulatedCards
from playground.simulated_state import SimulatedState
from tests.bench.results import Figure, publish, spread
from tests.unit.device_plugin.api_server import ApiServer
from tests.unit.device_plugin.fake_kubelet import FakeKubelet, Grant
from tests.unit.device_plugin.making import MEM, NODE, PERCENT, app, container, pod

CARDS, PODS = 8, 110
RESTARTS, BURST = 600, 30
IDLE_SECONDS = 60.0
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
PYTHON = [sys.executable]
_TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A node with eight cards, and the plugin on it as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api = ApiServer()
        self.kubelet = FakeKubelet(folder / "k")
        self.cards = cards_of("bench", A10, tuple(range(0x10, 0x10 + CARDS)))
        self.simulated = SimulatedCards(folder / "nvml" / "state")
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        devices, driver = self.folder / "dev", self.folder / "driver/usr/lib/x86_64-linux-gnu"
        for there in (devices, driver, self.folder / "cdi"):
            there.mkdir(parents=True)
        for name in ("nvidiactl", *(f"nvidia{n}" for n in range(CARDS))):
            (devices / name).touch()
        (driver / SONAME).symlink_to(library(lambda _: None))
        state = SimulatedState(devices=str(devices), cards=self.cards)
        self.simulated.write(state)
        (self.folder / "cdi" / "nvidia.json").write_text(json.dumps(cdi_spec(state)))
        await self.api.start()
        info = {"containerRuntimeVersion": "containerd://2.2.1", "kubeletVersion": "v1.36.3"}
        node = {"metadata": {"name": NODE, "uid": "node"}, "status": {"nodeInfo": info}}
        await self.api.put(f"/api/v1/nodes/{NODE}", node)
        await self.kubelet.start()
        self.process = self._run()
        await self._until(self._offered)

    def _run(self) -> subprocess.Popen[bytes]:
        state = str(self.simulated.path)
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [*PYTHON, "-m", "device_plugin.app", f"--config={self._settings()}"],
                env={**os.environ, "NODE_NAME": NODE, "GPUSHARE_NVML_STATE": state},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def _settings(self) -> Path:
        kubeconfig = {
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [
                {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{self.api.port}"}}
            ],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
        }
        (self.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        plugin = {
            "driver_root": str(self.folder / "driver"),
            "cdi_dirs": [str(self.folder / "cdi")],
            "cdi_spec_dir": str(self.folder / "cdi"),
            "kubelet_dir": str(self.kubelet.folder),
            "podresources_socket": str(self.kubelet.pod_resources),
            "state_dir": str(self.folder / "run"),
            "status_address": "127.0.0.1:0",
            "kubeconfig": str(self.folder / "kubeconfig"),
            "log_lines": "json",
        }
        settings = {
            "DevicePlugin": plugin,
            "Enforcement": {"state_dir": str(self.folder / "run")},
        }
        path = self.folder / "config.json"
        path.write_text(json.dumps(settings))
        return path

    def _offered(self) -> bool:
        plugins = self.kubelet.plugins
        return set(plugins) == {MEM, PERCENT} and all(
            p.lists and "Healthy" in p.lists[-1].values() for p in plugins.values()
        )

    async def _until(self, holds: object, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():  # type: ignore[operator]
            if time.monotonic() > deadline:
                raise TimeoutError((self.folder / "log").read_text()[-2000:])
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            await asyncio.to_thread(self.process.wait, 20)
        await self.kubelet.stop()
        await self.api.stop()

    async def fill(self) -> None:
        """110 pods with a GiB each, granted and known, not yet started."""
        grants = []
        for n in range(PODS):
            share = Share(self.cards[n % CARDS].uuid, 1024, 0)
            name, uid = f"user-{n}", f"00000000-0000-4000-8000-{n:012d}"
            one = pod(container("main", 1), placed=[app("main", share)], name=name, uid=uid)
            await self.api.put(f"/api/v1/namespaces/jupyter/pods/{name}", one)
            grants.append(Grant("jupyter", name, uid, "main", {MEM: [f"m{n}"]}))
        self.kubelet.grant(*grants)

    async def start_container(self, n: int) -> float:
        """Seconds of the kubelet's call before the container of pod ``n`` starts."""
        request = messages.PreStartContainerRequest(devices_ids=[f"m{n}"])
        began = time.perf_counter()
        await self.kubelet.plugins[MEM].stub.PreStartContainer(request, timeout=30)
        return time.perf_counter() - began

    def run_programs(self, pids: list[int]) -> None:
        """These processes hold memory of the cards."""
        with self.simulated.edit() as edit:
            for n, pid in enumerate(pids):
                edit.add_process(self.cards[n % CARDS].uuid, pid, 600, sm=3)

    def cpu(self) -> float:
        """Seconds of CPU that the plugin has used."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident(self) -> float:
        """MiB."""
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise LookupError("VmRSS")


@asynccontextmanager
async def machine() -> AsyncIterator[Machine]:
    """The node, up. Its folders are on a tmpfs where there is one, as in earnest."""
    with tempfile.TemporaryDirectory(prefix="gs", dir=MEMORY) as name:
        one = Machine(Path(name))
        try:
            await one.start()
            yield one
        finally:
            await one.stop()


async def _prestart() -> list[Figure]:
    async with machine() as node:
        await node.fill()
        first = [await node.start_container(n) for n in range(PODS)]
        some = random.Random(5)
        again = [await node.start_container(some.randrange(PODS)) for _ in range(RESTARTS)]
        began = time.perf_counter()
        burst = await asyncio.gather(*(node.start_container(n) for n in range(BURST)))
        whole = time.perf_counter() - began
        size = f"{PODS} pods"
        return [
            *_in_ms("PreStartContainer, first starts", size, first),
            *_in_ms("PreStartContainer, restarts", size, again),
            *_in_ms(f"PreStartContainer, {BURST} at once", size, list(burst)),
            Figure(f"all {BURST} at once", size, whole * 1000, "ms"),
        ]


def _in_ms(name: str, size: str, seconds: list[float]) -> list[Figure]:
    figures = spread(name, size, [s * 1000 for s in seconds], "ms")
    # What a real card's driver adds is not in it: no call to the driver is made on this way.
    return [
        Figure(f.name, f.size, f.value, f.unit, "20 ms at most" if "p99" in f.name else "")
        for f in figures
    ]


async def _node() -> list[Figure]:
    async with machine() as node:
        await asyncio.sleep(5)
        figures = [Figure("resident memory", "no pod", node.resident(), "MiB")]
        figures.append(Figure("CPU, idle", "no pod", await _share(node), "%", "1 % at most"))
        await node.fill()
        for n in range(PODS):
            await node.start_container(n)
        programs = sleepers()
        try:
            node.run_programs([p.pid for p in programs])
            await asyncio.sleep(5)
            size = f"{PODS} pods"
            figures.append(Figure("CPU, nothing starts", size, await _share(node), "%", "1 %"))
            figures.append(
                Figure("resident memory", size, node.resident(), "MiB", "80 MiB at most")
            )
        finally:
            for program in programs:
                program.kill()
                program.wait()
    return figures


def sleepers() -> list[subprocess.Popen[bytes]]:
    """One program for each pod."""
    command = [sys.executable, "-ISc", "import time; time.sleep(900)"]
    return [subprocess.Popen(command) for _ in range(PODS)]


async def _share(node: Machine) -> float:
    """Per cent of a core over a minute."""
    began, cpu = time.monotonic(), node.cpu()
    await asyncio.sleep(IDLE_SECONDS)
    return 100 * (node.cpu() - cpu) / (time.monotonic() - began)


def prestart() -> None:
    publish("prestart", asyncio.run(_prestart()))


def main() -> None:
    figures = asyncio.run(_node())
    command = [sys.executable, "-m", "tests.unit.enforcement.cost", str(PODS)]
    cost = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    size = f"{PODS} pods"
    figures += [
        Figure("a look at the cards, CPU", size, cost["cpu_ms_per_look"], "ms"),
        Figure("a look with all boards written, CPU", size, cost["cpu_ms_of_a_full_look"], "ms"),
    ]
    publish("node", figures)
