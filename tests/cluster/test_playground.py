"""The playground itself: a second one beside the shared one, made and broken and removed here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpushare.names import Names
from playground.api import Api, ApiError
from playground.bootstrap import await_nodes, node_problem
from playground.cluster import Cluster, PlaygroundError
from playground.commands import succeeds
from playground.node_configuration import PAUSE_IMAGE
from playground.node_space import enter
from playground.readiness import Http
from playground.simulated import SimulatedNode, make_nodes, remove_nodes, start_kwok
from playground.status import ENDED, RUNNING
from tests.cluster.machine import Machine

NAME = "lifecycle"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(NAME, say=lambda text: None)
    cluster.down()
    cluster.up()
    yield cluster
    cluster.down()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gpushare.cli.playground", "--name", NAME, *arguments]


def await_pod(api: Api, name: str, seconds: int = 60) -> dict:
    """The pod once it runs."""
    for event in api.watch(PODS, seconds):
        pod = event["object"]
        if pod["metadata"]["name"] == name and pod["status"].get("phase") == "Running":
            return pod
    raise AssertionError(f"{name} does not run after {seconds} s: {api.get(f'{PODS}/{name}')}")


def pause_pod(name: str, node: str) -> dict:
    container = {"name": "main", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def test_everything_is_well(cluster: Cluster) -> None:
    status = cluster.status()
    assert status.healthy
    assert {n.name for n in status.nodes} == {"t4-1", "a10-1"}
    assert len(status.components) == 4 + 2 * 3


def test_up_again_changes_nothing(cluster: Cluster) -> None:
    before = [component.pid for component in cluster.status().components]
    assert cluster.up() == []
    assert [component.pid for component in cluster.status().components] == before


def test_pods_run_on_both_nodes_and_host_reaches_them(cluster: Cluster) -> None:
    api = cluster.api()
    for node in cluster.nodes:
        api.create(PODS, pause_pod(f"pause-{node.name}", node.name))
    for index, node in enumerate(cluster.nodes):
        pod = await_pod(api, f"pause-{node.name}")
        subnet = cluster.plan.pods_of(index).rpartition(".")[0]
        assert pod["status"]["podIP"].startswith(f"{subnet}.")
        api.delete(f"{PODS}/pause-{node.name}")


def test_cluster_ip_answers_from_host_and_from_every_node(cluster: Cluster) -> None:
    certificates = cluster.folders.certificates
    files = tuple(certificates / f for f in ("cluster-ca.crt", "admin.crt", "admin.key"))
    service = f"https://{cluster.plan.kubernetes_service}/readyz"
    assert Http(service, files).failure(0) is None
    connect = (
        f"import socket; socket.create_connection(('{cluster.plan.kubernetes_service}', 443), 5)"
    )
    for node in cluster.nodes:
        inside = enter(cluster.folders, node.name)
        assert succeeds([*inside, sys.executable, "-c", connect])


def test_every_component_has_its_own_rights_and_no_more(cluster: Cluster) -> None:
    def status_of(identity: str, method: str, path: str, body: dict | None = None) -> int:
        api = Api(cluster.folders.kubeconfig_of(identity))
        try:
            api.patch(path, body) if body else getattr(api, method)(path)
        except ApiError as error:
            return error.status
        return 200

    label = {"metadata": {"labels": {"mine": "no"}}}
    assert status_of("kubelet-t4-1", "get", "/api/v1/nodes/t4-1") == 200
    assert status_of("kubelet-t4-1", "patch", "/api/v1/nodes/a10-1", label) == 403
    assert status_of("kubelet-t4-1", "get", "/api/v1/secrets") == 403
    assert status_of("kube-proxy", "get", "/api/v1/services") == 200
    assert status_of("kube-proxy", "get", "/api/v1/secrets") == 403
    assert status_of("kube-scheduler", "get", "/api/v1/nodes") == 200
    assert status_of("kube-scheduler", "get", "/api/v1/secrets") == 403
    assert status_of("admin", "get", "/api/v1/secrets") == 200


def test_etcd_talks_to_the_api_server_alone(cluster: Cluster) -> None:
    certificates = cluster.folders.certificates
    etcd_ca = certificates / "etcd-ca.crt"
    own = (etcd_ca, certificates / "etcd-client.crt", certificates / "etcd-client.key")
    other = (etcd_ca, certificates / "admin.crt", certificates / "admin.key")
    assert Http(f"{cluster.plan.etcd}/readyz", own).failure(0) is None
    assert Http(f"{cluster.plan.etcd}/readyz", other).failure(0) is not None


@pytest.mark.parametrize("name", ["kube-scheduler", "kubelet@t4-1", "containerd@a10-1", "etcd"])
def test_killed_component_is_reported_and_started_again(cluster: Cluster, name: str) -> None:
    cluster.kill(name)
    shown = subprocess.run(command("status", "-o", "json"), capture_output=True, check=False)
    assert shown.returncode == 1
    (dead,) = [c for c in json.loads(shown.stdout)["components"] if c["state"] == ENDED]
    assert dead["name"] == name
    assert dead["log"] == Path(dead["log_file"]).read_text(errors="replace").splitlines()[-12:]
    assert name in cluster.up()
    assert all(c.state == RUNNING for c in cluster.status().components)


def test_pod_outlives_its_nodes_daemons(cluster: Cluster) -> None:
    api = cluster.api()
    api.create(PODS, pause_pod("survivor", "t4-1"))
    before = await_pod(api, "survivor")["status"]["containerStatuses"]
    cluster.kill("containerd@t4-1")
    cluster.kill("kubelet@t4-1")
    cluster.up()
    after = await_pod(api, "survivor")["status"]["containerStatuses"]
    assert [c["containerID"] for c in after] == [c["containerID"] for c in before]
    assert [c["restartCount"] for c in after] == [0]
    api.delete(f"{PODS}/survivor")


def test_restart_gives_a_new_process(cluster: Cluster) -> None:
    before = cluster.processes.pid("kube-scheduler")
    cluster.restart("kube-scheduler")
    after = cluster.processes.pid("kube-scheduler")
    assert after is not None
    assert after != before


def test_node_without_cable_gets_unready_and_comes_back(cluster: Cluster) -> None:
    api = cluster.api()
    cluster.cut_off("t4-1")
    try:
        for event in api.watch("/api/v1/nodes", 90):
            node = event["object"]
            if node["metadata"]["name"] == "t4-1" and node_problem(node):
                break
        else:
            pytest.fail("t4-1 stays Ready without its network")
    finally:
        cluster.reconnect("t4-1")
    await_nodes(api, ["t4-1"], 60)


def test_image_is_brought_once(cluster: Cluster, tmp_path: Path) -> None:
    from playground import binaries
    from playground.pause import write_pause_image

    archive = tmp_path / "image.tar"
    write_pause_image(binaries.path("pause"), "localhost/twice:1", archive)
    assert cluster.import_image(archive) == ["t4-1", "a10-1"]
    assert cluster.import_image(archive) == []
    write_pause_image(binaries.path("etcd"), "localhost/twice:1", archive)
    assert cluster.import_image(archive) == ["t4-1", "a10-1"]


def test_simulated_nodes_beside_real_ones(cluster: Cluster) -> None:
    api = cluster.api()
    start_kwok(cluster)
    make_nodes(api, (SimulatedNode(f"kwok-{i}", "t4", tainted=True) for i in range(5)))
    pod = pause_pod("placed", "kwok-3")
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    api.create(PODS, pod)
    assert await_pod(api, "placed")["spec"]["nodeName"] == "kwok-3"
    api.delete(f"{PODS}/placed")
    remove_nodes(api)
    assert {n["metadata"]["name"] for n in api.get("/api/v1/nodes")["items"]} == {"t4-1", "a10-1"}


def test_simulated_playground_places_pods_and_leaves_nothing() -> None:
    simulated = Cluster("simulated", say=lambda text: None)
    simulated.down()
    before = Machine.seen("simulated")
    try:
        simulated.up(simulated=True)
        assert simulated.status().healthy
        during = Machine.seen("simulated")
        assert (during.interfaces, during.mounts) == (before.interfaces, before.mounts)
        pod = pause_pod("placed", "t4-1")
        pod["spec"]["containers"][0]["resources"] = {"limits": {Names().gpu_mem: "30"}}
        simulated.api().create(PODS, pod)
        assert await_pod(simulated.api(), "placed")["spec"]["nodeName"] == "t4-1"
        with pytest.raises(PlaygroundError, match="down"):
            simulated.up()
    finally:
        simulated.down()
    assert Machine.seen("simulated") == before


@pytest.fixture(scope="module")
def before(cluster: Cluster) -> Machine:
    """The machine without the cluster of this module."""
    cluster.down()
    return Machine.seen(NAME)


class TestDown:
    """These take the cluster of the tests above down, so they stand last."""

    @pytest.fixture(autouse=True)
    def _clean(self, cluster: Cluster, before: Machine) -> Iterator[None]:
        yield
        cluster.down()

    def test_leaves_nothing(self, cluster: Cluster, before: Machine) -> None:
        cluster.up()
        api = cluster.api()
        api.create(PODS, pause_pod("running", "t4-1"))
        await_pod(api, "running")
        during = Machine.seen(NAME)
        assert during.processes
        assert during.interfaces > before.interfaces
        assert during.firewall == before.firewall
        assert cluster.down() is True
        assert Machine.seen(NAME) == before
        assert cluster.down() is False

    def test_is_healthy_within_thirty_seconds(self, cluster: Cluster, before: Machine) -> None:
        began = time.monotonic()
        cluster.up()
        assert time.monotonic() - began < 30
        assert cluster.status().healthy

    @pytest.mark.parametrize("milestone", ["namespaces", "processes/containerd@t4-1.json"])
    def test_cleans_up_after_a_killed_up(
        self, cluster: Cluster, before: Machine, milestone: str
    ) -> None:
        up = subprocess.Popen(command("up"), stdout=subprocess.DEVNULL)
        while not (cluster.folders.root / milestone).exists():
            assert up.poll() is None, "`up` has ended before it could be killed"
            time.sleep(0.01)
        up.send_signal(signal.SIGKILL)
        up.wait()
        assert cluster.down() is True
        assert Machine.seen(NAME) == before

    def test_up_goes_on_after_a_killed_up(self, cluster: Cluster, before: Machine) -> None:
        up = subprocess.Popen(command("up"), stdout=subprocess.DEVNULL)
        while not (cluster.folders.root / "processes/kube-apiserver.json").exists():
            assert up.poll() is None, "`up` has ended before it could be killed"
            time.sleep(0.01)
        up.send_signal(signal.SIGKILL)
        up.wait()
        cluster.up()
        assert cluster.status().healthy

    def test_down_finds_what_runs_without_its_records(
        self, cluster: Cluster, before: Machine
    ) -> None:
        cluster.up()
        for record in cluster.folders.processes.iterdir():
            record.unlink()
        cluster.folders.description.unlink()
        cluster.down()
        assert Machine.seen(NAME) == before

    def test_up_and_down_after_a_reboot(self, cluster: Cluster, before: Machine) -> None:
        cluster.up()
        _reboot(cluster)
        assert all(c.state == ENDED for c in cluster.status().components)
        cluster.up()
        assert cluster.status().healthy
        _reboot(cluster)
        cluster.down()
        assert Machine.seen(NAME) == before


def _reboot(cluster: Cluster) -> None:
    """What a reboot does: processes, mounts and interfaces are gone, files stay."""
    from playground import cgroups, network
    from playground.mounts import unmount_all

    cgroups.kill(cluster.group)
    unmount_all(cluster.folders.root)
    network.remove_network(cluster.plan)
    cgroups.remove(cluster.group)
    description = cluster.description
    assert description
    replace(description, boot="an earlier one").write(cluster.folders.description)
    for name in cluster.processes.names():
        file = cluster.folders.processes / f"{name}.json"
        file.write_text(file.read_text().replace('"boot": "', '"boot": "earlier '))
