"""The doctor, at a real cluster: nothing is wrong with it, and what is broken in it is found.

A node of a name and a lease alone stands in for machines that the playground does not have.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes import client

from gpushare.cli.cluster import Target
from gpushare.cli.doctor.checks import ALL
from gpushare.cli.doctor.finding import Level, examine
from gpushare.cli.doctor.gather import gather
from playground.cluster import Cluster
from playground.install import NAMESPACE
from tests.cluster.inspection import gpushare
from tests.cluster.pods import NAMES, Pods, container, pod
from tests.cluster.session import scratch_namespace

Told = Callable[[str], str]


@pytest.fixture
def told(api: client.ApiClient) -> Told:
    """What a check says of the cluster as it is now; '' where all is well."""
    target = Target(NAMESPACE, str(Cluster().kubeconfig()))

    def tell(name: str) -> str:
        (result,) = examine(
            gather(target.connection, NAMESPACE), [check for check in ALL if check.name == name]
        )
        return "\n".join(f"{f.level}: {f.text}" for f in result.findings if f.level is not Level.OK)

    return tell


@contextmanager
def config_map(api: client.ApiClient, name: str, key: str, old: str, new: str) -> Iterator[None]:
    """A setting changed where the doctor reads it; the pods go on with what they have read."""
    core = client.CoreV1Api(api)
    text = core.read_namespaced_config_map(name, NAMESPACE).data[key]
    assert old in text
    core.patch_namespaced_config_map(name, NAMESPACE, {"data": {key: text.replace(old, new)}})
    yield
    core.patch_namespaced_config_map(name, NAMESPACE, {"data": {key: text}})


def test_nothing_is_wrong_with_the_playground(api: client.ApiClient) -> None:
    """By the command itself, whose exit status would be 1."""
    text = gpushare("doctor")
    assert "ERROR" not in text
    assert "cannot be checked" not in text


def test_where_it_is_not_installed(api: client.ApiClient) -> None:
    target = Target("default", str(Cluster().kubeconfig()))
    results = {r.check.name: r for r in examine(gather(target.connection, "default"), ALL)}
    assert results["parts"].level is Level.ERROR
    assert results["state"].level is Level.ERROR


def test_unit_and_managed_resources(api: client.ApiClient, told: Told) -> None:
    with config_map(api, "gpushare-device-plugin", "config.json", '"GiB"', '"MiB"'):
        assert "the extender's unit is GiB, the device plugin's is MiB" in told("units")
    with config_map(
        api, "gpushare-user-scheduler", "config.yaml", NAMES.gpu_mem, "gpushare/gpu-memory"
    ):
        assert f"does not ask the extender about {NAMES.gpu_mem}" in told("resources")
    assert told("units") == told("resources") == ""


def test_pods_that_went_past_the_extender(api: client.ApiClient, told: Told) -> None:
    """In a namespace that the webhook leaves alone: it would have put them right."""
    with scratch_namespace(api, "past") as namespace:
        client.CoreV1Api(api).patch_namespace(
            namespace, {"metadata": {"labels": {f"{NAMES.prefix}/admission": "disabled"}}}
        )
        pods = Pods(api, namespace)
        pods.create(pod("past", container("main", mem=3), scheduler="default-scheduler"))
        pods.await_pod("past", "bound", lambda found: bool(found.spec.node_name))
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        pods.create(pod("lost", {**container("main", mem=3), "env": env}, scheduler="nobody"))
        assert f"{namespace}/past was bound to" in told("placements")
        assert f"{namespace}/lost asks for a slice from 'nobody'" in told("scheduler-name")
        assert f"{namespace}/lost sets NVIDIA_VISIBLE_DEVICES" in told("variables")


def test_rights_and_policies(api: client.ApiClient, told: Told) -> None:
    rbac, admission = client.RbacAuthorizationV1Api(api), client.AdmissionregistrationV1Api(api)
    binding = rbac.read_cluster_role_binding("gpushare-state-reader")
    policy = admission.read_validating_admission_policy_binding("gpushare-agents")
    rbac.delete_cluster_role_binding("gpushare-state-reader")
    admission.delete_validating_admission_policy_binding("gpushare-agents")
    try:
        assert "gpushare-state-reader may not get /v1/nodes" in told("rights")
        assert "no admission policy gpushare-agents is in force" in told("policies")
    finally:
        for one in (binding, policy):
            one.metadata = client.V1ObjectMeta(
                name=one.metadata.name,
                labels=one.metadata.labels,
                annotations=one.metadata.annotations,
            )
        rbac.create_cluster_role_binding(binding)
        admission.create_validating_admission_policy_binding(policy)
    assert told("rights") == told("policies") == ""


def expired() -> tuple[str, str]:
    """A certificate that has ended, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "old")])
    end = datetime.now(UTC) - timedelta(days=3)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=30))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def test_certificate_that_has_ended(api: client.ApiClient, told: Told) -> None:
    core = client.CoreV1Api(api)
    certificate, key = expired()
    body = {
        "metadata": {"name": "webhook-old"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key},
    }
    core.create_namespaced_secret(NAMESPACE, body)
    try:
        assert "the certificate of the Secret webhook-old ended" in told("certificates")
    finally:
        core.delete_namespaced_secret("webhook-old", NAMESPACE)


@pytest.fixture
def machine(api: client.ApiClient) -> Iterator[str]:
    """A node that is Ready by its word alone: an old kubelet, Docker, another plugin, a fast clock."""
    core, leases = client.CoreV1Api(api), client.CoordinationV1Api(api)
    name = f"old-{uuid.uuid4().hex[:6]}"
    taint = {"key": "example.org/keep-off", "effect": "NoSchedule"}
    core.create_node({"metadata": {"name": name}, "spec": {"taints": [taint]}})
    amounts = {NAMES.gpu_mem: "30", "nvidia.com/gpu": "2", "pods": "10"}
    info = dict.fromkeys(
        ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "kubeProxyVersion",
         "operatingSystem", "architecture"), "",
    )  # fmt: skip
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": _at(0)}],
        "nodeInfo": {
            **info,
            "kubeletVersion": "v1.27.4",
            "containerRuntimeVersion": "docker://20.10.9",
        },
    }
    core.patch_node_status(name, {"status": status})
    lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": _at(90)}}
    leases.create_namespaced_lease("kube-node-lease", lease)
    yield name
    core.delete_node(name)
    # The lease goes with the node where it names it as its owner; this one does not.
    leases.delete_namespaced_lease(name, "kube-node-lease")


def _at(seconds: float) -> str:
    when = datetime.now(UTC) + timedelta(seconds=seconds)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_node_on_which_much_is_wrong(machine: str, told: Told) -> None:
    assert f"the kubelet of {machine} is 1.27" in told("versions")
    assert f"{machine} runs docker://20.10.9, which heeds no CDI" in told("cdi")
    assert f"{machine} offers nvidia.com/gpu (NVIDIA's device plugin)" in told("plugins")
    assert f"{machine} publishes no cards" in told("cards")
    assert f"{machine} has the taint example.org/keep-off" in told("places")
    assert f"the clock of {machine} is" in told("clocks")


def test_a_hub_of_zero_to_jupyterhub(api: client.ApiClient, told: Told) -> None:
    core = client.CoreV1Api(api)
    with scratch_namespace(api, "hub-check") as namespace:
        manifest = pod("hub", container("main"), scheduler="nobody")
        manifest["metadata"]["labels"] = {"app": "jupyterhub", "component": "hub"}
        core.create_namespaced_pod(namespace, manifest)
        core.patch_namespaced_pod_status("hub", namespace, {"status": {"phase": "Running"}})
        settings: dict[str, Any] = {
            "extender_url": "https://gpushare-extender.elsewhere.svc:8443",
            "extender_ca": "/ca.crt",
        }
        config = {"JupyterHub": {"spawner_class": "gpushare"}, "GPUShareSpawner": settings}
        values(core, namespace, {"hub": {"config": config, "consecutiveFailureLimit": 5}})
        assert "is installed in gpushare" in told("spawner")
        assert f"the Hub in {namespace} may not read the state API" in told("hub-rights")
        assert told("failure-limit") == ""

        values(core, namespace, {"hub": {"consecutiveFailureLimit": 5}})
        notebook = pod("jupyter-erin", container("main", mem=3), scheduler="nobody")
        notebook["metadata"]["labels"] = {"component": "singleuser-server"}
        core.create_namespaced_pod(namespace, notebook)
        assert "ends itself after 5 failed starts" in told("failure-limit")


def values(core: client.CoreV1Api, namespace: str, said: dict[str, Any]) -> None:
    """As the chart keeps them."""
    text = base64.b64encode(yaml.safe_dump(said).encode()).decode()
    body = {"metadata": {"name": "hub"}, "data": {"values.yaml": text}}
    if namespace_has(core, namespace):
        core.replace_namespaced_secret("hub", namespace, body)
    else:
        core.create_namespaced_secret(namespace, body)


def namespace_has(core: client.CoreV1Api, namespace: str) -> bool:
    found = core.list_namespaced_secret(namespace, field_selector="metadata.name=hub")
    return bool(found.items)
