"""From an extender's start to its readiness in a large cluster, and what it weighs then.

python -m tests.bench coldstart

A server of its own process answers as the API does: 5,000 nodes with 8 cards and 50,000 pods that hold
slices, each object as large as real ones are, in pages of 500.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from aiohttp import web

from gpushare import placement
from gpushare.cards import Card, NodeCards, encode
from gpushare.names import Names
from gpushare.placement import ContainerPlacement, Placement, Share
from gpushare.request import Role
from tests.bench.results import Figure, publish

NODES, CARDS, PODS = 5000, 8, 50_000
NAMES = Names()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, _Api() as api:
        seconds, memory, peak, waited = measure(Path(folder), api.port)
    size = f"{NODES}x{CARDS}, {PODS} pods"
    publish(
        "coldstart",
        [
            Figure("start to ready", size, seconds, "s", "target 20 s"),
            Figure("of these, waiting for the server", size, waited, "s"),
            Figure("resident memory when ready", size, memory, "MiB", "target 400 MiB"),
            Figure("resident memory at its peak", size, peak, "MiB"),
        ],
    )


def measure(folder: Path, port: int) -> tuple[float, float, float, float]:
    """(s until ready, MiB then, MiB at most, s in which it used no CPU)."""
    kubeconfig = folder / "kubeconfig"
    cluster = {"server": f"http://127.0.0.1:{port}"}
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    verbs, state = (f"127.0.0.1:{_free_port()}" for _ in range(2))
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "extender.app", f"--kubeconfig={kubeconfig}",
         f"--verbs={verbs}", f"--state={state}", "--log-level=WARN"]
    )  # fmt: skip
    try:
        while not _ready(state):
            assert process.poll() is None, "the extender ended"
            assert time.perf_counter() - began < 300
            time.sleep(0.05)
        seconds = time.perf_counter() - began
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        ticks = sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().split()[13:15]))
        busy = ticks / os.sysconf("SC_CLK_TCK")
        memory, peak = (int(fields[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
        return seconds, memory, peak, max(0.0, seconds - busy)
    finally:
        process.terminate()
        process.wait()


def _ready(state: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{state}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# -- the API -------------------------------------------------------------------------------------


class _Api:
    """The server, in a process of its own."""

    def __enter__(self) -> _Api:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.coldstart", "--serve"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.terminate()
        self.process.wait()


def serve() -> None:
    async def run() -> None:
        app = web.Application()
        app.add_routes([web.get("/api/v1/{kind:nodes|pods}", _collection)])
        runner = web.AppRunner(app)
        await runner.setup()
        port = _free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        print(port, flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


async def _collection(request: web.Request) -> web.StreamResponse:
    kind = request.match_info["kind"]
    if request.query.get("watch"):
        answer = web.StreamResponse()
        await answer.prepare(request)
        await asyncio.Event().wait()
    count, make = (NODES, _node) if kind == "nodes" else (PODS, _pod)
    start = int(request.query.get("continue", "0"))
    end = min(count, start + int(request.query.get("limit", count)))
    metadata: dict[str, str] = {"resourceVersion": "900000"}
    if end < count:
        metadata["continue"] = str(end)
    items = ",".join(make(number) for number in range(start, end))
    text = f'{{"kind":"List","metadata":{json.dumps(metadata)},"items":[{items}]}}'
    return web.Response(text=text, content_type="application/json")


def _node_name(number: int) -> str:
    return f"gke-pool-a-{number:05d}"


def _cards(number: int) -> tuple[Card, ...]:
    model, memory = ("Tesla T4", 15360) if number % 2 else ("NVIDIA A10", 23028)
    return tuple(
        Card(f"GPU-{number:08x}-0000-4000-8000-{i:012x}", i, i, model, memory) for i in range(CARDS)
    )


def _node(number: int) -> str:
    its = _cards(number)
    allocatable = {
        "cpu": "96", "memory": "395Gi", "pods": "110",
        NAMES.gpu_mem: str(sum(card.memory // 1024 for card in its)),
        NAMES.gpu_percent: str(100 * CARDS),
    }  # fmt: skip
    # Images and conditions are what makes nodes large.
    images = [
        {"names": [f"registry.example.org/team/image-{i}@sha256:{'0' * 64}"], "sizeBytes": 10**9}
        for i in range(40)
    ]
    return json.dumps(
        {
            "metadata": {
                "name": _node_name(number),
                "uid": f"node-uid-{number}",
                "resourceVersion": str(1000 + number),
                "annotations": {NAMES.cards: encode(NodeCards(its))},
            },
            "status": {
                "allocatable": allocatable,
                "capacity": allocatable,
                "conditions": [{"type": "Ready", "status": "True", "message": "m" * 60}] * 5,
                "images": images,
            },
        }
    )


_UID = "@uid@"


def _pod_template() -> str:
    env = [{"name": f"NAME_{n}", "value": "v" * 40} for n in range(30)]
    limits = {NAMES.gpu_mem: "3", "cpu": "2", "memory": "4Gi"}
    pod: dict[str, Any] = {
        "metadata": {
            "name": f"jupyter-{_UID}",
            "namespace": "jupyter",
            "uid": _UID,
            "resourceVersion": "800000",
            "labels": {f"example.org/label-{i}": "value" for i in range(12)},
            "annotations": {NAMES.placement: "@placement@"},
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "managedFields": [{"manager": "jupyterhub", "fieldsV1": {"f": "x" * 2000}}],
        },
        "spec": {
            "schedulerName": "gpushare-user-scheduler",
            "nodeName": "@node@",
            "containers": [
                {"name": "notebook", "image": "example.org/notebook:1", "env": env,
                 "resources": {"limits": limits, "requests": limits}}
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True",
                            "lastTransitionTime": "2025-01-01T00:00:01Z"}],
            "containerStatuses": [{"name": "notebook", "state": {"running": {}}}],
        },
    }  # fmt: skip
    return json.dumps(pod)


_TEMPLATE = _pod_template()


def _pod(number: int) -> str:
    node = number % NODES
    card = _cards(node)[(number // NODES) % CARDS]
    uid = f"8a7f9c1e-0000-4000-8000-{number:012d}"
    shares = (Share(card.uuid, 3072, 0),)
    placed = Placement(uid, _node_name(node), (ContainerPlacement("notebook", Role.APP, shares),))
    text = json.dumps(placement.encode(placed))[1:-1]
    return (
        _TEMPLATE.replace(_UID, uid)
        .replace("@node@", _node_name(node))
        .replace("@placement@", text)
    )


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
