"""The life of a release: upgrade, rollback and uninstallation, with slices in use all the while."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kubernetes import client, watch

from playground import binaries
from playground.cluster import Cluster
from playground.install import CHART, NAMESPACE, RELEASE, VALUES, helm, install, uninstall
from tests.cluster.inspection import holdings
from tests.cluster.pods import Pods, container, pod

SECRET = "gpushare-extender-tls"


@pytest.fixture(scope="module")
def cluster(api: client.ApiClient) -> Iterator[Cluster]:
    """The cluster; the product is installed again when these tests are through with it."""
    cluster = Cluster()
    yield cluster
    install(cluster)


@dataclass(frozen=True)
class Life:
    """What would change if a pod or one of its containers had been started again."""

    uid: str
    containers: tuple[tuple[str, str, int], ...]


def life(pods: Pods, name: str) -> Life:
    found = pods.read(name)
    assert found.status.phase == "Running"
    return Life(
        found.metadata.uid,
        tuple((s.name, s.container_id, s.restart_count) for s in found.status.container_statuses),
    )


def our_pods(api: client.ApiClient) -> set[str]:
    """Those that are to stay; the ones before them may still be on their way out."""
    pods = client.CoreV1Api(api).list_namespaced_pod(NAMESPACE).items
    return {pod.metadata.uid for pod in pods if pod.metadata.deletion_timestamp is None}


def assert_a_slice_can_be_had(pods: Pods, name: str) -> None:
    pods.create(pod(name, container("main", mem=3)))
    pods.await_running(name)
    assert len(pods.sight(name, "main").cards) == 1


def test_upgrade_and_rollback_touch_no_slice(
    api: client.ApiClient, cluster: Cluster, pods: Pods
) -> None:
    pods.create(pod("worker", container("main", mem=7)))
    pods.await_running("worker")
    before, held = life(pods, "worker"), holdings()
    secret = client.CoreV1Api(api).read_namespaced_secret(SECRET, NAMESPACE).data
    first = our_pods(api)

    # Every pod of ours is made anew.
    install(
        cluster,
        settings=["scheduler.weight=11", "devicePlugin.config.DevicePlugin.probe_seconds=9"],
    )
    second = our_pods(api)
    assert not first & second, "the upgrade should have replaced the pods"
    assert life(pods, "worker") == before
    assert holdings() == held
    assert client.CoreV1Api(api).read_namespaced_secret(SECRET, NAMESPACE).data == secret, (
        "callers have the authority of the certificate: it must not change by itself"
    )
    assert_a_slice_can_be_had(pods, "after-upgrade")

    done = helm(cluster.kubeconfig(), "rollback", RELEASE, "--wait", "--timeout=120s")
    assert done.returncode == 0, done.stderr
    assert not second & our_pods(api)
    assert life(pods, "worker") == before
    assert_a_slice_can_be_had(pods, "after-rollback")


def test_uninstall_leaves_running_pods_alone_and_nothing_of_ours(
    api: client.ApiClient, cluster: Cluster, pods: Pods
) -> None:
    pods.create(pod("worker", container("main", mem=7)))
    pods.await_running("worker")
    before, held = life(pods, "worker"), holdings()
    assert len(objects_of_release(cluster)) > 15, "or else this test would find nothing at all"

    uninstall(cluster)
    assert objects_of_release(cluster) == []
    assert life(pods, "worker") == before

    # Who comes back finds its slices in use, and gives nobody else the same.
    install(cluster)
    assert holdings() == held
    assert life(pods, "worker") == before
    assert_a_slice_can_be_had(pods, "after-reinstall")


def test_installation_that_was_killed_is_taken_up(
    api: client.ApiClient, cluster: Cluster, pods: Pods
) -> None:
    """As on a machine that lost its power: helm itself would refuse to do anything from then on."""
    core = client.CoreV1Api(api)
    command = [
        str(binaries.path("helm")), "--kubeconfig", str(cluster.kubeconfig()),
        "--namespace", NAMESPACE, "upgrade", RELEASE, str(CHART), "--values", str(VALUES), "--wait",
        "--set=extender.image.tag=none",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as upgrade:
        stream = watch.Watch().stream(
            core.list_namespaced_secret,
            NAMESPACE,
            label_selector="owner=helm,status=pending-upgrade",
            timeout_seconds=60,
        )
        assert next(stream, None) is not None, "helm has not begun"
        upgrade.kill()
    stuck = helm(cluster.kubeconfig(), "upgrade", RELEASE, str(CHART), "--reuse-values")
    assert "another operation" in stuck.stderr

    install(cluster)
    assert_a_slice_can_be_had(pods, "after-resume")


def objects_of_release(cluster: Cluster) -> list[str]:
    """Everything of every kind that carries the release's label, and what its namespace holds."""
    kinds = kubectl(cluster, "api-resources", "--verbs=list", "--output=name").split()
    # Copies of pods by other names, or made by Kubernetes in every namespace.
    passed_over = {"events", "events.events.k8s.io"}
    found = set()
    for kind in sorted(set(kinds) - passed_over):
        label = f"app.kubernetes.io/instance={RELEASE}"
        found |= set(kubectl(cluster, "get", kind, "-A", "-l", label, "-o", "name").split())
        found |= set(kubectl(cluster, "get", kind, "-n", NAMESPACE, "-o", "name").split()) & {
            f"lease.coordination.k8s.io/{RELEASE}-user-scheduler"
        }
    return sorted(found)


def kubectl(cluster: Cluster, *arguments: str) -> str:
    command = [str(binaries.path("kubectl")), "--kubeconfig", str(cluster.kubeconfig()), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
