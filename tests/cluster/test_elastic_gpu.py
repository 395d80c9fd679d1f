"""Elastic GPU's kinds on a real API server; pods are placed on simulated nodes, which run nothing."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config, watch

from extender.claims.limits import fill
from gpushare import cards
from gpushare.cards import Card, NodeCards
from gpushare.dialects.claims import Claims
from gpushare.names import SCHEDULER_NAME, Names
from gpushare.placement import decode
from playground import binaries
from playground.cluster import Cluster
from playground.simulated import SimulatedNode, make_nodes
from tests.cluster.pods import Pods
from tests.cluster.scheduler_pair import pair
from tests.cluster.session import scratch_namespace
from tests.unit.chart.rendering import CHART

GROUP, VERSION = "elasticgpu.io", "v1alpha1"
NAMES = Names(dialects=("elastic",))
CARDS = tuple(Card(f"GPU-egpu-{i}", i, i, "Tesla T4", 15360) for i in range(2))


class Node(SimulatedNode):
    """A simulated node that serves Elastic GPU's resources."""

    def manifest(self, names: Names | None = None) -> dict[str, Any]:
        found = super().manifest(names)
        served = tuple(resource.name for resource in NAMES.foreign)
        annotation = cards.encode(NodeCards(self.cards, also=served))
        found["metadata"]["annotations"][NAMES.cards] = annotation
        memory = sum(card.memory for card in self.cards)
        resources = {f"{GROUP}/gpu-memory": str(memory), f"{GROUP}/gpu-core": "200"}
        found["status"]["allocatable"] |= resources
        found["status"]["capacity"] |= resources
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    one = Cluster(f"egpu-{uuid.uuid4().hex[:4]}")
    try:
        one.up(simulated=True)
        install_kinds(one)
        make_nodes(one.api(), [Node("egpu-1", "sim", CARDS)])
        yield one
    finally:
        one.down()


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> client.ApiClient:
    return config.new_client_from_config(str(cluster.kubeconfig()))


@pytest.fixture
def pods(api: client.ApiClient, cluster: Cluster, tmp_path: Path) -> Iterator[Pods]:
    """A namespace, with the extender and its kube-scheduler at work."""
    managed = [{"name": resource, "ignoredByScheduler": True} for resource in NAMES.all_resources]
    with (
        pair(
            cluster.kubeconfig(),
            binaries.path("kube-scheduler"),
            tmp_path,
            entry={"managedResources": managed},
            arguments=["--Extender.dialects=elastic"],
        ),
        scratch_namespace(api, "egpu") as namespace,
    ):
        yield Pods(api, namespace)


def install_kinds(cluster: Cluster) -> None:
    """The chart's own definitions, on the API server."""
    helm, kubectl = binaries.path("helm"), binaries.path("kubectl")
    rendered = subprocess.run(
        [
            str(helm), "template", "gpushare", str(CHART), "--set", "images.registry=none",
            "--set", "dialects={elastic}", "--show-only", "templates/elastic-gpu/crds.yaml",
        ],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    kinds = [
        d for d in yaml.safe_load_all(rendered) if d and d["kind"] == "CustomResourceDefinition"
    ]
    assert len(kinds) == 4
    access = ["--kubeconfig", str(cluster.kubeconfig())]
    subprocess.run(
        [str(kubectl), *access, "apply", "-f", "-"],
        input=yaml.safe_dump_all(kinds), text=True, check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        [
            str(kubectl), *access, "wait", "--for=condition=Established", "crd", "--all",
            "--timeout=60s",
        ],
        text=True, check=True, capture_output=True,
    )  # fmt: skip


def head(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": name}}


def claim_of(egpu_class: str) -> dict[str, Any]:
    requests = {f"{GROUP}/gpu-memory": 4096, f"{GROUP}/gpu-core": 20}
    spec = {"elasticGPUClassName": egpu_class, "resources": {"requests": requests}}
    return {**head("ElasticGPUClaim", "small"), "spec": spec}


class Objects:
    """Elastic GPU's objects in one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.custom = client.CustomObjectsApi(api)
        self.place = (GROUP, VERSION, namespace, "elasticgpuclaims")

    def create_class(self, name: str, policy: str) -> dict[str, Any]:
        made = {
            **head("ElasticGPUClass", name),
            "provisioner": "gpushare.provisioner.elasticgpu.io",
            "reclaimPolicy": policy,
        }
        self.custom.create_cluster_custom_object(GROUP, VERSION, "elasticgpuclasses", made)
        return made

    def await_claim(self, phase: str) -> Any:
        stream = watch.Watch().stream(
            self.custom.list_namespaced_custom_object, *self.place, timeout_seconds=90
        )
        for event in stream:
            if event["object"].get("status", {}).get("phase") == phase:
                return event["object"]
        raise AssertionError(f"the claim is not {phase} after 90 s")

    def await_no_claim(self) -> None:
        for event in watch.Watch().stream(
            self.custom.list_namespaced_custom_object, *self.place, timeout_seconds=30
        ):
            if event["type"] == "DELETED":
                return
        assert not self.custom.list_namespaced_custom_object(*self.place)["items"]

    def await_slice(self, name: str, holds: str) -> Any:
        """The slice's object in the phase ``holds``; '' waits until it is gone."""
        for event in watch.Watch().stream(
            self.custom.list_cluster_custom_object,
            GROUP,
            VERSION,
            "elasticgpus",
            field_selector=f"metadata.name={name}",
            timeout_seconds=30,
        ):
            gone = event["type"] == "DELETED"
            if gone and not holds:
                return None
            if not gone and event["object"].get("status", {}).get("phase") == holds:
                return event["object"]
        found = self.custom.list_cluster_custom_object(
            GROUP, VERSION, "elasticgpus", field_selector=f"metadata.name={name}"
        )["items"]
        assert not holds, f"{name} is not {holds}: {found}"
        assert not found
        return None


def claimer(claim: dict[str, Any], egpu_class: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A pod that names the claim, as the webhook makes it."""
    plain = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "claimer", "annotations": {f"egpuc.{GROUP}/main": "small"}},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "main", "image": "example.org/none"}],
        },
    }
    known = Claims({(namespace, "small"): claim}, {egpu_class["metadata"]["name"]: egpu_class})
    filled, _ = fill(plain, namespace, known)
    return dict(filled)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_claim_s_life(api: client.ApiClient, pods: Pods, policy: str) -> None:
    """Pending, Bound with the pod, Released after it; the slice's object as the class says."""
    objects = Objects(api, pods.namespace)
    egpu_class = objects.create_class(f"class-{pods.namespace}", policy)
    claim = claim_of(egpu_class["metadata"]["name"])
    with pytest.raises(client.ApiException, match="elasticGPUClassName"):
        objects.custom.create_namespaced_custom_object(*objects.place, {**claim, "spec": {}})
    objects.custom.create_namespaced_custom_object(*objects.place, claim)
    objects.await_claim("Pending")
    pods.create(claimer(claim, egpu_class, pods.namespace))
    bound = objects.await_claim("Bound")
    pod = pods.read("claimer")
    (share,) = decode(pod.metadata.annotations[NAMES.placement]).containers[0].shares
    assert (share.mib, share.percent) == (4096, 20)
    assert pod.metadata.annotations[f"{GROUP}/container-main"] == share.card[-1]
    assert pod.metadata.labels[f"{GROUP}/assumed"] == "true", "set by the Binding"
    name = bound["spec"]["elasticGPUName"]
    made = objects.await_slice(name, "Bound")
    assert made["spec"]["gpuShare"]["gpuName"] == share.card.lower()
    assert made["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    gpu = objects.custom.get_cluster_custom_object(GROUP, VERSION, "gpus", share.card.lower())
    assert gpu["spec"]["nodeName"] == "egpu-1"
    objects.custom.delete_namespaced_custom_object(*objects.place, "small")
    leaving = objects.custom.get_namespaced_custom_object(*objects.place, "small")
    assert leaving["metadata"]["deletionTimestamp"], "its pod is still there"
    pods.delete("claimer", grace=1)
    pods.await_gone("claimer")
    objects.await_no_claim()
    objects.await_slice(name, "Released" if policy == "Retain" else "")
