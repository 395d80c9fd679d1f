"""What components are started with."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from gpushare import cards as published
from gpushare.cards import Card
from gpushare.names import Names
from playground.addresses import Addresses
from playground.binaries import CLUSTER
from playground.control_plane import ControlPlane
from playground.folders import Folders
from playground.kwok_stages import stages
from playground.node_components import node_components
from playground.node_configuration import NodeFiles, containerd, kube_proxy, kubelet, write_changed
from playground.nodes import Node
from playground.simulated import MARK, SimulatedNode, kwok_component

PLAN = Addresses.of("default")
FOLDERS = Folders(Path("/state/default"))
PROGRAMS = {name: Path("/bin", name) for name in (*CLUSTER, "kwok")}


@pytest.fixture
def files() -> NodeFiles:
    return NodeFiles(
        node=Node("a10-1", "a10"),
        index=1,
        plan=PLAN,
        root=FOLDERS.node("a10-1"),
        certificates=FOLDERS.certificates,
        group="playground/a10-1",
    )


def flags(command: tuple[str, ...]) -> dict[str, str]:
    return dict(part.removeprefix("--").split("=", 1) for part in command if part.startswith("--"))


def control_plane(real: bool = True) -> dict[str, dict[str, str]]:
    plane = ControlPlane(Addresses.of("default", real), FOLDERS, PROGRAMS)
    return {c.name: flags(c.command) for c in plane.components()}


def test_api_server_authorizes_and_authenticates_everybody() -> None:
    apiserver = control_plane()["kube-apiserver"]
    assert apiserver["authorization-mode"] == "Node,RBAC"
    assert "NodeRestriction" in apiserver["enable-admission-plugins"]
    assert apiserver["requestheader-allowed-names"] == "front-proxy-client"
    assert apiserver["kubelet-certificate-authority"].endswith("cluster-ca.crt")
    assert apiserver["requestheader-client-ca-file"] != apiserver["client-ca-file"]


def test_etcd_takes_no_client_without_a_certificate() -> None:
    etcd = control_plane()["etcd"]
    assert etcd["client-cert-auth"] == etcd["peer-client-cert-auth"] == "true"
    assert all(etcd[k].startswith("https://") for k in ("listen-client-urls", "listen-peer-urls"))


def test_each_component_uses_its_own_kubeconfig() -> None:
    components = control_plane()
    for name in ("kube-controller-manager", "kube-scheduler"):
        assert components[name]["kubeconfig"] == str(FOLDERS.kubeconfig_of(name))
        assert components[name]["authorization-kubeconfig"] == str(FOLDERS.kubeconfig_of(name))


def test_simulated_control_plane_needs_no_interface() -> None:
    components = control_plane(real=False)
    assert components["kube-apiserver"]["bind-address"] == "127.190.0.1"
    assert components["kube-apiserver"]["endpoint-reconciler-type"] == "none"
    assert "endpoint-reconciler-type" not in control_plane()["kube-apiserver"]


def test_containerd_configuration_is_toml_with_cdi(files: NodeFiles) -> None:
    config = tomllib.loads(containerd(files, Path("/usr/sbin/runc"), Path('/odd "folder"')))
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert config["version"] == 3
    assert runtime["enable_cdi"] is True
    assert runtime["cdi_spec_dirs"] == ["/var/run/cdi"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"]["bin_dirs"] == ['/odd "folder"']
    assert Path(config["root"]).is_relative_to(files.root)
    runc = runtime["containerd"]["runtimes"]["runc"]["options"]
    assert runc == {"BinaryName": "/usr/sbin/runc", "SystemdCgroup": False}


def test_kubelet_asks_the_api_server_about_its_callers(files: NodeFiles) -> None:
    config = kubelet(files)
    assert config["authentication"]["anonymous"]["enabled"] is False
    assert config["authorization"]["mode"] == "Webhook"
    assert config["address"] == "10.190.0.12"
    assert config["cgroupRoot"] == "/playground/a10-1"


def test_kube_proxy_leaves_the_machines_settings_alone(files: NodeFiles) -> None:
    config = kube_proxy(files, Path("/k"))
    assert config["conntrack"]["maxPerCore"] == config["conntrack"]["min"] == 0
    assert config["clusterCIDR"] == PLAN.pods


def test_node_components_enter_the_node_and_its_control_group(files: NodeFiles) -> None:
    components = node_components(files, FOLDERS, PROGRAMS)
    assert [c.name for c in components] == ["containerd@a10-1", "kubelet@a10-1", "kube-proxy@a10-1"]
    for component in components:
        assert component.enter[0] == "nsenter"
        assert component.group == "playground/a10-1/system"
    assert components[0].environment["PATH"].startswith("/bin:")


def test_unchanged_file_is_not_written(tmp_path: Path) -> None:
    contents = {tmp_path / "deep" / "a": "1", tmp_path / "b": "2"}
    assert write_changed(contents) == list(contents)
    times = [path.stat().st_mtime_ns for path in contents]
    assert write_changed(contents) == []
    assert [path.stat().st_mtime_ns for path in contents] == times
    assert write_changed({**contents, tmp_path / "b": "3"}) == [tmp_path / "b"]


def test_simulated_node_publishes_its_cards_as_a_real_one_does() -> None:
    cards = tuple(Card(f"GPU-{i}", i, i, "NVIDIA A10", 23028) for i in range(4))
    manifest = SimulatedNode("n", "a10", cards, tainted=True).manifest()
    names = Names()
    assert published.decode(manifest["metadata"]["annotations"][names.cards]).cards == cards
    assert manifest["status"]["allocatable"][names.gpu_mem] == "88"
    assert manifest["status"]["allocatable"][names.gpu_percent] == "400"
    assert manifest["spec"]["taints"][0]["effect"] == "NoSchedule"
    assert MARK in manifest["metadata"]["annotations"]


def test_simulated_node_without_cards_has_no_such_resource() -> None:
    assert set(SimulatedNode("n", "cpu").manifest()["status"]["allocatable"]) == {
        "cpu",
        "memory",
        "pods",
    }


def test_kwok_manages_marked_nodes_alone() -> None:
    kwok = flags(kwok_component(PLAN, FOLDERS, PROGRAMS).command)
    assert kwok["manage-all-nodes"] == "false"
    assert kwok["manage-nodes-with-annotation-selector"] == f"{MARK}=fake"


def test_stages_are_documents_that_kwok_can_read() -> None:
    documents = list(yaml.safe_load_all(stages()))
    assert [d["kind"] for d in documents] == ["Stage"] * 4
    for document in documents:
        json.dumps(document)
        assert ("delete" in document["spec"]["next"]) != (
            "statusTemplate" in document["spec"]["next"]
        )
