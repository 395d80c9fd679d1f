"""The policy in the real scheduler against the same policy offline, on pods of a trace.

python -m tests.bench replay

2,000 pods of the default trace, the ones with cards, arrive one after the other on every fourth node of
the trace, through a real kube-scheduler with simulated nodes; what is refused is dropped. Offline the
same pods arrive in the same order, at the same policy with the same learned workload. Traces: the folder
in GPUSHARE_TRACES.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from kubernetes import config

from extender.learning import USUAL, prior
from extender.scoring import Scorer, Workload, make_policy
from gpushare.cards import Card
from gpushare.names import Names
from gpushare.units import Unit
from playground import binaries
from playground.api import Api
from playground.cluster import Cluster
from playground.simulated import SimulatedNode
from tests.bench.packing import traces
from tests.bench.packing.inflation import take
from tests.bench.results import Figure, publish
from tests.bench.simulation import Bound, add_nodes, control_plane
from tests.cluster.pods import container, pod
from tests.cluster.scheduler_pair import pair
from tests.cluster.session import scratch_namespace

NAMES = Names()
PODS = int(os.environ.get("BENCH_PODS", "2000"))
EVERY = 4
SEED = 42
# What stands for a card's thousandth is one unit of a MiB.
UNIT = Unit(1)
MODEL = "Model {}"


def main() -> int:
    try:
        figures = measure(traces.folder(None))
    except traces.TracesMissing as error:
        print(f"replay: left out: {error}", file=sys.stderr)
        return 2
    publish("replay", figures)
    return 0


def measure(folder: Path, count: int = PODS) -> list[Figure]:
    nodes, pods = workload(folder, count)
    total = sum(node.cards for node in nodes) * traces.CARD
    asked = 100 * sum(pod.milli for pod in pods) / total
    offline = 100 * sum(offline_replay(nodes, pods)) / total
    real = 100 * sum(real_replay(nodes, pods)) / total
    size = f"{len(pods)} pods, {len(nodes)} nodes"
    return [
        Figure("asked for, of all cards", size, asked, "%"),
        Figure("handed out, offline", size, offline, "%"),
        Figure("handed out, kube-scheduler", size, real, "%"),
        Figure("difference", size, real - offline, "points", "target within 0.3"),
    ]


def workload(folder: Path, count: int) -> tuple[list[traces.Node], list[traces.Pod]]:
    """Every fourth node in a random order, and the first pods with cards of a random order."""
    every = traces.read_nodes(folder)[::EVERY]
    with_cards = [p for p in traces.read_pods(folder, "default") if p.ask.cards]
    rng = np.random.default_rng(SEED)
    nodes = [every[i] for i in rng.permutation(len(every))]
    pods = [with_cards[i] for i in rng.permutation(len(with_cards))[:count]]
    return nodes, pods


def offline_replay(nodes: list[traces.Node], pods: list[traces.Pod]) -> list[int]:
    """What each pod got, in thousandths of a card."""
    table = traces.table_of(nodes)
    workload = Workload(prior=prior(list(USUAL), NAMES, UNIT))
    target = workload.target(0.0)
    scorer = Scorer(table, make_policy("fragmentation", target), 512)
    memory = np.array([node.memory for node in nodes])
    got = []
    for number, its in enumerate(pods):
        workload.observe(its.ask, float(number) / 100)
        fresh = workload.target(float(number) / 100)
        if fresh is not target:
            target = fresh
            scorer = Scorer(table, make_policy("fragmentation", target), 512)
        marks = scorer.marks(its.ask)
        row = marks.best(memory >= its.memory)
        got.append(its.milli if row >= 0 else 0)
        if row >= 0:
            take(table, row, scorer.cards(row, its.ask, marks), its.ask, +1)
            memory[row] -= its.memory
    return got


def real_replay(nodes: list[traces.Node], pods: list[traces.Pod]) -> list[int]:
    """The same through a real kube-scheduler."""
    with control_plane() as cluster, tempfile.TemporaryDirectory() as folder:
        add_nodes(cluster, [_node(number, node) for number, node in enumerate(nodes)])
        api = config.new_client_from_config(str(cluster.kubeconfig()))
        with (
            scratch_namespace(api, "replay") as namespace,
            pair(
                cluster.kubeconfig(), binaries.path("kube-scheduler"), Path(folder),
                arguments=["--Extender.unit=MiB", "--Extender.policy=fragmentation"],
            ),
        ):  # fmt: skip
            return _arrive(cluster, namespace, pods)


def _arrive(cluster: Cluster, namespace: str, pods: list[traces.Pod]) -> list[int]:
    api: Api = cluster.api()
    path = f"/api/v1/namespaces/{namespace}/pods"
    bound = Bound(cluster, namespace)
    got = []
    for number, its in enumerate(pods):
        name = f"p{number}"
        api.create(path, _pod(name, its))
        placed = bound.await_outcome(name)
        got.append(its.milli if placed else 0)
        if not placed:
            api.delete(f"{path}/{name}?gracePeriodSeconds=0")
    bound.close()
    return got


def _node(number: int, node: traces.Node) -> SimulatedNode:
    its = tuple(
        Card(f"GPU-{number:05d}-{i}", i, i, MODEL.format(node.model), traces.CARD)
        for i in range(node.cards)
    )
    return SimulatedNode(
        f"n{number:05d}", "trace", its, cpu=f"{node.cpu}m", memory=f"{node.memory}Mi", pods=500,
        unit=UNIT,
    )  # fmt: skip


def _pod(name: str, its: traces.Pod) -> dict[str, Any]:
    ask = its.ask
    percent = 100 * ask.cards if ask.whole else 0
    main = container("main", mem=ask.mib or 0, percent=percent)
    requests = {"cpu": f"{ask.cpu}m", "memory": f"{its.memory}Mi"}
    main["resources"]["requests"] = {**main["resources"].get("requests", {}), **requests}
    models = {NAMES.card_model: ",".join(MODEL.format(m) for m in ask.models)} if ask.models else {}
    return pod(name, main, annotations=models)


if __name__ == "__main__":
    sys.exit(main())
