"""From asking the Hub for a server to its answer that it is ready: ours beside stock KubeSpawner.

python -m tests.bench spawn

The same image on the same playground, the Hub alternating between both spawners so that a slow
minute of the machine is nobody's.
"""

from __future__ import annotations

import statistics
import time

from playground.cluster import Cluster
from playground.hub import PASSWORD, Hub
from playground.hub_user import HubUser
from tests.bench.results import Figure, publish, spread
from tests.cluster.session import session

TURNS, ROUNDS = 3, 5
PATIENCE = 120


def main() -> None:
    times: dict[bool, list[float]] = {True: [], False: []}
    with session():
        for turn in range(2 * TURNS):
            stock = bool(turn % 2)
            hub = Hub(Cluster(), lambda _: None, stock=stock)
            hub.start()
            user = HubUser(hub.url, "bench", PASSWORD)
            options = {} if stock else {"profile": "t4", "slice": "3g"}
            for i in range(ROUNDS + 1):
                took = timed_start(user, options)
                if i:  # the first one after the Hub's start finds everything cold
                    times[stock].append(took)
                user.stop_server()
        hub.stop()
    rounds = f"{TURNS * ROUNDS} starts"
    ratio = statistics.median(times[False]) / statistics.median(times[True])
    publish(
        "spawn",
        [
            *spread("request to ready, with a slice", rounds, times[False], "s"),
            *spread("request to ready, stock KubeSpawner", rounds, times[True], "s"),
            Figure("ratio of the medians", rounds, ratio, "ratio", "to reach: at most 1.1"),
        ],
    )


def timed_start(user: HubUser, options: dict[str, str]) -> float:
    """Seconds from the request to the Hub's word that the server is ready, asked 20 times a second.

    Not by the Hub's stream of progress: it ends for each spawner after its own last second.
    """
    began = time.monotonic()
    user.request_server(options)
    while time.monotonic() - began < PATIENCE:
        server = user.server()
        if server is not None and server["ready"]:
            return time.monotonic() - began
        time.sleep(0.05)
    raise AssertionError(f"{user.name}'s server is not ready after {PATIENCE} s")
