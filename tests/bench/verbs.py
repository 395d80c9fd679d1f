"""How long the scheduler's verbs take, through HTTP on loopback, by the number of nodes named.

python -m tests.bench verbs

``python -m tests.bench.verbs --plot FILE`` draws cost against the number of nodes as well.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from extender.fitting import Rules
from gpushare.cards import Card, NodeCards
from gpushare.names import Names
from gpushare.placement import Placement
from gpushare.request import Policy
from gpushare.units import GIB
from tests.bench.results import Figure, publish, spread
from tests.bench.verbs_plot import draw

NODES, CARDS, PODS = 5000, int(os.environ.get("BENCH_CARDS", "4")), 8
TARGET_MS = {1: 0.3, 10: 0.3, 100: 0.4, 1000: 0.8, 5000: 2.5}
SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
NAMES = Names()


def main() -> None:
    figures: list[Figure] = []
    lines: dict[str, dict[int, float]] = {"filter": {}, "prioritize": {}}
    with Server() as server:
        for verb in ("filter", "prioritize"):
            for size, target in TARGET_MS.items():
                times = server.time(verb, request(size))
                wanted = f"target {target} ms" if verb == "filter" else ""
                p50, p99 = spread(verb, f"{size} nodes", times, "ms")
                figures += [Figure(p50.name, p50.size, p50.value, p50.unit, wanted), p99]
                lines[verb][size] = p50.value
        full = request(5000, mem=22)
        figures += spread("filter, nobody fits", "5000 nodes", server.time("filter", full), "ms")
        pair = request(500, mem=3, containers=2)
        figures += spread("filter, two containers", "500 nodes", server.time("filter", pair), "ms")
        figures.append(Figure("resident memory", f"{NODES} nodes", server.memory(), "MiB"))
    publish("verbs", figures)
    if "--plot" in sys.argv:
        Path(sys.argv[sys.argv.index("--plot") + 1]).write_text(draw(lines | {"target": TARGET_MS}))


def request(nodes: int, mem: int = 3, containers: int = 1) -> bytes:
    """What kube-scheduler sends: a whole pod, as JupyterHub makes them, and names."""
    limits = {NAMES.gpu_mem: str(mem), "cpu": "2", "memory": "4Gi"}
    pod = {
        "metadata": {
            "name": "jupyter-alice",
            "namespace": "jupyter",
            "uid": "8a7f9c1e-0000-4000-8000-000000000000",
            "labels": {f"example.org/label-{i}": "value" for i in range(12)},
            "annotations": {"hub.jupyter.org/username": "alice"},
            "managedFields": [{"manager": "jupyterhub", "fieldsV1": {"f": "x" * 2000}}],
        },
        "spec": {
            "containers": [
                {
                    "name": f"notebook-{i}",
                    "image": "example.org/notebook:1",
                    "env": [{"name": f"NAME_{n}", "value": "v" * 40} for n in range(30)],
                    "resources": {"limits": limits, "requests": limits},
                }
                for i in range(containers)
            ]
        },
        "status": {"phase": "Pending"},
    }
    step = NODES // nodes
    names = [node_name(i * step) for i in range(nodes)]
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


def node_name(number: int) -> str:
    return f"gke-pool-a-{number:05d}"


class Server:
    """An extender that knows 5,000 nodes, in a process of its own."""

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.verbs", "--serve"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    def __exit__(self, *_error: object) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait()

    def time(self, verb: str, body: bytes) -> list[float]:
        """Milliseconds of each call, one after the other on one connection, as the scheduler does."""
        head = (
            f"POST /scheduler/{verb} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        message = head.encode() + body
        for _ in range(10):
            self._call(message)
        times = []
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            began = time.perf_counter()
            self._call(message)
            times.append(1000 * (time.perf_counter() - began))
        return times

    def _call(self, message: bytes) -> bytes:
        self.socket.sendall(message)
        data = self.socket.recv(1 << 20)
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(1 << 20)
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        parts, size = [body], len(body)
        while size < length:
            parts.append(self.socket.recv(1 << 20))
            size += len(parts[-1])
        return b"".join(parts)

    def memory(self) -> float:
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


def serve() -> None:
    """Fill a view and serve the verbs on a free port, which is printed."""
    import uvloop

    from extender.server import Address
    from extender.server import Server as Web
    from extender.service import Service

    class NoApi:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("the benchmark uses no API")

    async def run() -> None:
        policy = Policy(os.environ.get("BENCH_POLICY", "fragmentation"))
        service = Service(NoApi(), Rules(NAMES, GIB, policy))  # type: ignore[arg-type]
        fill(service)
        service.verbs.ready = True
        sock = Address("127.0.0.1", 0).listen("bench")
        sock.listen()
        print(sock.getsockname()[1], flush=True)
        await Web(service.verbs_app, sock).run_until_stopped()

    uvloop.run(run())


def fill(service: Any) -> None:
    """5,000 nodes of 4 cards with 8 pods each."""
    chance = random.Random(1)
    for number in range(NODES):
        name = node_name(number)
        model, memory = ("Tesla T4", 15360) if number % 2 else ("NVIDIA A10", 23028)
        cards = tuple(Card(f"GPU-{number}-{i}", i, i, model, memory) for i in range(CARDS))
        service.view.apply_node(service.view.reader.node(node_object(name, cards)))
        for i in range(PODS):
            pod = pod_object(f"p-{number}-{i}", chance.randint(1, 6))
            request, _ = service.view.reader.request(pod)
            fact = service.view.reader.pod(pod)
            found = service.view.reserve(fact.ref, name, request)
            if isinstance(found, Placement):
                service.view.ledger.hold(fact.ref, found)


def node_object(name: str, cards: tuple[Card, ...]) -> dict[str, Any]:
    from gpushare.cards import encode

    return {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            "annotations": {NAMES.cards: encode(NodeCards(cards))},
        },
        "status": {
            "allocatable": {NAMES.gpu_mem: "1000", NAMES.gpu_percent: "400"},
        },
    }


def pod_object(name: str, mem: int) -> dict[str, Any]:
    limits = {NAMES.gpu_mem: str(mem)}
    return {
        "metadata": {"name": name, "namespace": "bench", "uid": name, "resourceVersion": "2"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
