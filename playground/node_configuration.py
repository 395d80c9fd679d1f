"""The configuration files of one node: containerd, CNI, kubelet, kube-proxy. Pure rendering."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playground import addresses
from playground.addresses import Addresses
from playground.nodes import Node

# Paths as the node's own mounts have them.
CONTAINERD_STATE = Path("/run/containerd")
CONTAINERD_SOCKET = CONTAINERD_STATE / "containerd.sock"
CDI_FOLDER = "/var/run/cdi"
KUBELET_ROOT = Path("/var/lib/kubelet")
PAUSE_IMAGE = "docker.io/local/pause:1"


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Where one node's files lie, and the node's place in the address plan."""

    node: Node
    index: int
    plan: Addresses
    root: Path  # the node's folder in the playground's state
    certificates: Path
    group: str  # the node's control group

    @property
    def address(self) -> str:
        return self.plan.node(self.index)

    @property
    def containerd_config(self) -> Path:
        return self.root / "containerd.toml"

    @property
    def kubelet_config(self) -> Path:
        return self.root / "kubelet.json"

    @property
    def kube_proxy_config(self) -> Path:
        return self.root / "kube-proxy.json"

    @property
    def cni_folder(self) -> Path:
        return self.root / "cni"

    @property
    def resolv_conf(self) -> Path:
        return self.root / "resolv.conf"

    def contents(self, runc: Path, cni_programs: Path, proxy_access: Path) -> dict[Path, str]:
        """What belongs into each file. ``proxy_access``: the kubeconfig of kube-proxy."""
        return {
            self.containerd_config: containerd(self, runc, cni_programs),
            self.cni_folder / "10-playground.conflist": _text(cni(self)),
            self.kubelet_config: _text(kubelet(self)),
            self.kube_proxy_config: _text(kube_proxy(self, proxy_access)),
            # No name server: a look-up from a pod then fails at once, and not after a time-out.
            self.resolv_conf: "# The playground's cluster has no DNS.\n",
        }


def write_changed(contents: Mapping[Path, str]) -> list[Path]:
    """Write the files that are not as they should be; returns them.

    The others are not touched: kube-proxy ends when its file is written, even with the same text.
    """
    changed = [path for path, text in contents.items() if _read(path) != text]
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents[path])
    return changed


def containerd(files: NodeFiles, runc: Path, cni_programs: Path) -> str:
    """containerd's configuration (version 3, containerd 2)."""
    return f"""\
version = 3
root = {json.dumps(str(files.root / "containerd"))}
state = "{CONTAINERD_STATE}"
# Its opt plugin makes /opt/containerd on the host; the others need what a playground lacks.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.erofs",
]

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["{CDI_FOLDER}"]
# Root in a small virtual machine or container often lacks CAP_SYS_RESOURCE; without this line no
# sandbox starts there ("can't get final child's PID from pipe: EOF").
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [{json.dumps(str(cni_programs))}]
conf_dir = {json.dumps(str(files.cni_folder))}

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = {json.dumps(str(runc))}
SystemdCgroup = false
"""


def cni(files: NodeFiles) -> dict[str, Any]:
    """Each pod on a link of its own, routed: no bridge, so no bridge-netfilter module is needed."""
    return {
        "cniVersion": "1.0.0",
        "name": "playground",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": files.plan.pods_of(files.index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }


def kubelet(files: NodeFiles) -> dict[str, Any]:
    """KubeletConfiguration (kubelet.config.k8s.io/v1beta1)."""
    certificate = files.certificates / f"kubelet-{files.node.name}"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": files.address,
        "healthzBindAddress": files.address,
        "healthzPort": addresses.KUBELET_HEALTH_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(files.certificates / "cluster-ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{certificate}.crt",
        "tlsPrivateKeyFile": f"{certificate}.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{files.group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Memory alone: all nodes share the machine's disk, and none may evict pods because of what
        # others store.
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "oomScoreAdj": 0,
        "resolvConf": str(files.resolv_conf),
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": str(files.root / "volume-plugins"),
        "serializeImagePulls": False,
        "registerNode": True,
        "clusterDomain": "cluster.local",
        # Shorter than the default (10 s), so that tests see a change soon.
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
    }


def kube_proxy(files: NodeFiles, kubeconfig: Path) -> dict[str, Any]:
    """KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1)."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": files.node.name,
        "bindAddress": files.address,
        "healthzBindAddress": f"{files.address}:{addresses.KUBE_PROXY_HEALTH_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "oomScoreAdj": 0,
        # Calls to a ClusterIP from elsewhere (the host) get the node's address, so that the answer
        # comes back through this node.
        "clusterCIDR": files.plan.pods,
        "detectLocalMode": "ClusterCIDR",
        "iptables": {"localhostNodePorts": False, "minSyncPeriod": "0s"},
        # These settings belong to the machine, and a node's network namespace can't write them.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
