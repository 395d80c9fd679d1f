"""What a slice adds to a container's start, and what our processes weigh. On the playground.

python -m tests.bench startup
"""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path

from kubernetes import client

from gpushare.names import SCHEDULER_NAME
from tests.bench.results import Figure, percentile, publish, spread
from tests.cluster.pods import IMAGE, Pods, container, pod
from tests.cluster.processes import NAMESPACE, pids_of
from tests.cluster.session import scratch_namespace, session

ROUNDS = 30
# The first thing that the container does is to say what time it is.
CLOCK = ["sh", "-c", "date +%s.%N"]


def main() -> None:
    with session() as api, scratch_namespace(api, "bench") as namespace:
        pods = Pods(api, namespace)
        with_slice = [start(pods, f"with-{i}", mem=3) for i in range(ROUNDS)]
        ours = [start(pods, f"none-{i}", mem=0) for i in range(ROUNDS)]
        stock = [
            start(pods, f"stock-{i}", mem=0, scheduler="default-scheduler") for i in range(ROUNDS)
        ]
        figures = [
            *spread("creation to start, with a slice", f"{ROUNDS} pods", with_slice, "s"),
            *spread("creation to start, our scheduler, no slice", f"{ROUNDS} pods", ours, "s"),
            *spread("creation to start, default scheduler", f"{ROUNDS} pods", stock, "s"),
            Figure(
                "with a slice / default scheduler, p50",
                f"{ROUNDS} pods",
                statistics.median(with_slice) / statistics.median(stock),
                "ratio",
                "1.0 is no cost at all",
            ),
            *prestart(api),
            *memory(),
        ]
    publish("startup", figures)


def start(pods: Pods, name: str, mem: int, scheduler: str = SCHEDULER_NAME) -> float:
    """Seconds from the call that creates the pod to the first instruction of its container."""
    main = container("main", mem=mem) | {"command": CLOCK, "image": IMAGE}
    began = time.time()
    pods.create(pod(name, main, scheduler=scheduler))
    pods.await_pod(name, "Succeeded", lambda p: p.status.phase == "Succeeded")
    line = next(iter(pods.log_lines(name, "main")))
    pods.delete(name, grace=0)
    return float(line) - began


def prestart(api: client.ApiClient) -> list[Figure]:
    """PreStartContainer's own time, from the device plugins' logs."""
    core = client.CoreV1Api(api)
    selector = "app.kubernetes.io/component=device-plugin"
    times = [
        float(ms)
        for plugin in core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
        for ms in re.findall(
            r"container .* -> .*, ([0-9.]+) ms",
            core.read_namespaced_pod_log(plugin.metadata.name, NAMESPACE),
        )
    ]
    assert times, "no container start in the device plugins' logs"
    return [
        *spread("PreStartContainer", f"{len(times)} starts", times, "ms"),
        Figure("PreStartContainer p90", f"{len(times)} starts", percentile(times, 90), "ms"),
    ]


def memory() -> list[Figure]:
    """Resident memory of each of our processes, as the kernel counts it."""
    figures = []
    for program in ("gpushare-extender", "gpushare-device-plugin", "kube-scheduler"):
        for pid in pids_of(program):
            status = Path(f"/proc/{pid}/status").read_text()
            kib = int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
            figures.append(Figure(f"resident memory, {program}", "1 process", kib / 1024, "MiB"))
    return figures
