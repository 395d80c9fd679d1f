"""The ways in which a real kube-scheduler asks the extender, and what it does with the answers:
by certificate, through the API server, as one of two pairs, and when important pods need room."""

from __future__ import annotations

import secrets
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from extender.scheduler_config import Asking, Link
from extender.scheduler_config import extender as told
from gpushare import cards
from gpushare.names import SCHEDULER_NAME, Names
from playground import binaries
from playground.cluster import Cluster
from tests.cluster.pods import Pods, container, pod
from tests.cluster.scheduler_pair import Pair, free_port, pair
from tests.cluster.session import scratch_namespace
from tests.cluster.test_extender_simulated import bound, create, overbooked, written
from tests.cluster.test_extender_simulated import told as refused
from tests.unit.extender.authority import Authority

NAMES = Names()
SCHEDULER_USER = "system:kube-scheduler"
# As the chart sets them.
ELECTION = {
    "leaderElect": True,
    "resourceLock": "leases",
    "resourceName": SCHEDULER_NAME,
    "resourceNamespace": "default",
    "leaseDuration": "10s",
    "renewDeadline": "7s",
    "retryPeriod": "2s",
}


@pytest.fixture(scope="module")
def simulated() -> Iterator[Cluster]:
    """A control plane of its own with simulated nodes: t4-1 and a10-1."""
    cluster = Cluster(f"ways-{uuid.uuid4().hex[:4]}")
    try:
        cluster.up(simulated=True)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def api(simulated: Cluster) -> client.ApiClient:
    return config.new_client_from_config(str(simulated.kubeconfig()))


@pytest.fixture
def pods(api: client.ApiClient) -> Iterator[Pods]:
    with scratch_namespace(api, "ways") as namespace:
        yield Pods(api, namespace)


def scheduler() -> Path:
    return binaries.path("kube-scheduler")


def test_by_client_certificate(simulated: Cluster, tmp_path: Path, pods: Pods) -> None:
    authority, port = Authority(tmp_path), free_port()
    cert, key = authority.issue("extender", hosts=["127.0.0.1"])
    own, own_key = authority.issue(SCHEDULER_USER)
    tls = {"caFile": str(authority.file), "certFile": own, "keyFile": own_key}
    entry = told(Link(f"https://127.0.0.1:{port}/scheduler", tls), Asking())
    arguments = [
        f"--Extender.verbs_tls_address=127.0.0.1:{port}",
        f"--Extender.tls_cert={cert}",
        f"--Extender.tls_key={key}",
        f"--Extender.verbs_client_ca={authority.file}",
        f"--Extender.verbs_client_names={SCHEDULER_USER}",
    ]
    with pair(
        simulated.kubeconfig(), scheduler(), tmp_path, changes={"extenders": [entry]},
        arguments=arguments, tls=True,
    ):  # fmt: skip
        pods.create(pod("p", container("main", mem=22)))
        assert pods.await_pod("p", "bound", bound).spec.node_name == "a10-1"
        assert pods.placement("p").containers


def own_address() -> str:
    """An address of this machine that the API server will proxy to, which loopback is not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def test_through_the_api_servers_proxy(
    simulated: Cluster, tmp_path: Path, api: client.ApiClient, pods: Pods
) -> None:
    address = own_address()
    if not address or address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    authority, port = Authority(tmp_path), free_port()
    cert, key = authority.issue("extender", hosts=[address])
    secret = tmp_path / "secret"
    secret.write_text(secrets.token_hex(32))
    service = _service(api, address, port)
    # The scheduler shows the API server the certificate that it has anyway.
    identity = simulated.folders.certificates / "kube-scheduler"
    url = (
        f"{simulated.plan.apiserver}/api/v1/namespaces/default/services/https:{service}:verbs/proxy"
        f"/scheduler/{secret.read_text()}"
    )
    tls = {
        "caFile": str(simulated.folders.certificates / "cluster-ca.crt"),
        "certFile": f"{identity}.crt",
        "keyFile": f"{identity}.key",
    }
    arguments = [
        f"--Extender.verbs_tls_address={address}:{port}",
        f"--Extender.tls_cert={cert}",
        f"--Extender.tls_key={key}",
        f"--Extender.verbs_secret={secret}",
    ]
    entry = told(Link(url, tls), Asking())
    with pair(
        simulated.kubeconfig(), scheduler(), tmp_path, changes={"extenders": [entry]},
        arguments=arguments, tls=True,
    ):  # fmt: skip
        pods.create(pod("p", container("main", mem=22)))
        assert pods.await_pod("p", "bound", bound, timeout=90).spec.node_name == "a10-1"
        assert pods.placement("p").containers


def _service(api: client.ApiClient, address: str, port: int) -> str:
    """A Service in front of the extender, and the scheduler's right to call it by proxy."""
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    name, ports = "gpushare-extender", [{"name": "verbs", "port": port, "protocol": "TCP"}]
    core.create_namespaced_service(
        "default", {"metadata": {"name": name}, "spec": {"ports": ports}}
    )
    # The API server only proxies to addresses of pods: this one stands for the extender.
    stand_in = pod(name, container("main"), scheduler="nobody")
    core.create_namespaced_pod("default", stand_in)
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    core.patch_namespaced_pod_status(name, "default", {"status": status})
    target = {"kind": "Pod", "namespace": "default", "name": name}
    subsets = [{"addresses": [{"ip": address, "targetRef": target}], "ports": ports}]
    core.create_namespaced_endpoints("default", {"metadata": {"name": name}, "subsets": subsets})
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": [""],
        "resources": ["services/proxy"],
        "resourceNames": [f"https:{name}:verbs"],
        "verbs": ["create"],
    }
    rbac.create_namespaced_role("default", {"metadata": {"name": name}, "rules": [rule]})
    rbac.create_namespaced_role_binding(
        "default",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": SCHEDULER_USER}],
        },
    )
    return name


def test_two_pairs_and_the_leader_is_killed_in_a_burst(
    simulated: Cluster, tmp_path: Path, api: client.ApiClient, pods: Pods
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    pairs: list[Pair] = []
    try:
        for folder in folders:
            folder.mkdir()
            more = Pair(
                simulated.kubeconfig(), scheduler(), folder, changes={"leaderElection": ELECTION}
            )
            pairs.append(more)
            if len(pairs) == 1:
                pods.create(pod("led", container("main", mem=1)))
                pods.await_pod("led", "bound", bound)
        first = pairs[0]
        # 30 GiB on T4s and 88 on A10s.
        names = create(pods, [pod(f"b{i}", container("main", mem=1)) for i in range(100)])
        pods.await_pod(names[25], "bound", bound)
        assert first.extender is not None
        first.scheduler.stop(9)
        first.extender.stop(9)
        killed = time.monotonic()
        at_once = sum(bound(pods.read(name)) for name in names)
        for name in names:
            pods.await_pod(name, "bound", bound, timeout=120)
        took = time.monotonic() - killed
        print(f"\nleader killed with {at_once} of 100 placed; all placed {took:.1f} s later")
        state = written(pods)
        assert sum(len(by) for by in state.values()) == len(names) + 1
        assert not overbooked(pods, state)
        # The lease has to run out first (10 s); the goal is 20 s on a machine that has nothing else to do.
        assert took < 60
    finally:
        for each in pairs:
            each.stop()


# -- preemption ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def important(api: client.ApiClient) -> str:
    name = "gpushare-test-important"
    client.SchedulingV1Api(api).create_priority_class({"metadata": {"name": name}, "value": 1000})
    return name


def on_card(pods: Pods, name: str, index: int, mem: int) -> None:
    """A pod of no importance on that card of t4-1."""
    node = pods.core.read_node("t4-1")
    card = cards.decode(node.metadata.annotations[NAMES.cards]).cards[index]
    pods.create(pod(name, container("main", mem=mem), annotations={NAMES.card_uuid: card.uuid}))
    pods.await_pod(name, "bound", bound)


def there(pods: Pods) -> set[str]:
    items = pods.core.list_namespaced_pod(pods.namespace).items
    return {p.metadata.name for p in items if not p.metadata.deletion_timestamp}


T4: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": "t4-1"}}


def test_an_important_pod_takes_the_place_of_the_fewest_on_one_card(
    simulated: Cluster, tmp_path: Path, pods: Pods, important: str
) -> None:
    """Where kube-scheduler counts the sums itself it finds victims, and the extender the right ones."""
    resources = told(Link(), Asking(ignored=False))["managedResources"]
    with pair(simulated.kubeconfig(), scheduler(), tmp_path, entry={"managedResources": resources}):
        on_card(pods, "a", 0, 7)
        on_card(pods, "b", 0, 7)
        on_card(pods, "c", 1, 15)
        high = pod("high", container("main", mem=14), priorityClassName=important, **T4)
        pods.create(high)
        pods.await_pod("high", "bound", bound, timeout=90)
        assert there(pods) == {"a", "b", "high"}


@pytest.mark.parametrize("ignored", [True, False])
def test_for_mere_fragmentation_kube_scheduler_asks_nobody_to_leave(
    simulated: Cluster, tmp_path: Path, pods: Pods, important: str, ignored: bool
) -> None:
    """A limit of kube-scheduler's, as docs/architecture.md says: to it the node has room, so it finds no
    victims, and without any it does not ask the extender for them."""
    resources = told(Link(), Asking(ignored=ignored))["managedResources"]
    with pair(simulated.kubeconfig(), scheduler(), tmp_path, entry={"managedResources": resources}):
        on_card(pods, "a", 0, 8)
        on_card(pods, "b", 1, 8)
        high = pod("high", container("main", mem=10), priorityClassName=important, **T4)
        pods.create(high)
        pods.await_event("high", "wants 10 GiB on one card")
        pods.await_pod("high", "refused", refused)
        assert there(pods) == {"a", "b", "high"}
        # And it has its place as soon as one of them leaves by itself.
        pods.delete("a")
        pods.await_pod("high", "bound", bound, timeout=90)
