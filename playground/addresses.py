"""The addresses of one playground, all derived from its name.

Everything lies in one /16 network, so that two playgrounds can run beside each other, and the
control plane has an address of its own, so that no port can be taken by another program.
"""

from __future__ import annotations

import ipaddress
import zlib
from dataclasses import dataclass

DEFAULT_NAME = "default"
_FIRST_SLOT, _SLOTS = 190, 60  # 10.190.0.0/16 to 10.249.0.0/16
_FIRST_NODE = 11
MAX_NODES = 64

APISERVER_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259
KWOK_PORT = 10247
KUBELET_HEALTH_PORT = 10248
KUBE_PROXY_HEALTH_PORT = 10256


@dataclass(frozen=True, slots=True)
class Addresses:
    """The address plan of one playground.

    ``real`` is whether it has nodes with a network: without (simulated nodes, no root) the control
    plane listens on a loopback address of its own, which needs no interface.
    """

    slot: int
    real: bool = True

    @classmethod
    def of(cls, name: str, real: bool = True) -> Addresses:
        """The plan of the playground called ``name``; the default one has the first slot."""
        if name == DEFAULT_NAME:
            return cls(_FIRST_SLOT, real)
        return cls(_FIRST_SLOT + 1 + zlib.crc32(name.encode()) % (_SLOTS - 1), real)

    @property
    def network(self) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network(f"10.{self.slot}.0.0/16")

    @property
    def host(self) -> str:
        """The host's own address: the API server, and how nodes and pods reach the host."""
        return f"10.{self.slot}.0.1" if self.real else f"127.{self.slot}.0.1"

    @property
    def link_prefix(self) -> int:
        """Prefix length of the network that the host and the nodes share."""
        return 24

    @property
    def services(self) -> str:
        return f"10.{self.slot}.32.0/20"

    @property
    def kubernetes_service(self) -> str:
        """ClusterIP of `kubernetes.default`, always the first of the services."""
        return f"10.{self.slot}.32.1"

    @property
    def pods(self) -> str:
        """The pods of all nodes."""
        return f"10.{self.slot}.64.0/18"

    @property
    def simulated_pods(self) -> str:
        """Addresses that pods on simulated nodes are said to have."""
        return f"10.{self.slot}.128.0/17"

    @property
    def apiserver(self) -> str:
        return f"https://{self.host}:{APISERVER_PORT}"

    @property
    def etcd(self) -> str:
        return f"https://{self.host}:{ETCD_PORT}"

    @property
    def interface(self) -> str:
        """The one interface that a playground adds to the host."""
        return f"gpushare{self.slot - _FIRST_SLOT}"

    def node(self, index: int) -> str:
        """The address of the node with this place in the list of nodes."""
        return f"10.{self.slot}.0.{_FIRST_NODE + _checked(index)}"

    def pods_of(self, index: int) -> str:
        return f"10.{self.slot}.{64 + _checked(index)}.0/24"


def _checked(index: int) -> int:
    if not 0 <= index < MAX_NODES:
        raise ValueError(f"a playground has at most {MAX_NODES} nodes")
    return index
