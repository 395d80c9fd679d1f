"""One node's processes: containerd, kubelet and kube-proxy, inside the node's namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from playground import addresses
from playground.folders import Folders
from playground.node_configuration import (
    CONTAINERD_SOCKET,
    KUBELET_ROOT,
    NodeFiles,
)
from playground.node_space import enter
from playground.processes import Component
from playground.readiness import Http, Socket


def containerd_name(node: str) -> str:
    return f"containerd@{node}"


def node_components(
    files: NodeFiles, folders: Folders, programs: Mapping[str, Path]
) -> tuple[Component, ...]:
    """Containerd first: the kubelet asks it at once."""
    name = files.node.name
    inside = enter(folders, name)
    group = f"{files.group}/system"
    containerd = Component(
        name=containerd_name(name),
        command=(str(programs["containerd"]), "--config", str(files.containerd_config)),
        ready=Socket(CONTAINERD_SOCKET),
        enter=inside,
        group=group,
        # containerd finds its shim by PATH.
        environment={
            "PATH": f"{programs['containerd-shim-runc-v2'].parent}:/usr/local/sbin:/usr/sbin"
            ":/usr/local/bin:/usr/bin:/sbin:/bin"
        },
    )
    kubelet = Component(
        name=f"kubelet@{name}",
        command=(
            str(programs["kubelet"]),
            f"--config={files.kubelet_config}",
            f"--kubeconfig={folders.kubeconfig_of(f'kubelet-{name}')}",
            f"--root-dir={KUBELET_ROOT}",
            f"--hostname-override={name}",
            f"--node-ip={files.address}",
            f"--node-labels=node.kubernetes.io/instance-type={files.node.instance_type}",
        ),
        ready=Http(f"http://{files.address}:{addresses.KUBELET_HEALTH_PORT}/healthz"),
        enter=inside,
        group=group,
    )
    kube_proxy = Component(
        name=f"kube-proxy@{name}",
        command=(str(programs["kube-proxy"]), f"--config={files.kube_proxy_config}"),
        ready=Http(f"http://{files.address}:{addresses.KUBE_PROXY_HEALTH_PORT}/healthz"),
        enter=inside,
        group=group,
    )
    return (containerd, kubelet, kube_proxy)
