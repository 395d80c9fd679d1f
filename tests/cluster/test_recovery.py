"""Each process killed in the middle of its work: nothing is lost, doubled or leaked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.cluster.inspection import holdings, inspect
from tests.cluster.pods import Pods, container, pod
from tests.cluster.processes import Processes


def assert_no_card_over_capacity() -> None:
    for node in inspect()["nodes"]:
        for card in node["cards"]:
            assert sum(s["mib"] for s in card["slices"]) <= card["memory_mib"], card
            assert sum(s["percent"] for s in card["slices"]) <= 100, card


def start_all(pods: Pods, names: list[str], mem: int) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: pods.create(pod(n, container("main", mem=mem))), names))


def assert_each_sees_its_own(pods: Pods, names: list[str]) -> None:
    for name in names:
        pods.await_running(name, timeout=120)
        placed = pods.placement(name).container("main")
        assert placed is not None
        assert pods.sight(name, "main").cards == tuple(s.card for s in placed.shares), name


def starts(pods: Pods, name: str) -> tuple[str, int]:
    """Which container runs, and how often it was started: unchanged if the pod was left in peace."""
    status = pods.read(name).status.container_statuses[0]
    return status.container_id, status.restart_count


def survives(pods: Pods, disturb: Callable[[], None]) -> None:
    """A notebook runs; ``disturb`` happens; it runs on untouched, and the ledger is the same."""
    pods.create(pod("bystander", container("main", mem=3)))
    pods.await_running("bystander")
    before, books = starts(pods, "bystander"), holdings()
    disturb()
    assert starts(pods, "bystander") == before
    assert holdings() == books


def test_kubelet_restarted(pods: Pods, processes: Processes) -> None:
    survives(pods, lambda: processes.restart("kubelet@t4-1"))
    start_all(pods, ["after-0", "after-1"], mem=6)
    assert_each_sees_its_own(pods, ["after-0", "after-1"])


def test_kube_scheduler_restarted(pods: Pods, processes: Processes) -> None:
    survives(pods, lambda: processes.kill_in_pod("gpushare-user-scheduler", "kube-scheduler"))
    start_all(pods, ["after"], mem=6)
    assert_each_sees_its_own(pods, ["after"])


def test_extender_killed_in_a_burst(pods: Pods, processes: Processes) -> None:
    """Killed when the first pod of the burst is bound: others are between filter and bind then."""
    names = [f"burst-{i}" for i in range(12)]
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(start_all, pods, names, 3)
        pods.await_any("bound", lambda p: bool(p.spec.node_name))
        processes.kill_in_pod("gpushare-user-scheduler", "gpushare-extender", wait=False)
        creating.result()
    assert_each_sees_its_own(pods, names)
    processes.await_ready("gpushare-user-scheduler")
    assert_no_card_over_capacity()
    owners = Counter(owner for card in holdings().values() for owner in card)
    assert {f"{pods.namespace}/{name}" for name in names} <= set(owners)
    assert max(owners.values()) == 1, "one pod, one card, once"


def test_extender_restart_rebuilds_the_same_ledger(pods: Pods, processes: Processes) -> None:
    start_all(pods, [f"kept-{i}" for i in range(4)], mem=4)
    for i in range(4):
        pods.await_running(f"kept-{i}")
    survives(
        pods,
        lambda: processes.kill_in_pod("gpushare-user-scheduler", "gpushare-extender", wait=True),
    )


def test_device_plugin_killed_while_containers_start(pods: Pods, processes: Processes) -> None:
    """Killed when the first container of the burst runs: others are in Allocate or PreStart then."""
    names = [f"start-{i}" for i in range(8)]
    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(start_all, pods, names, 3)
        pods.await_any("Running", lambda p: p.status.phase == "Running")
        processes.kill_in_pod("gpushare-device-plugin", "gpushare-device-plugin", wait=False)
        creating.result()
    processes.await_ready("gpushare-device-plugin")
    alive = settle(pods, names)
    assert_each_sees_its_own(pods, alive)
    assert_no_card_over_capacity()
    start_all(pods, ["later"], mem=3)
    assert_each_sees_its_own(pods, ["later"])


def settle(pods: Pods, names: list[str]) -> list[str]:
    """The pods that got to run. The kubelet fails a pod for good whose Allocate found no plugin;
    such a pod must be seen as failed, hold nothing, and run nothing."""
    alive = []
    for name in names:
        seen = pods.await_pod(
            name,
            "Running or Failed",
            lambda p: p.status.phase in ("Running", "Failed"),
            timeout=120,
        )
        if seen.status.phase == "Running":
            alive.append(name)
        else:
            assert not any(s.state.running for s in seen.status.container_statuses or [])
    held = {owner for card in holdings().values() for owner in card}
    assert {f"{pods.namespace}/{name}" for name in names if name not in alive}.isdisjoint(held)
    return alive


def test_nothing_is_held_after_all_pods_are_gone(pods: Pods) -> None:
    names = [f"brief-{i}" for i in range(6)]
    start_all(pods, names, mem=5)
    assert_each_sees_its_own(pods, names)
    for name in names:
        pods.delete(name)
    for name in names:
        pods.await_gone(name)
    owners = {owner for card in holdings().values() for owner in card}
    assert not {owner for owner in owners if owner.startswith(f"{pods.namespace}/")}


def test_pod_of_the_same_name_is_another_pod(pods: Pods) -> None:
    """Jupyter uses names again; a force-deleted pod's successor must not inherit or lose its slice."""
    for round_ in range(3):
        pods.create(pod("again", container("main", mem=5)))
        pods.await_running("again")
        assert pods.placement("again").uid == pods.read("again").metadata.uid, round_
        pods.delete("again", grace=0)
        pods.await_gone("again")
