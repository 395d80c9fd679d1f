"""The node half when what is around it breaks: kubelet, its files, the way to the API server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from gpushare.placement import ContainerPlacement
from gpushare.request import Role
from playground.cluster import Cluster
from tests.cluster.binder import NODE, ON_NODE, Binder, allocatable, await_node, kubelet_folder
from tests.cluster.gpu_programs import Programs, alive, await_end, notebook
from tests.cluster.inspection import holdings
from tests.cluster.pods import NAMES, Pods, container, pod
from tests.cluster.processes import Processes


@pytest.fixture
def binder(api: client.ApiClient, pods: Pods) -> Binder:
    return Binder(api, pods)


def restarts(of: client.V1Pod) -> int:
    statuses = of.status.container_statuses
    return statuses[0].restart_count if statuses else 0


@pytest.fixture
def programs(pods: Pods) -> Iterator[Programs]:
    programs = Programs(pods)
    with programs.cleared():
        yield programs


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


def await_line(file: Path, count: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while len(file.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, (
            f"the container was not started again in {timeout:.0f} s"
        )
        time.sleep(0.2)


def test_a_restarted_kubelet_has_its_units_back_at_once(
    api: client.ApiClient, processes: Processes, pods: Pods
) -> None:
    processes.restart(f"kubelet@{NODE}")
    await_node(api, "whole", lambda n: allocatable(n) == (30, 200), timeout=120)
    pods.create(pod("after", container("main", mem=12), nodeSelector=ON_NODE))
    pods.await_running("after")


def test_a_corrupt_checkpoint_of_the_kubelet_harms_nobody(binder: Binder, pods: Pods) -> None:
    """It is the kubelet's own file and only our second source; its next grant writes it anew."""
    placed = ContainerPlacement("main", Role.APP, (binder.share(1, 1),))
    crashing = container("main", mem=1, once=True)
    name = binder.bind(pod("again", crashing, restartPolicy="Always"), placed)
    pods.await_pod(name, "started twice", lambda p: restarts(p) >= 1)
    checkpoint = kubelet_folder() / "device-plugins" / "kubelet_internal_checkpoint"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2])
    before = restarts(pods.read(name))
    pods.await_pod(name, "started again", lambda p: restarts(p) > before, timeout=90)
    assert pods.sight(name, "main").cards == (binder.cards[1].uuid,)


def test_the_node_goes_on_without_the_control_plane(
    api: client.ApiClient, binder: Binder, pods: Pods, processes: Processes, programs: Programs
) -> None:
    """Cut off: a crashing container starts again, also after the plugin itself was restarted, and a
    pod that takes too much is held to its slice. Then the kubelet is restarted, which knows its pods
    from the API server alone: what runs goes on. With the cable back, node and ledger agree."""
    cluster = Cluster()
    strict = {NAMES.enforcement: json.dumps({"grace": 2})}
    room = ContainerPlacement("notebook", Role.APP, (binder.share(1, 2),))
    greedy = binder.bind(pod("greedy", notebook("notebook", 2, 2), annotations=strict), room)
    pods.await_running(greedy)
    server, first, second = programs.pids(greedy, at_least=3)
    crashing = container("main", mem=2, once=True)
    crashing["command"] = ["sh", "-c", "echo $GPUSHARE_CARDS >> /log/starts; sleep 2; exit 1"]
    crashing["volumeMounts"] = [{"name": "log", "mountPath": "/log"}]
    placed = ContainerPlacement("main", Role.APP, (binder.share(0, 2),))
    name = binder.bind(
        pod("edge", crashing, restartPolicy="Always", volumes=[{"name": "log", "emptyDir": {}}]),
        placed,
    )
    pods.await_pod(name, "started", lambda p: restarts(p) >= 1)
    uid = pods.read(name).metadata.uid
    starts = kubelet_folder() / "pods" / uid / "volumes/kubernetes.io~empty-dir/log/starts"
    cluster.cut_off(NODE)
    try:
        programs.hold(first, 6000, card=1)
        await_end(first)
        await_line(starts, lines(starts) + 1, 150)
        processes.kill_in_pod("gpushare-device-plugin", "gpushare-device-plugin", wait=False)
        await_line(starts, lines(starts) + 1, 200)
        programs.hold(second, 6000, card=1)
        await_end(second)
        cluster.restart(f"kubelet@{NODE}", wait=False)
        assert alive(server)
    finally:
        cluster.reconnect(NODE)
    await_line(starts, lines(starts) + 1, 330)
    assert set(starts.read_text().split()) == {binder.cards[0].uuid}
    await_node(
        api,
        "ready",
        lambda n: any(c.type == "Ready" and c.status == "True" for c in n.status.conditions),
        timeout=120,
    )
    await_node(api, "whole", lambda n: allocatable(n) == (30, 200), timeout=120)
    processes.await_ready("gpushare-device-plugin")
    owners = {owner for card in holdings().values() for owner in card}
    assert {f"{pods.namespace}/{name}", f"{pods.namespace}/{greedy}"} <= owners
    assert restarts(pods.read(greedy)) == 0
    pods.create(pod("after", container("main", mem=12), nodeSelector=ON_NODE))
    pods.await_running("after")
