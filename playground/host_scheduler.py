"""The product's scheduling half as processes of this machine, for clusters that run no containers.

The same kube-scheduler, the same extender and the same settings as in the chart; only that nothing
of it is in a pod, so the extender acts in the administrator's name and answers on loopback.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import requests

from gpushare.names import SCHEDULER_NAME, Names
from playground import binaries
from playground.cluster import Cluster, PlaygroundError
from playground.processes import Component
from playground.readiness import Http

EXTENDER, SCHEDULER = "gpushare-extender", "gpushare-user-scheduler"
_VERBS_PORT, _STATE_PORT, _SCHEDULER_PORT = 39999, 8443, 10269
_READER = "playground-state-reader"
_NAMESPACE = "default"


def scheduler_configuration(kubeconfig: Path, verbs: str, extender: bool = True) -> dict[str, Any]:
    """A KubeSchedulerConfiguration as the chart writes it, with the extender at ``verbs``.

    Without ``extender`` it is the same scheduler alone, for comparisons.
    """
    configuration: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "profiles": [{"schedulerName": SCHEDULER_NAME}],
    }
    if extender:
        configuration["extenders"] = [
            {
                "urlPrefix": f"http://{verbs}/scheduler",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "weight": 100,
                "nodeCacheCapable": True,
                "httpTimeout": "10s",
                "ignorable": False,
                "managedResources": [
                    {"name": name, "ignoredByScheduler": True} for name in Names().resources
                ],
            }
        ]
    return configuration


class HostScheduler:
    """Both processes beside one playground."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.address = f"127.{cluster.plan.slot}.0.3"

    def start(self) -> None:
        """Start what does not run, and wait until pods can be placed."""
        processes = self.cluster.processes
        for component in self._components():
            if processes.pid(component.name) is None:
                processes.start(component)
            processes.await_ready(component)
        self._allow_reading()

    def state(self) -> dict[str, Any]:
        """``GET /v1/nodes`` of the extender."""
        token = self.cluster.api().create(
            f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/{_READER}/token",
            {"spec": {"expirationSeconds": 600}},
        )["status"]["token"]
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(
                f"http://{self.address}:{_STATE_PORT}/v1/nodes",
                headers={"Authorization": f"Bearer {token}"},
                timeout=10,
            )
        if answer.status_code != 200:
            log = self.cluster.processes.log(EXTENDER)
            raise PlaygroundError(f"the extender answers {answer.status_code}; its log: {log}")
        state: dict[str, Any] = answer.json()
        return state

    def _components(self) -> list[Component]:
        kubeconfig = self.cluster.kubeconfig()
        configuration = self.cluster.folders.configuration / f"{SCHEDULER}.json"
        configuration.write_text(json.dumps(self._configuration(kubeconfig), indent=1))
        return [
            Component(
                name=EXTENDER,
                command=(
                    sys.executable,
                    "-m",
                    "extender.app",
                    f"--kubeconfig={kubeconfig}",
                    f"--verbs={self.address}:{_VERBS_PORT}",
                    f"--state={self.address}:{_STATE_PORT}",
                    # Simulated containers never say that they have ended.
                    "--Extender.max_hold=0",
                ),
                ready=Http(f"http://{self.address}:{_STATE_PORT}/readyz"),
            ),
            Component(
                name=SCHEDULER,
                command=(
                    str(binaries.path("kube-scheduler", self.cluster.say)),
                    f"--config={configuration}",
                    f"--bind-address={self.address}",
                    f"--secure-port={_SCHEDULER_PORT}",
                    f"--cert-dir={self.cluster.folders.configuration}",
                    f"--authentication-kubeconfig={kubeconfig}",
                    f"--authorization-kubeconfig={kubeconfig}",
                ),
                ready=_Started(),
            ),
        ]

    def _configuration(self, kubeconfig: Path) -> dict[str, Any]:
        return scheduler_configuration(kubeconfig, f"{self.address}:{_VERBS_PORT}")

    def _allow_reading(self) -> None:
        """An account whose token the extender's state API accepts."""
        api, metadata = self.cluster.api(), {"name": _READER}
        api.ensure(f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts", {"metadata": metadata})
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"nonResourceURLs": ["/v1", "/v1/*"], "verbs": ["get"]}
        api.ensure(f"{rbac}/clusterroles", {"metadata": metadata, "rules": [rule]})
        subject = {"kind": "ServiceAccount", "name": _READER, "namespace": _NAMESPACE}
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": _READER,
        }
        api.ensure(
            f"{rbac}/clusterrolebindings",
            {"metadata": metadata, "roleRef": reference, "subjects": [subject]},
        )


class _Started:
    """Ready as soon as it runs: that kube-scheduler schedules is seen by the pods."""

    def failure(self, pid: int) -> str | None:
        return None
