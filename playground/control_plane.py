"""The control plane's components: what each is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from playground import addresses
from playground.addresses import Addresses
from playground.certificates import CLUSTER_CA, ETCD_CA, FRONT_PROXY_CA, SERVICE_ACCOUNT_KEY
from playground.folders import Folders
from playground.processes import Component
from playground.readiness import Http

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Builds the components from the address plan, the folders and the programs."""

    plan: Addresses
    folders: Folders
    programs: Mapping[str, Path]
    group: str | None = None

    def components(self) -> tuple[Component, ...]:
        """All of them, in the order in which they need one another."""
        return (self.etcd(), self.apiserver(), self.controller_manager(), self.scheduler())

    def etcd(self) -> Component:
        peer = f"https://{self.plan.host}:{addresses.ETCD_PEER_PORT}"
        flags = {
            "name": "playground",
            "data-dir": self.folders.etcd,
            "listen-client-urls": self.plan.etcd,
            "advertise-client-urls": self.plan.etcd,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"playground={peer}",
            "trusted-ca-file": self._crt(ETCD_CA),
            "cert-file": self._crt("etcd"),
            "key-file": self._key("etcd"),
            "client-cert-auth": "true",
            "peer-trusted-ca-file": self._crt(ETCD_CA),
            "peer-cert-file": self._crt("etcd"),
            "peer-key-file": self._key("etcd"),
            "peer-client-cert-auth": "true",
            "log-level": "warn",
            # A playground's data need not outlive a power cut, and its disk is often slow.
            "unsafe-no-fsync": "true",
        }
        return self._component(ETCD, flags, f"{self.plan.etcd}/readyz", ETCD_CA, "etcd-client")

    def apiserver(self) -> Component:
        flags = {
            "bind-address": self.plan.host,
            "advertise-address": self.plan.host,
            "secure-port": addresses.APISERVER_PORT,
            "tls-cert-file": self._crt(APISERVER),
            "tls-private-key-file": self._key(APISERVER),
            "cert-dir": self.folders.certificates,
            "client-ca-file": self._crt(CLUSTER_CA),
            "etcd-servers": self.plan.etcd,
            "etcd-cafile": self._crt(ETCD_CA),
            "etcd-certfile": self._crt("etcd-client"),
            "etcd-keyfile": self._key("etcd-client"),
            "kubelet-client-certificate": self._crt("kubelet-client"),
            "kubelet-client-key": self._key("kubelet-client"),
            "kubelet-certificate-authority": self._crt(CLUSTER_CA),
            # The nodes' names resolve nowhere.
            "kubelet-preferred-address-types": "InternalIP",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "service-cluster-ip-range": self.plan.services,
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": self.folders.certificates / f"{SERVICE_ACCOUNT_KEY}.pub",
            "service-account-signing-key-file": self._key(SERVICE_ACCOUNT_KEY),
            "requestheader-client-ca-file": self._crt(FRONT_PROXY_CA),
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": self._crt("front-proxy-client"),
            "proxy-client-key-file": self._key("front-proxy-client"),
            "profiling": "false",
        }
        if not self.plan.real:
            # A loopback address can't be an endpoint of the `kubernetes` service; no pod needs it.
            flags["endpoint-reconciler-type"] = "none"
        ready = f"{self.plan.apiserver}/readyz"
        return self._component(APISERVER, flags, ready, CLUSTER_CA, "admin")

    def controller_manager(self) -> Component:
        kubeconfig = self.folders.kubeconfig_of(CONTROLLER_MANAGER)
        flags = {
            **self._served(CONTROLLER_MANAGER, addresses.CONTROLLER_MANAGER_PORT),
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "leader-elect": "false",
            "use-service-account-credentials": "true",
            "root-ca-file": self._crt(CLUSTER_CA),
            "service-account-private-key-file": self._key(SERVICE_ACCOUNT_KEY),
            "cluster-signing-cert-file": self._crt(CLUSTER_CA),
            "cluster-signing-key-file": self._key(CLUSTER_CA),
            "requestheader-client-ca-file": self._crt(FRONT_PROXY_CA),
        }
        ready = f"https://{self.plan.host}:{addresses.CONTROLLER_MANAGER_PORT}/healthz"
        return self._component(CONTROLLER_MANAGER, flags, ready, CLUSTER_CA, "admin")

    def scheduler(self) -> Component:
        kubeconfig = self.folders.kubeconfig_of(SCHEDULER)
        flags = {
            **self._served(SCHEDULER, addresses.SCHEDULER_PORT),
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "leader-elect": "false",
            "requestheader-client-ca-file": self._crt(FRONT_PROXY_CA),
        }
        ready = f"https://{self.plan.host}:{addresses.SCHEDULER_PORT}/healthz"
        return self._component(SCHEDULER, flags, ready, CLUSTER_CA, "admin")

    def _served(self, name: str, port: int) -> dict[str, object]:
        return {
            "bind-address": self.plan.host,
            "secure-port": port,
            "tls-cert-file": self._crt(name),
            "tls-private-key-file": self._key(name),
            "client-ca-file": self._crt(CLUSTER_CA),
        }

    def _component(
        self, name: str, flags: Mapping[str, object], ready: str, authority: str, client: str
    ) -> Component:
        certificates = (self._crt(authority), self._crt(client), self._key(client))
        return Component(
            name=name,
            command=(str(self.programs[name]), *(f"--{k}={v}" for k, v in flags.items())),
            ready=Http(ready, certificates),
            group=self.group,
        )

    def _crt(self, name: str) -> Path:
        return self.folders.certificates / f"{name}.crt"

    def _key(self, name: str) -> Path:
        return self.folders.certificates / f"{name}.key"
