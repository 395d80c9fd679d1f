"""Pods a second through a real kube-scheduler: with the extender, and the same one without.

python -m tests.bench throughput

100 and 1,000 simulated nodes with 4 cards each. All pods exist before the scheduler starts, and time
counts from the first bind to the last. Without an extender kube-scheduler counts the same resources
itself, as plain sums.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from gpushare.names import Names
from playground import binaries
from playground.cluster import Cluster
from tests.bench.results import Figure, publish
from tests.bench.simulation import Bound, add_nodes, control_plane, create_all, t4_nodes
from tests.cluster.pods import Pods, container, pod
from tests.cluster.scheduler_pair import pair
from tests.cluster.session import scratch_namespace

SIZES = tuple(int(n) for n in os.environ.get("BENCH_SIZES", "100,1000").split(","))
PODS = int(os.environ.get("BENCH_PODS", "400"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "2"))
NAMES = Names()


def main() -> None:
    figures: list[Figure] = []
    with control_plane() as cluster:
        have = 0
        for size in SIZES:
            add_nodes(cluster, t4_nodes(size)[have:])
            have = size
            rates: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(ROUNDS):
                for extender in (True, False):
                    rates[extender].append(rate(cluster, extender))
                    kind = "with" if extender else "without"
                    print(f"{size} nodes, {kind}: {rates[extender][-1]:.1f} pods/s", flush=True)
            ours, alone = statistics.median(rates[True]), statistics.median(rates[False])
            nodes = f"{size} nodes"
            figures += [
                Figure("pods a second, with the extender", nodes, ours, "1/s"),
                Figure("pods a second, without", nodes, alone, "1/s"),
                Figure("with / without", nodes, ours / alone, "ratio", "target 0.8"),
            ]
    publish("throughput", figures)


def rate(cluster: Cluster, extender: bool) -> float:
    """Binds a second of one burst."""
    from kubernetes import config

    api = config.new_client_from_config(str(cluster.kubeconfig()))
    with scratch_namespace(api, "bench") as namespace, tempfile.TemporaryDirectory() as folder:
        bound = Bound(cluster, namespace)
        asked = (1, 2, 3, 5, 7)
        create_all(
            cluster,
            namespace,
            (pod(f"p{i}", container("main", mem=asked[i % 5])) for i in range(PODS)),
        )
        with pair(
            cluster.kubeconfig(), binaries.path("kube-scheduler"), Path(folder), extender=extender
        ):
            bound.await_bound(PODS)
        times = sorted(bound.at.values())
        bound.close()
        assert not extender or Pods(api, namespace).placement("p0").containers
        return (len(times) - 1) / (times[-1] - times[0])


if __name__ == "__main__":
    main()
