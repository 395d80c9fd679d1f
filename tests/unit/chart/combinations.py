"""The combinations of values that are rendered here, and given to a real API server in tests/cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.chart.rendering import ROOT

VALUES_FOLDER = ROOT / "helm-values"
# Values for the Zero to JupyterHub chart, not for ours.
NOT_OURS = {"zero-to-jupyterhub.yaml"}
OUR_FILES: tuple[Path, ...] = tuple(
    path for path in sorted(VALUES_FOLDER.glob("*.yaml")) if path.name not in NOT_OURS
)

COMBINATIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one replica": {"scheduler": {"replicas": 1}},
    "another prefix": {
        "prefix": "gpu.example.org",
        "unit": "256MiB",
        "schedulerName": "cards",
        "nameOverride": "cards",
    },
    "asked by certificate": {"scheduler": {"asked": {"by": "mtls", "clientCA": "callers"}}},
    "asked through the proxy": {"scheduler": {"asked": {"by": "proxy"}}},
    "scheduler alone": {"devicePlugin": {"enabled": False}},
    "agent without devices": {"devicePlugin": {"access": "none"}},
    "agent by runtime class": {"devicePlugin": {"access": "runtime"}},
    "mps": {"devicePlugin": {"enforcement": "mps", "access": "runtime"}},
    "agent privileged": {"devicePlugin": {"access": "privileged"}},
    "driver container": {
        "devicePlugin": {"driverRoot": "/run/nvidia/driver", "kubeletRoot": "/var/lib/k0s/kubelet"}
    },
    "certificate of the admin": {"tls": {"existingSecret": "mine"}},
    "cert-manager": {"tls": {"certManager": {"enabled": True}}},
    "authority published": {"tls": {"publishTo": ["default", "gpushare"]}},
    "readers": {
        "stateApi": {
            "users": [{"kind": "Group", "name": "ml"}, {"kind": "User", "name": "ann@example.org"}],
            "serviceAccounts": [{"namespace": "jupyter", "name": "hub"}],
        }
    },
    "everything on": {
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "priorityClass": {"create": True},
        "criticalPodsQuota": {"enabled": True},
        "openshift": {"securityContextConstraints": True},
        "networkPolicy": {
            "stateFrom": [{"namespaceSelector": {}}],
            "metricsFrom": [{"podSelector": {}}],
        },
        "admissionPolicy": {"strayPods": "Deny", "trustedUsers": ["restore@example.org"]},
        "images": {"registry": "r.example.org/g", "pullSecrets": [{"name": "pull"}]},
        "scheduler": {
            "ignoredByScheduler": False,
            "pluginConfig": [{"name": "NodeAffinity", "args": {}}],
            "plugins": {"score": {"disabled": [{"name": "ImageLocality"}]}},
            "nodeSelector": {"pool": "core"},
            "tolerations": [{"key": "core", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podAnnotations": {"note": "x"},
        },
        "devicePlugin": {
            "affinity": {"nodeAffinity": {}},
            "podAnnotations": {"note": "x"},
            "seLinuxOptions": {"type": "spc_t"},
        },
    },
    "everything off": {
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "admissionPolicy": {"enabled": False},
        "openshift": {"securityContextConstraints": False},
        "devicePlugin": {"nodeLabel": "", "tolerations": [], "priorityClassName": ""},
        "scheduler": {"priorityClassName": ""},
    },
}
